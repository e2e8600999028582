// Package ratelimit limits how often each of many keys may do something, in constant memory.
package ratelimit

import (
	"hash/maphash"
	"sync"
	"time"
)

// Limiter limits a rate for each key. A key is mapped to one of a fixed number of slots, so that unknown keys cannot make
// it grow. Keys with the same slot share its rate.
type Limiter struct {
	interval, window time.Duration
	now              func() time.Time
	seed             maphash.Seed

	mu    sync.Mutex
	slots [1024]time.Time // when all that was taken from a slot is available again
}

// New returns a Limiter that permits burst at once, and one per interval in the long run.
func New(interval time.Duration, burst int, now func() time.Time) *Limiter {
	return &Limiter{interval: interval, window: time.Duration(burst) * interval, now: now, seed: maphash.MakeSeed()}
}

// Take takes one from a key, or returns how long to wait for it.
func (l *Limiter) Take(key string) (wait time.Duration) { return l.check(key, true) }

// Give gives one back to a key.
func (l *Limiter) Give(key string) {
	i := maphash.String(l.seed, key) % uint64(len(l.slots))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots[i] = l.slots[i].Add(-l.interval) // what is before now counts as now
}

// Wait returns how long to wait until Take succeeds.
func (l *Limiter) Wait(key string) time.Duration { return l.check(key, false) }

func (l *Limiter) check(key string, take bool) (wait time.Duration) {
	i := maphash.String(l.seed, key) % uint64(len(l.slots))
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.slots[i]
	if full.Before(now) {
		full = now
	}
	full = full.Add(l.interval)
	if over := full.Sub(now) - l.window; over > 0 {
		return over
	}
	if take {
		l.slots[i] = full
	}
	return 0
}
