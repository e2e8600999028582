package transport

import (
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
)

// tunnelService is the hub's end of tunnels: it takes the streams that agents
// open because they were asked to, or to connect to a Target.
type tunnelService struct {
	api.UnimplementedTunnelServer
	server *Server
}

// Open implements the service: one tunnel.
func (ts tunnelService) Open(stream grpc.BidiStreamingServer[api.Frame, api.Frame]) error {
	s := ts.server
	p, ok := peerOf(stream.Context())
	_, sock, _ := unwrap(stream.Context())
	if !ok || sock == nil {
		return status.Error(codes.Unauthenticated, "the connection has no identity")
	}
	b := sock.tunnels.Load()
	if b == nil || b.conn.Agent != p.Agent || b.conn.Fingerprint != p.Fingerprint {
		s.counters.refuse(refusedTunnelToken)
		return status.Error(codes.FailedPrecondition, "this connection has no session of this agent")
	}
	first, err := s.firstFrame(stream, b)
	if err != nil {
		return err
	}
	if first.target != "" {
		return s.openTarget(stream, b, first)
	}
	t := newTunnel(stream, &s.counters.Tunnels)
	t.taken = make(chan struct{})
	if first.err != nil || first.token == "" || first.data != nil || first.end || !b.attach(first, t) {
		first.free()
		s.counters.refuse(refusedTunnelToken)
		s.quiet.with(p.Agent, errors.New("a tunnel that nobody asked for, or no longer")).Warn("tunnel refused")
		return status.Error(codes.PermissionDenied, "nobody asked for this tunnel, or no longer")
	}
	if first.reason != "" {
		return nil
	}
	defer b.release(t)
	s.carrying.Go(t.receive)
	s.carrying.Go(t.sendAll)
	return b.carry(stream, t)
}

// firstFrame waits for a stream to say what it is.
func (s *Server) firstFrame(stream grpc.ServerStream, b *tunnelPool) (*frame, error) {
	type received struct {
		frame frame
		err   error
	}
	came := make(chan received, 1)
	s.carrying.Go(func() {
		var r received
		r.err = stream.RecvMsg(&r.frame)
		came <- r
	})
	timer := time.NewTimer(b.limits.Open)
	defer timer.Stop()
	select {
	case r := <-came:
		return &r.frame, r.err
	case <-timer.C:
		s.counters.refuse(refusedTunnelSilent)
		return nil, status.Error(codes.DeadlineExceeded, "the stream did not say which tunnel it is")
	case <-b.conn.closing:
		return nil, status.Error(codes.Unavailable, "the session has ended")
	}
}

// carry is the life of a tunnel. When it returns, the stream ends.
func (b *tunnelPool) carry(stream grpc.ServerStream, t *Tunnel) error {
	unused := time.NewTimer(b.limits.StandbyTimeout)
	defer unused.Stop()
	select {
	case <-t.taken:
	case <-unused.C:
		if b.drop(t) {
			t.fail(errIdle)
			return nil // in order: the agent need not worry
		}
	case <-t.closed: // whoever asked has given up meanwhile
	case <-t.over:
	case <-stream.Context().Done():
	case <-b.conn.closing:
	}
	stop := t.watch(b.limits.Idle)
	defer stop()
	select {
	case <-t.closed:
		return b.flush(stream, t)
	case <-t.over:
	case <-stream.Context().Done():
		t.fail(errors.New("the agent broke the tunnel off, or its connection is gone"))
	case <-b.conn.closing:
		t.fail(&NotConnectedError{Agent: b.conn.Agent, Since: time.Now()})
	}
	select {
	case <-t.broken:
		return status.Error(codes.Aborted, t.Cause().Error())
	default:
		return nil
	}
}

// flush waits until what was written before Close is on its way.
func (b *tunnelPool) flush(stream grpc.ServerStream, t *Tunnel) error {
	timer := time.NewTimer(b.limits.Linger)
	defer timer.Stop()
	select {
	case <-t.flushed:
		return nil
	case <-timer.C:
		return status.Error(codes.Aborted, "closed, and not all that was written has been taken")
	case <-stream.Context().Done():
	case <-b.conn.closing:
	}
	return status.Error(codes.Unavailable, "the session has ended")
}

// describe notes what a tunnel on the hub is for.
func (t *Tunnel) describe(c *Conn, target string) {
	t.agent, t.target = c.Agent, target
	t.local = tunnelAddr("hub")
	t.remote = tunnelAddr(c.Agent + "/" + target)
}
