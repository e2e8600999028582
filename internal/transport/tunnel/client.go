package tunnel

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Handler serves a tunnel on an agent, in a goroutine of its own. The tunnel, a *Tunnel, is closed when the handler
// returns. The context ends when the hub has closed the tunnel, or it broke. The handler must then return.
type Handler func(ctx context.Context, conn net.Conn)

// Session is the agent's session that a Client opens streams on. All fields are required.
type Session struct {
	Context context.Context // ends with the session
	Source  string          // name of the agent in addresses
	Agent   string
	Remote  string // address of the hub

	// Open opens a stream that lives as long as the context.
	Open func(context.Context) (Stream, error)
}

// Client has the agent's tunnels of one session.
type Client struct {
	cfg      Config
	handlers map[string]Handler
	session  Session

	requested atomic.Int64 // tunnels that the hub requested
	outbound  atomic.Int64 // tunnels to the hub
}

// NewClient returns a client without tunnels.
func NewClient(cfg Config, handlers map[string]Handler, s Session) *Client {
	return &Client{cfg: cfg, handlers: handlers, session: s}
}

// headroom is the number of standby tunnels, and of tunnels that are being refused or have just ended, beyond the limit
// of tunnels in use.
const headroom = 32

// HandleRequest opens a tunnel that the hub requests. It does not wait.
func (c *Client) HandleRequest(token, target string) {
	limit := c.cfg.Limits.PerAgent
	requested := c.requested.Add(1)
	handler, reason := c.handlers[target], ""
	switch {
	case requested > int64(limit+2*headroom):
		c.requested.Add(-1)
		c.cfg.Refuse(limitReached)
		return // a hub that requests this many does not wait for answers
	case requested > int64(limit+headroom):
		reason = fmt.Sprintf("the agent has %d tunnels already", limit+headroom)
		c.cfg.Refuse(limitReached)
	case handler == nil:
		reason = notServed(target)
		c.cfg.Refuse(agentRefused)
	}
	c.cfg.Running.Go(func() {
		defer c.requested.Add(-1)
		var err error
		if reason != "" {
			err = c.refuse(token, reason)
		} else {
			err = c.serve(token, target, handler)
		}
		if err != nil && c.session.Context.Err() == nil {
			c.cfg.Log(c.session.Remote, err).Warn("Failed to open tunnel", "target", target)
		}
	})
}

func (c *Client) openStream(ctx context.Context, first Frame) (Stream, error) {
	stream, err := c.session.Open(ctx)
	if err != nil {
		return nil, err
	}
	return stream, stream.Send(first)
}

// refuse sends the hub the reason why there is no tunnel.
func (c *Client) refuse(token, reason string) error {
	ctx, cancel := context.WithTimeout(c.session.Context, c.cfg.Limits.Open)
	defer cancel()
	stream, err := c.openStream(ctx, Frame{Token: token, Reason: reason})
	if err != nil {
		return err
	}
	stream.CloseSend()
	for err == nil { // the hub ends it
		var f Frame
		f, err = stream.Receive()
		f.free()
	}
	return nil
}

// serve runs a tunnel that the hub requested.
func (c *Client) serve(token, target string, handler Handler) error {
	ctx, cancel := context.WithCancel(c.session.Context)
	defer cancel()
	late := time.AfterFunc(c.cfg.Limits.Open, cancel)
	stream, err := c.openStream(ctx, Frame{Token: token})
	if err != nil {
		return err
	}
	late.Stop()

	t := c.newTunnel(stream, cancel, target)
	t.local, t.remote = addr(c.session.Source+"/"+target), "hub"
	t.openReplacement = func(token string) { c.HandleRequest(token, target) }
	served, done := context.WithCancel(ctx)
	defer done()
	stop := breakWith(ctx, t)
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel() // before Wait
	work.Go(func() {
		defer done()
		t.receive()
	})
	work.Go(t.sendAll)
	c.runHandler(served, t, handler)
	return nil
}

func (c *Client) newTunnel(stream Stream, cancel func(), target string) *Tunnel {
	t := newTunnel(stream, c.cfg.Counters)
	t.agent, t.target = c.session.Agent, target
	t.closeStream, t.abort = stream.CloseSend, cancel
	return t
}

// breakWith breaks a tunnel when the context ends.
func breakWith(ctx context.Context, t *Tunnel) (stop func() bool) {
	return context.AfterFunc(ctx, func() { t.fail(fmt.Errorf("the tunnel broke: %w", context.Cause(ctx))) })
}

// runHandler runs the handler once the hub uses the tunnel, and waits until the tunnel is done.
func (c *Client) runHandler(ctx context.Context, t *Tunnel, handler Handler) {
	c.cfg.Counters.Standby.Add(1)
	unused := time.NewTimer(c.cfg.Limits.Open + 3*standbyTimeout)
	started := false
	select {
	case <-t.started:
		started = true
	case <-t.done.Done():
	case <-unused.C:
	}
	unused.Stop()
	c.cfg.Counters.Standby.Add(-1)
	if !started {
		return
	}
	c.cfg.Counters.Open.Add(1)
	defer c.cfg.Counters.Open.Add(-1)
	c.cfg.Counters.Opened.Add(1)
	stop := t.breakWhenIdle(idleTimeout)
	defer stop()
	handler(ctx, t)
	_ = t.Close()
	<-t.done.Done() // the hub has received everything, or the tunnel is idle
}
