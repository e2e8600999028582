package enroll

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// maxConcurrent is the number of requests that are processed at the same time: each one costs requests to the API
	// server and memory. Clients that join have the same number for themselves, so that they cannot block renewals.
	maxConcurrent = 16

	interval = 500 * time.Millisecond // per request, in the long run
	burst    = 40                     // requests at once: many clusters may share one address
)

// Limiter limits requests for certificates. Each caller is mapped to one of a fixed number of slots, so that unknown
// clients cannot make it grow. Callers with the same slot share its rate.
type Limiter struct {
	now               func() time.Time
	seed              maphash.Seed
	renewing, joining chan struct{}

	mu    sync.Mutex
	slots [1024]time.Time // when all that was taken from a slot is available again
}

// NewLimiter returns a Limiter with this clock.
func NewLimiter(now func() time.Time) *Limiter {
	return &Limiter{now: now, seed: maphash.MakeSeed(), renewing: make(chan struct{}, maxConcurrent), joining: make(chan struct{}, maxConcurrent)}
}

// Begin admits a request, or returns why not. The caller must call done after the request.
func (l *Limiter) Begin(caller string, join bool) (done func(), err *Error) {
	if wait := l.take(caller); wait > 0 {
		return nil, &Error{Message: "too many requests from this client: try again later", Temporary: true, RetryAfter: wait}
	}
	places := l.renewing
	if join {
		places = l.joining
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, &Error{Message: "the hub issues too many certificates at the same time: try again later", Temporary: true, RetryAfter: time.Second}
	}
}

// take takes one request from a slot, or returns how long to wait for it.
func (l *Limiter) take(caller string) (wait time.Duration) {
	i := maphash.String(l.seed, caller) % uint64(len(l.slots))
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.slots[i]
	if full.Before(now) {
		full = now
	}
	if full = full.Add(interval); full.Sub(now) > burst*interval {
		return full.Sub(now) - burst*interval
	}
	l.slots[i] = full
	return 0
}
