package search

import (
	"crypto/sha256"
	"sync"
	"time"
)

// limiter limits what runs at the same time, in total and for each user.
type limiter struct {
	total, perUser int

	mu    sync.Mutex
	all   int
	users map[string]int
}

func newLimiter(total, perUser int) *limiter {
	return &limiter{total: total, perUser: perUser, users: map[string]int{}}
}

// acquire reports whether a user may start. The caller must call release then.
func (l *limiter) acquire(user string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.total || l.users[user] >= l.perUser {
		return false
	}
	l.all++
	l.users[user]++
	return true
}

func (l *limiter) release(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.users[user]--; l.users[user] == 0 {
		delete(l.users, user)
	}
}

// cache remembers answers of the API server for a short time.
type cache[V any] struct {
	size int
	ttl  time.Duration

	mu      sync.Mutex
	entries map[[sha256.Size]byte]entry[V]
}

type entry[V any] struct {
	value   V
	expires time.Time
}

func newCache[V any](size int, ttl time.Duration) *cache[V] {
	return &cache[V]{size: size, ttl: ttl, entries: map[[sha256.Size]byte]entry[V]{}}
}

// get returns the remembered value, or the result of read, which it remembers unless there is an error.
func (c *cache[V]) get(key [sha256.Size]byte, now time.Time, read func() (V, error)) (V, error) {
	c.mu.Lock()
	e, known := c.entries[key]
	c.mu.Unlock()
	if known && now.Before(e.expires) {
		return e.value, nil
	}
	value, err := read()
	if err != nil {
		return value, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= c.size {
		clear(c.entries) // they live for seconds only
	}
	c.entries[key] = entry[V]{value, now.Add(c.ttl)}
	return value, nil
}
