package route

import (
	"testing"
	"time"
)

func TestNextPause_ResetsOnlyAfterASessionThatLasted(t *testing.T) {
	const s = time.Second
	b := newPauses(func() float64 { return 1 })
	for i, step := range []struct {
		opened     bool
		lasted     time.Duration
		retryAfter time.Duration
		want       time.Duration
	}{
		{false, 0, 0, s / 2},
		{false, 0, 0, 1 * s},
		{true, 900 * time.Millisecond, 0, 2 * s}, // ended right after it was opened
		{true, 3 * s, 0, s / 2},
		{true, s, 0, s / 2},
		{false, time.Hour, 0, 1 * s}, // never opened
		{false, 0, 10 * s, 12 * s},   // the hub's pause, and our own in addition
		{false, 0, 24 * time.Hour, 10*time.Minute + 4*s},
		{false, 0, -5 * s, 8 * s},
		{true, time.Hour, 5 * s, 5*s + s/2},
	} {
		if got := nextPause(b, step.opened, step.lasted, step.retryAfter); got != step.want {
			t.Errorf("step %d: pause %s instead of %s", i, got, step.want)
		}
	}
}

// Agents that lost a hub together reach the next one at different times.
func TestRoute_SpreadsAgentsOverTime(t *testing.T) {
	var jitter float64
	r := New(2, func() float64 { return jitter })
	for _, step := range []struct {
		jitter float64
		want   time.Duration
	}{{0, 0}, {0.5, 250 * time.Millisecond}, {1, 500 * time.Millisecond}} {
		jitter = step.jitter
		r.current, r.failed = 0, 0
		if got := r.Next(false, 0, End{}); got != step.want {
			t.Errorf("jitter %v: pause %s instead of %s", step.jitter, got, step.want)
		}
		r.returns.Reset()
		if got := r.NextReturn(); got != 5*time.Minute+time.Duration(step.jitter*float64(5*time.Minute)) {
			t.Errorf("jitter %v: return after %s", step.jitter, got)
		}
	}
}
