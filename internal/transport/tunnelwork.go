package transport

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// receive is the goroutine of one direction. It ends when the stream does, so
// that somebody notices that; what comes to an end that was closed is dropped.
func (t *Tunnel) receive() {
	open := true // in is
	for {
		var f frame
		err := t.stream.RecvMsg(&f)
		if err != nil || f.err != nil || f.reason != "" {
			f.free()
			t.stopped(err, f)
			if open {
				close(t.in)
			}
			return
		}
		t.startOnce.Do(func() {
			close(t.started)
			if f.token != "" && t.openReplacement != nil {
				t.openReplacement(f.token)
			}
		})
		if f.data != nil && open {
			t.deliver(f)
		} else {
			f.free()
		}
		if f.end && open {
			open = false
			close(t.in)
		}
	}
}

// stopped notes that the stream has come to its end, or has to.
func (t *Tunnel) stopped(err error, f frame) {
	switch {
	case errors.Is(err, io.EOF):
		t.finish(io.EOF)
	case err != nil:
		t.fail(fmt.Errorf("the tunnel broke: %w", explainStatus(err)))
	case f.err != nil:
		t.fail(fmt.Errorf("the tunnel broke: the other end sent %w", f.err))
	default:
		t.fail(&TunnelError{Agent: t.agent, Target: t.target, Reason: f.reason})
	}
}

func (t *Tunnel) deliver(f frame) {
	t.markActive()
	t.counters.BytesIn.Add(uint64(f.data.Remaining()))
	select {
	case t.in <- f.data:
	case <-t.closed:
		f.free()
	case <-t.broken:
		f.free()
	}
}

// sendAll is the goroutine of the other direction. It ends when the tunnel is
// closed and the last frame was sent, or when it is over.
func (t *Tunnel) sendAll() {
	defer close(t.flushed)
	if !t.begin() {
		return
	}
	ended := t.ended
	for {
		var f outFrame
		select {
		case f = <-t.out:
		case <-ended:
			f, ended = endFrame(), nil
		case <-t.closed:
			t.part()
			return
		case <-t.over:
			return
		}
		if !t.send(f) {
			return
		}
	}
}

// begin waits on the hub until somebody uses the tunnel, and tells the agent.
func (t *Tunnel) begin() bool {
	if t.taken == nil {
		return true
	}
	select {
	case <-t.taken:
		return t.send(startFrame(t.next))
	case <-t.closed:
	case <-t.over:
	}
	return false
}

func (t *Tunnel) send(f outFrame) bool {
	err := t.stream.SendMsg(f)
	if err != nil && !errors.Is(err, io.EOF) { // on EOF the receiver learns why
		t.fail(fmt.Errorf("the tunnel broke: %w", explainStatus(err)))
	}
	return err == nil
}

// part ends the stream in order.
func (t *Tunnel) part() {
	t.mu.Lock()
	parting := t.closeReason
	t.mu.Unlock()
	if parting != "" && !t.send(errorFrame(parting)) {
		return
	}
	if t.halfClose != nil {
		t.halfClose()
	}
}

// errIdle is the reason of a tunnel that nobody used.
var errIdle = errors.New("nothing went through the tunnel for too long")

// watch breaks the tunnel when nothing goes through it for a while, until stop
// is called.
func (t *Tunnel) watch(idle time.Duration) (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(idle, func() {
		left := idle - t.idleFor()
		if left <= 0 {
			t.fail(errIdle)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Reset(left)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
		timer = nil
	}
}
