package tunnel

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// receive runs one direction. It ends with the stream, so that the end is noticed. Data for a closed end is dropped.
func (t *Tunnel) receive() {
	open := true // t.in is
	for {
		f, err := t.stream.Receive()
		if err != nil || f.Err != nil || f.Reason != "" {
			f.free()
			t.streamEnded(err, f)
			if open {
				close(t.in)
			}
			return
		}
		t.startOnce.Do(func() {
			close(t.started)
			if f.Token != "" && t.openReplacement != nil {
				t.openReplacement(f.Token)
			}
		})
		if f.Data != nil && open {
			t.deliver(f)
		} else {
			f.free()
		}
		if f.End && open {
			open = false
			close(t.in)
		}
	}
}

// streamEnded records why the stream has ended, or has to.
func (t *Tunnel) streamEnded(err error, f Frame) {
	switch {
	case errors.Is(err, io.EOF):
		t.finish(io.EOF)
	case err != nil:
		t.fail(fmt.Errorf("the tunnel broke: %w", err))
	case f.Err != nil:
		t.fail(fmt.Errorf("the tunnel broke: the other end sent %w", f.Err))
	default:
		t.fail(&AgentError{Agent: t.agent, Target: t.target, Reason: f.Reason})
	}
}

func (t *Tunnel) deliver(f Frame) {
	t.markActive()
	t.counters.BytesIn.Add(uint64(f.Data.Remaining()))
	select {
	case t.in <- f.Data:
	case <-t.closed:
		f.free()
	case <-t.broken.Done():
		f.free()
	}
}

// sendAll runs the other direction. It ends when the tunnel is closed and the last frame was sent, or when it is done.
func (t *Tunnel) sendAll() {
	defer close(t.flushed)
	if !t.sendStart() {
		return
	}
	ended := t.ended
	for {
		var sent bool
		select {
		case data := <-t.out:
			sent = t.sent(t.stream.SendData(data))
		case <-ended:
			ended = nil
			sent = t.sent(t.stream.Send(Frame{End: true}))
		case <-t.closed:
			t.sendClose()
			return
		case <-t.done.Done():
			return
		}
		if !sent {
			return
		}
	}
}

// sendStart waits on the hub until the tunnel is used, and notifies the agent.
func (t *Tunnel) sendStart() bool {
	if t.inUse == nil {
		return true
	}
	select {
	case <-t.inUse:
		return t.sent(t.stream.Send(Frame{Token: t.next}))
	case <-t.closed:
	case <-t.done.Done():
	}
	return false
}

// sent reports whether a send succeeded. After io.EOF the receiver gets the reason.
func (t *Tunnel) sent(err error) bool {
	if err != nil && !errors.Is(err, io.EOF) {
		t.fail(fmt.Errorf("the tunnel broke: %w", err))
	}
	return err == nil
}

// sendClose ends the stream in order.
func (t *Tunnel) sendClose() {
	if reason := t.closeReason.Load(); reason != nil && !t.sent(t.stream.Send(Frame{Reason: *reason})) {
		return
	}
	if t.closeStream != nil {
		t.closeStream()
	}
}

// ErrIdle is the reason of a tunnel without traffic.
var ErrIdle = errors.New("nothing went through the tunnel for too long")

// breakWhenIdle breaks the tunnel when nothing goes through it for that long, until stop is called.
func (t *Tunnel) breakWhenIdle(idle time.Duration) (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(idle, func() {
		left := idle - t.IdleFor()
		if left <= 0 {
			t.fail(ErrIdle)
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
