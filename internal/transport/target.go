package transport

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
)

// Target is something of the hub that agents may connect to, by tunnels which
// they open themselves. Whom it concerns is decided on the hub, for each tunnel.
type Target struct {
	// Admit says why an agent may not connect; nil: it may.
	Admit func(agent string) error

	// Serve serves a tunnel, in a goroutine of its own. The tunnel is closed when
	// it returns. The context ends as soon as the agent has closed the tunnel, or
	// it broke; Serve has to return then.
	Serve func(ctx context.Context, agent string, conn net.Conn)

	// PerAgent is how many tunnels one agent may have to it: 64. They come on top
	// of those that the hub opens, so that neither takes the other's place.
	PerAgent int
}

func (t Target) limit() int { return or(t.PerAgent, 64) }

// openTarget is the life of a tunnel that an agent wants.
func (s *Server) openTarget(stream grpc.BidiStreamingServer[api.Frame, api.Frame], b *tunnelPool, first *frame) error {
	refuse := func(reason string, code codes.Code, err error) error {
		s.counters.refuse(reason)
		s.quiet.with(b.conn.Agent, err).Warn("tunnel refused", "target", readable(first.target, maxTarget))
		return status.Error(code, err.Error())
	}
	if first.err != nil || first.token != "" || first.data != nil || first.end || first.reason != "" {
		first.free()
		return refuse(refusedTunnelToken, codes.InvalidArgument, fmt.Errorf("the first frame says more than where to connect to"))
	}
	target, known := s.cfg.Targets[first.target]
	if !known {
		return refuse(refusedTunnelTarget, codes.PermissionDenied, fmt.Errorf("agents cannot connect to %q of the hub", readable(first.target, maxTarget)))
	}
	if b.conn.welcomed.Load() == 0 {
		return refuse(refusedTunnelTarget, codes.Unavailable, fmt.Errorf("the session has not begun yet"))
	}
	if err := target.Admit(b.conn.Agent); err != nil {
		return refuse(refusedTunnelTarget, codes.PermissionDenied, err)
	}
	if reason := b.call(first.target, target.limit()); reason != "" {
		return refuse(reason, codes.ResourceExhausted, fmt.Errorf("%w to %s", ErrTooManyTunnels, first.target))
	}
	defer b.releaseInbound(first.target)
	t := newTunnel(stream, &s.counters.Tunnels)
	t.describe(b.conn, first.target)
	t.taken = make(chan struct{})
	close(t.taken) // somebody uses it from the beginning
	s.counters.Tunnels.Opened.Add(1)
	ctx, over := context.WithCancel(stream.Context())
	defer over()
	s.carrying.Go(func() {
		defer over()
		t.receive()
	})
	s.carrying.Go(t.sendAll)
	served := make(chan struct{})
	s.carrying.Go(func() {
		defer close(served)
		target.Serve(ctx, b.conn.Agent, t)
		_ = t.Close()
	})
	err := b.carry(stream, t)
	<-served // it may still read what came before an end in order
	return err
}

// call counts one more tunnel of the agent to a target, if there may be one.
func (b *tunnelPool) call(target string, limit int) (refused string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls[target] >= limit {
		return refusedTunnelLimit
	}
	if b.counters.Tunnels.Open.Add(1) > int64(b.limits.Total) {
		b.counters.Tunnels.Open.Add(-1)
		return refusedTunnelTotal
	}
	if b.calls == nil {
		b.calls = map[string]int{}
	}
	b.calls[target]++
	return ""
}

func (b *tunnelPool) releaseInbound(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[target]--
	b.counters.Tunnels.Open.Add(-1)
}
