package tunnel

import (
	"context"
	"errors"
	"time"
)

// Serve serves a stream that the agent has opened, because the hub requested it or to connect to a Target. The context
// ends with the stream. When Serve returns, the transport must end the stream: in order if the error is nil, else with
// the *StreamError.
func (p *Pool) Serve(ctx context.Context, stream Stream) error {
	first, err := p.firstFrame(stream)
	if err != nil {
		return err
	}
	if first.Target != "" {
		return p.serveTarget(ctx, stream, first)
	}
	t := newTunnel(stream, p.cfg.Counters)
	t.inUse = make(chan struct{})
	if first.Err != nil || first.Token == "" || first.Data != nil || first.End || !p.attach(first, t) {
		first.free()
		p.cfg.Refuse(unknownToken)
		const reason = "this tunnel was not requested, or no longer is"
		p.cfg.Log(p.peer.Agent, errors.New(reason)).WarnContext(ctx, "Tunnel refused")
		return &StreamError{Denied, reason}
	}
	if first.Reason != "" {
		return nil
	}
	defer p.release(t)
	p.cfg.Running.Go(t.receive)
	p.cfg.Running.Go(t.sendAll)
	return p.run(ctx, t)
}

func (p *Pool) firstFrame(stream Stream) (*Frame, error) {
	type received struct {
		frame Frame
		err   error
	}
	first := make(chan received, 1)
	p.cfg.Running.Go(func() {
		frame, err := stream.Receive()
		first <- received{frame, err}
	})
	timer := time.NewTimer(p.cfg.Limits.Open)
	defer timer.Stop()
	select {
	case r := <-first:
		return &r.frame, r.err
	case <-timer.C:
		p.cfg.Refuse(noFirstFrame)
		return nil, &StreamError{TimedOut, "the first frame did not arrive in time"}
	case <-p.peer.Closing:
		return nil, &StreamError{Ended, "the session has ended"}
	}
}

// run waits until a tunnel is done. When it returns, the stream ends.
func (p *Pool) run(ctx context.Context, t *Tunnel) error {
	unused := time.NewTimer(standbyTimeout)
	defer unused.Stop()
	select {
	case <-t.inUse:
	case <-unused.C:
		if p.removeStandby(t) {
			t.fail(ErrIdle)
			return nil // in order
		}
	case <-t.closed: // the caller of Open has given up
	case <-t.done.Done():
	case <-ctx.Done():
	case <-p.peer.Closing:
	}
	stop := t.breakWhenIdle(idleTimeout)
	defer stop()
	select {
	case <-t.closed:
		return p.flush(ctx, t)
	case <-t.done.Done():
	case <-ctx.Done():
		t.fail(errors.New("the agent ended the tunnel, or its connection is gone"))
	case <-p.peer.Closing:
		t.fail(&NotConnectedError{Agent: p.peer.Agent, Since: time.Now()})
	}
	select {
	case <-t.broken.Done():
		return &StreamError{Aborted, t.Cause().Error()}
	default:
		return nil
	}
}

// flush waits until what was written before Close was sent.
func (p *Pool) flush(ctx context.Context, t *Tunnel) error {
	timer := time.NewTimer(flushTimeout)
	defer timer.Stop()
	select {
	case <-t.flushed:
		return nil
	case <-timer.C:
		return &StreamError{Aborted, "closed before the agent received all data"}
	case <-ctx.Done():
	case <-p.peer.Closing:
	}
	return &StreamError{Ended, "the session has ended"}
}
