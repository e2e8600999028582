package redis

import (
	"container/list"
	"strings"
	"time"
)

// entry is the last known value of a key of an agent, in the form that the hub requested.
type entry struct {
	id    string
	value []byte
	seq   uint64    // of the channel when the value was requested
	at    time.Time // when the value was requested
}

// cache holds the values that were used last, up to a number of bytes. The caller of its methods must hold agentPool.mu.
type cache struct {
	max   int
	used  list.List // of *entry, latest first
	byID  map[string]*list.Element
	bytes int
}

func newCache(most int) *cache {
	return &cache{max: most, byID: map[string]*list.Element{}}
}

// size returns the memory that an entry uses.
func (e *entry) size() int { return len(e.value) + len(e.id) + 256 }

func (c *cache) get(id string) (entry, bool) {
	element := c.byID[id]
	if element == nil {
		return entry{}, false
	}
	c.used.MoveToFront(element)
	return *element.Value.(*entry), true
}

// put replaces a value, unless the cached one was requested later. If the new value is nil, it only drops the old one.
func (c *cache) put(e entry) {
	if old := c.byID[e.id]; old != nil {
		if old.Value.(*entry).at.After(e.at) {
			return
		}
		c.drop(old)
	}
	if e.value == nil || e.size() > c.max/2 {
		return // a value of this size would displace most other values
	}
	c.byID[e.id] = c.used.PushFront(&e)
	c.bytes += e.size()
	for c.bytes > c.max {
		c.drop(c.used.Back())
	}
}

// forget drops all values whose ID has a prefix.
func (c *cache) forget(prefix string) {
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
