// Package backoff computes the pauses between retries.
package backoff

import (
	"cmp"
	"context"
	"time"
)

// Backoff is a pause that doubles from Min to Max. The zero value of the unexported state is ready to use.
// It is not safe for concurrent use.
type Backoff struct {
	Min, Max time.Duration
	Jitter   func() float64 // 0 to 1. If nil, pauses are not shortened.
	Floor    time.Duration  // shortest pause with Jitter. If zero, half of the pause.

	last time.Duration
}

// Next returns the next pause. With Jitter, it is between Floor and the whole pause.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.Min), b.Max)
	if b.Jitter == nil {
		return b.last
	}
	floor := cmp.Or(b.Floor, b.last/2)
	return floor + time.Duration(b.Jitter()*float64(b.last-floor))
}

// Last returns the last pause before Jitter, or zero after Reset.
func (b *Backoff) Last() time.Duration { return b.last }

// Reset starts again with Min.
func (b *Backoff) Reset() { b.last = 0 }

// Wait waits for the next pause, or at least for atLeast. It returns early if ctx ends.
func (b *Backoff) Wait(ctx context.Context, atLeast time.Duration) {
	Sleep(ctx, max(b.Next(), atLeast))
}

// Sleep waits for d. It reports false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
