package transport

import (
	"cmp"
	"time"
)

// Backoff limits the pause of an agent before it dials again: a random part ("full jitter") of a ceiling that doubles
// with every failure. Zero means the default.
type Backoff struct {
	Base          time.Duration // first ceiling: 0.5 s
	Max           time.Duration // last ceiling: 30 s
	MaxRetryAfter time.Duration // longest pause that the hub may request: 10 min
}

func (b Backoff) withDefaults() Backoff {
	b.Base = cmp.Or(b.Base, 500*time.Millisecond)
	b.Max = cmp.Or(b.Max, 30*time.Second)
	b.MaxRetryAfter = cmp.Or(b.MaxRetryAfter, 10*time.Minute)
	return b
}

// backoffState computes the pauses between attempts.
type backoffState struct {
	Backoff
	random  func() float64 // 0 to 1
	ceiling time.Duration  // of the last pause; 0 before the first
}

// next returns the pause after an attempt. A session that was opened and lasted longer than the last ceiling resets the
// ceiling. A session that ends right after it was opened does not, so that the two sides do not spin. The pause that
// the hub requests is added, so that agents that were refused together do not return together.
func (b *backoffState) next(opened bool, lasted, retryAfter time.Duration) time.Duration {
	switch {
	case b.ceiling == 0 || (opened && lasted >= b.ceiling):
		b.ceiling = b.Base
	default:
		b.ceiling = min(2*b.ceiling, b.Max)
	}
	floor := b.Base / 10
	pause := floor + time.Duration(b.random()*float64(b.ceiling-floor))
	return min(max(retryAfter, 0), b.MaxRetryAfter) + pause
}
