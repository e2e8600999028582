package transport

import "time"

// Backoff is how long an agent waits before it dials again: a random part
// ("full jitter") of a ceiling that doubles with every failure. Zero means the
// default.
type Backoff struct {
	Base          time.Duration // the first ceiling: 0.5 s
	Max           time.Duration // the last one: 30 s
	MaxRetryAfter time.Duration // the longest pause that the hub may ask for: 10 min
}

func (b Backoff) withDefaults() Backoff {
	b.Base = or(b.Base, 500*time.Millisecond)
	b.Max = or(b.Max, 30*time.Second)
	b.MaxRetryAfter = or(b.MaxRetryAfter, 10*time.Minute)
	return b
}

// backoffState decides on the pauses between attempts.
type backoffState struct {
	Backoff
	random  func() float64 // 0 to 1
	ceiling time.Duration  // of the last pause; 0: none
}

// next returns the pause after an attempt. A session that was opened and lasted
// longer than the last ceiling starts the series again; one that is cut as soon
// as it is open does not, or the two ends would spin. What the hub asks for
// comes on top, so that agents sent away together do not return together.
func (p *backoffState) next(opened bool, lasted, retryAfter time.Duration) time.Duration {
	switch {
	case p.ceiling == 0 || (opened && lasted >= p.ceiling):
		p.ceiling = p.Base
	default:
		p.ceiling = min(2*p.ceiling, p.Max)
	}
	floor := p.Base / 10
	pause := floor + time.Duration(p.random()*float64(p.ceiling-floor))
	return min(max(retryAfter, 0), p.MaxRetryAfter) + pause
}
