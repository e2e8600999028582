package redis

import (
	"container/list"
	"strings"
	"sync"
	"time"
)

// entry is the last known value of a key of an agent, in the form in which the hub asks for it.
type entry struct {
	id    string
	value []byte
	seq   uint64    // of the channel when the value was asked for
	heard bool      // a subscription would have told of a change after that
	at    time.Time // when it was asked for
}

// cache holds the values that were used last, up to a number of bytes.
type cache struct {
	max int

	mu      sync.Mutex
	used    list.List // of *entry, latest first
	by      map[string]*list.Element
	bytes   int
	forgets uint64 // how often something was forgotten
}

func newCache(most int) *cache {
	return &cache{max: most, by: map[string]*list.Element{}}
}

// size of an entry, with what it costs to keep it.
func (e *entry) size() int { return len(e.value) + len(e.id) + 256 }

func (c *cache) get(id string) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.by[id]
	if element == nil {
		return entry{}, false
	}
	c.used.MoveToFront(element)
	return *element.Value.(*entry), true
}

// era is to be noted before something is asked for that put is to keep.
func (c *cache) era() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forgets
}

// put replaces a value, unless the one that is there was asked for later. What was asked for in another era may be of an
// agent that was to be forgotten: the next to ask asks again.
func (c *cache) put(e entry, era uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgets != era {
		return
	}
	if old := c.by[e.id]; old != nil {
		if old.Value.(*entry).at.After(e.at) {
			return
		}
		c.drop(old)
	}
	if e.size() > c.max/2 {
		return // it would push out everybody else
	}
	c.by[e.id] = c.used.PushFront(&e)
	c.bytes += e.size()
	for c.bytes > c.max {
		c.drop(c.used.Back())
	}
}

// remove forgets a value that is known to be gone since a time.
func (c *cache) remove(id string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.by[id]; old != nil && !old.Value.(*entry).at.After(at) {
		c.drop(old)
	}
}

// forget drops all values whose id has a prefix.
func (c *cache) forget(prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	for id, element := range c.by {
		if strings.HasPrefix(id, prefix) {
			c.drop(element)
		}
	}
}

func (c *cache) drop(element *list.Element) {
	e := c.used.Remove(element).(*entry)
	delete(c.by, e.id)
	c.bytes -= e.size()
}

func (c *cache) size() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.by), c.bytes
}
