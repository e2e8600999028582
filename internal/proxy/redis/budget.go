package redis

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// budget is one agent's part of a resource that all agents share. An agent can use at most its own part, which is less
// than the total. A caller that waits for the total has its own part already, so an agent cannot fill the queue either.
type budget struct {
	own, total *semaphore.Weighted
}

func (b budget) acquire(ctx context.Context, n int64) error {
	if err := b.own.Acquire(ctx, n); err != nil {
		return err
	}
	if err := b.total.Acquire(ctx, n); err != nil {
		b.own.Release(n)
		return err
	}
	return nil
}

func (b budget) tryAcquire(n int64) bool {
	if !b.own.TryAcquire(n) {
		return false
	}
	if !b.total.TryAcquire(n) {
		b.own.Release(n)
		return false
	}
	return true
}

func (b budget) release(n int64) {
	b.own.Release(n)
	b.total.Release(n)
}

// memory is what one user of a budget has reserved for large requests or replies.
type memory struct {
	budget budget
	max    int64 // the agent's own part
	held   int64
}

// reserve waits for memory for a large request or reply. It returns the memory of the last one.
func (m *memory) reserve(ctx context.Context, size int) error {
	m.release()
	n := min(int64(size), m.max)
	err := m.budget.acquire(ctx, n)
	if err == nil {
		m.held = n
	}
	return err
}

func (m *memory) release() {
	m.budget.release(m.held)
	m.held = 0
}
