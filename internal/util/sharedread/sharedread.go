// Package sharedread reads a current value for many callers at once.
package sharedread

import (
	"context"
	"sync"
)

// Reader reads a value that may change at any time, not from a cache. Callers that wait at the same time share one read.
// A read that started before the call is not used for it. At most one read runs and one waits.
type Reader[T any] struct {
	read func() (T, error)
	turn chan struct{} // capacity 1; full during a read

	mu   sync.Mutex
	next *call[T] // has not started; nil if there is none
}

type call[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// New returns a Reader. The function must return after a limited time.
func New[T any](read func() (T, error)) *Reader[T] {
	return &Reader[T]{read: read, turn: make(chan struct{}, 1)}
}

// Read returns a value that was read after the call. All callers of one read get the same value, and must not change it.
func (r *Reader[T]) Read(ctx context.Context) (T, error) {
	r.mu.Lock()
	c := r.next
	if c == nil {
		c = &call[T]{done: make(chan struct{})}
		r.next = c
		go r.run(c)
	}
	r.mu.Unlock()
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func (r *Reader[T]) run(c *call[T]) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.mu.Lock()
	r.next = nil // later callers share the next read
	r.mu.Unlock()
	c.value, c.err = r.read()
	close(c.done)
}
