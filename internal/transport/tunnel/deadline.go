package tunnel

import (
	"sync"
	"time"
)

// deadline is a point in time that may move while a goroutine waits for it. The zero value is never.
type deadline struct {
	mu         sync.Mutex
	timer      *time.Timer
	passedCh   chan struct{} // closed when the deadline has passed; nil if not requested yet
	hasPassed  bool          // passedCh is closed, or would be
	generation uint64        // of set, so that the timer of an earlier one has no effect
}

// set moves the deadline. The zero time means never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.hasPassed { // later calls of passed wait for the new one
		d.hasPassed, d.passedCh = false, nil
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.pass()
		return
	}
	generation := d.generation
	d.timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.generation == generation {
			d.pass()
		}
	})
}

// pass marks the deadline as passed. The caller must hold mu.
func (d *deadline) pass() {
	d.hasPassed = true
	if d.passedCh == nil {
		d.passedCh = make(chan struct{})
	}
	close(d.passedCh)
}

// passed returns a channel that is closed when the deadline passes. Call it for each wait.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passedCh == nil {
		d.passedCh = make(chan struct{})
	}
	return d.passedCh
}
