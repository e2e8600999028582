package transport

import (
	"sync"
	"time"
)

// deadline is a point in time that may move while somebody waits for it. The
// zero value is never.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	gone  chan struct{} // closed when it has passed; nil: nobody has asked yet
	past  bool          // gone is closed, or would be
	turn  uint64        // counts set, so that an old timer does no harm
}

// set moves it; the zero time means never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.past { // those who waited have been told; the next ones wait again
		d.past, d.gone = false, nil
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.pass()
		return
	}
	turn := d.turn
	d.timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.turn == turn {
			d.pass()
		}
	})
}

// pass is called under mu.
func (d *deadline) pass() {
	d.past = true
	if d.gone == nil {
		d.gone = make(chan struct{})
	}
	close(d.gone)
}

// passed is closed when the time has come. It is to be asked for each wait.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone == nil {
		d.gone = make(chan struct{})
	}
	return d.gone
}
