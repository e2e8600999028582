package redis

import (
	"container/list"
	"strings"
	"sync"
	"time"
)

// entry is the last known value of a key of an agent, in the form that the hub requested.
type entry struct {
	id        string
	value     []byte
	seq       uint64    // of the channel when the value was requested
	confirmed bool      // a subscription reported every change since then
	at        time.Time // when the value was requested
}

// cache holds the values that were used last, up to a number of bytes.
type cache struct {
	max int

	mu      sync.Mutex
	used    list.List // of *entry, latest first
	byID    map[string]*list.Element
	bytes   int
	current uint64 // generation
}

func newCache(most int) *cache {
	return &cache{max: most, byID: map[string]*list.Element{}}
}

// size returns the memory that an entry uses.
func (e *entry) size() int { return len(e.value) + len(e.id) + 256 }

func (c *cache) get(id string) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.byID[id]
	if element == nil {
		return entry{}, false
	}
	c.used.MoveToFront(element)
	return *element.Value.(*entry), true
}

// generation changes with every forget. A caller reads it before it requests a value for put.
func (c *cache) generation() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// put replaces a value, unless the cached one was requested later. It ignores a value that was requested in an earlier
// generation, because it can be the value of a forgotten agent.
func (c *cache) put(e entry, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != generation {
		return
	}
	if old := c.byID[e.id]; old != nil {
		if old.Value.(*entry).at.After(e.at) {
			return
		}
		c.drop(old)
	}
	if e.size() > c.max/2 {
		return // it would displace most other values
	}
	c.byID[e.id] = c.used.PushFront(&e)
	c.bytes += e.size()
	for c.bytes > c.max {
		c.drop(c.used.Back())
	}
}

// remove drops a value that did not exist at a time.
func (c *cache) remove(id string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.byID[id]; old != nil && !old.Value.(*entry).at.After(at) {
		c.drop(old)
	}
}

// forget drops all values whose ID has a prefix.
func (c *cache) forget(prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current++
	for id, element := range c.byID {
		if strings.HasPrefix(id, prefix) {
			c.drop(element)
		}
	}
}

func (c *cache) drop(element *list.Element) {
	e := c.used.Remove(element).(*entry)
	delete(c.byID, e.id)
	c.bytes -= e.size()
}

func (c *cache) size() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID), c.bytes
}
