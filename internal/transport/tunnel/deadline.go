package tunnel

import (
	"sync"
	"time"
)

// deadline is a point in time that may move while a goroutine waits for it. It begins as never.
type deadline struct {
	mu       sync.Mutex
	timer    *time.Timer
	passedCh chan struct{} // closed when the deadline has passed
}

func newDeadline() *deadline { return &deadline{passedCh: make(chan struct{})} }

// set moves the deadline. The zero time means never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.passedCh // the timer has closed it, or is about to
	}
	d.timer = nil
	select {
	case <-d.passedCh: // later calls of passed wait for the new deadline
		d.passedCh = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	passed := d.passedCh
	if left := time.Until(t); left > 0 {
		d.timer = time.AfterFunc(left, func() { close(passed) })
	} else {
		close(passed)
	}
}

// passed returns a channel that is closed when the deadline passes. Call it for each wait.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passedCh
}
