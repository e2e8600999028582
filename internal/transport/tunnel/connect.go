package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Connect connects to a target of the hub, which must allow it. The context only limits the opening. The tunnel ends
// when it is closed, when the session ends, or when it is idle for long.
func (c *Client) Connect(ctx context.Context, target string) (net.Conn, error) {
	t, err := c.connect(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("tunnel to %s of the hub: %w", target, err)
	}
	return t, nil
}

func (c *Client) connect(ctx context.Context, target string) (*Tunnel, error) {
	if c.outbound.Add(1) > int64(c.cfg.Limits.PerAgent) {
		c.outbound.Add(-1)
		c.cfg.Refuse(limitReached)
		return nil, ErrTooManyTunnels
	}
	life, cancel := context.WithCancel(c.session.Context)
	given := context.AfterFunc(ctx, cancel)
	late := time.AfterFunc(c.cfg.Limits.Open, cancel)
	t, err := c.dial(life, cancel, target)
	if err == nil {
		select {
		case <-t.started:
		case <-t.done.Done():
			err = t.Cause()
		case <-life.Done():
			err = errors.New("the hub did not answer in time")
		}
	}
	late.Stop()
	if !given() && err == nil { // cancel has been called, or is about to be
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		if t == nil {
			c.outbound.Add(-1)
		}
		return nil, err
	}
	c.cfg.Counters.Opened.Add(1)
	return t, nil
}

// dial opens the stream and runs the tunnel until it is done.
func (c *Client) dial(life context.Context, cancel context.CancelFunc, target string) (*Tunnel, error) {
	stream, err := c.openStream(life, Frame{Target: target})
	if err != nil {
		return nil, err
	}
	t := c.newTunnel(stream, cancel, target)
	t.local, t.remote = addr(c.session.Source), addr("hub/"+target)
	stop := breakWith(life, t)
	c.cfg.Counters.Open.Add(1)
	c.cfg.Running.Go(t.sendAll)
	c.cfg.Running.Go(func() {
		unwatch := t.breakWhenIdle(idleTimeout)
		t.receive()
		unwatch()
		stop()
		<-t.flushed // sendAll ends with it
		cancel()
		c.cfg.Counters.Open.Add(-1)
		c.outbound.Add(-1)
	})
	return t, nil
}
