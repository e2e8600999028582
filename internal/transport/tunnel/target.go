package tunnel

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
)

// Target is a target of the hub that agents may connect to. The hub decides for each tunnel whether the agent may use
// it.
type Target struct {
	// Admit returns an error if an agent may not connect.
	Admit func(agent string) error

	// Serve serves a tunnel, in a goroutine of its own. The tunnel is closed when Serve returns. The context ends when
	// the agent has closed the tunnel, or it broke. Serve must then return.
	Serve func(ctx context.Context, agent string, conn net.Conn)

	// PerAgent is the number of tunnels that one agent may have to the target: 64. Tunnels that the hub opens do not
	// count, so that neither side uses up the other's limit.
	PerAgent int
}

// Limit returns PerAgent or its default.
func (t Target) Limit() int { return cmp.Or(t.PerAgent, 64) }

// serveTarget serves a tunnel of the agent to a target of the hub.
func (p *Pool) serveTarget(ctx context.Context, stream Stream, first *Frame) error {
	refuse := func(reason string, code Code, err error) error {
		p.cfg.Refuse(reason)
		p.cfg.Log(p.peer.Agent, err).WarnContext(ctx, "Tunnel refused", "target", SanitizeText(first.Target, MaxTarget))
		return &StreamError{code, err.Error()}
	}
	if first.Err != nil || first.Token != "" || first.Data != nil || first.End || first.Reason != "" {
		first.free()
		return refuse(unknownToken, Invalid, fmt.Errorf("the first frame has more than a target"))
	}
	target, known := p.targets[first.Target]
	if !known {
		return refuse(targetDenied, Denied, fmt.Errorf("agents cannot connect to %q of the hub", SanitizeText(first.Target, MaxTarget)))
	}
	if !p.peer.Welcomed() {
		return refuse(targetDenied, Ended, fmt.Errorf("the session has not begun yet"))
	}
	if err := target.Admit(p.peer.Agent); err != nil {
		return refuse(targetDenied, Denied, err)
	}
	if reason := p.reserve(p.inbound, first.Target, target.Limit(), math.MaxInt); reason != "" {
		return refuse(reason, TooMany, fmt.Errorf("%w to %s", ErrTooManyTunnels, first.Target))
	}
	defer p.unreserve(p.inbound, first.Target)
	t := newTunnel(stream, p.cfg.Counters)
	p.describe(t, first.Target)
	t.inUse = make(chan struct{})
	close(t.inUse) // from the beginning
	p.cfg.Counters.Opened.Add(1)
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	p.cfg.Running.Go(func() {
		defer cancel()
		t.receive()
	})
	p.cfg.Running.Go(t.sendAll)
	served := make(chan struct{})
	p.cfg.Running.Go(func() {
		defer close(served)
		target.Serve(serving, p.peer.Agent, t)
		_ = t.Close()
	})
	err := p.run(ctx, t)
	<-served // it may still read what arrived before an end in order
	return err
}
