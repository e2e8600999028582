package grpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// Trailers of a refused stream. The first one is defined by gRPC.
const (
	retryTrailer = "grpc-retry-pushback-ms"
	codeTrailer  = "argocd-agent-code"
)

// Sync implements the service. It runs one agent's session.
func (s *Server) Sync(stream grpc.BidiStreamingServer[api.CloudEvent, api.CloudEvent]) error {
	p, ok := peerOf(stream.Context())
	_, sock, _ := unwrap(stream.Context())
	if !ok || sock == nil {
		return status.Error(codes.Unauthenticated, "the connection has no identity")
	}
	if !sock.synced.CompareAndSwap(false, true) {
		s.counters.Refuse(refusedSecondStream)
		err := &transport.RefusedError{Code: engine.BadMessage, Message: "this connection already had its Sync stream: open another connection"}
		s.dedupLog.With(p.Agent, err).Warn("Agent refused")
		return refuseStream(stream, codes.FailedPrecondition, err)
	}
	session := &hubSession{messages: messages{stream}, stream: stream, sock: sock, traffic: &transport.Traffic{}}
	c, err := s.hub.Accept(p, session, s.steps(stream.Context(), p, sock))
	if refused, ok := errors.AsType[*transport.RefusedError](err); ok {
		code := codes.Unavailable
		if refused.Code == engine.Overloaded {
			code = codes.ResourceExhausted
		}
		return refuseStream(stream, code, refused)
	}
	if err := stream.SendHeader(metadata.MD{}); err != nil { // the agent waits for it before it sends
		s.hub.Discard(c)
		return fmt.Errorf("accepting agent %s: %w", p.Agent, err)
	}
	sock.sessionTraffic.Store(session.traffic)
	sock.conn.Store(c)
	s.hub.Serve(c)
	return nil
}

// refuseStream refuses a stream with a reason, and with the time when the agent may return.
func refuseStream(stream grpc.ServerStream, code codes.Code, err *transport.RefusedError) error {
	trailer := metadata.Pairs(codeTrailer, string(err.Code))
	if err.RetryAfter > 0 {
		trailer.Set(retryTrailer, strconv.FormatInt(err.RetryAfter.Milliseconds(), 10))
	}
	stream.SetTrailer(trailer)
	return status.Error(code, err.Message)
}

// steps traces how a session begins, from the accepted connection on, as part of the agent's trace.
func (s *Server) steps(ctx context.Context, p transport.Peer, sock *socket) *trace.Steps {
	if s.cfg.Trace == nil {
		return nil
	}
	parent := context.Background()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		if span := md.Get(trace.Header); len(span) == 1 {
			parent = s.cfg.Trace.WithRemoteParent(parent, span[0])
		}
	}
	steps := s.cfg.Trace.Steps(parent, trace.KindServer, "accept an agent", "handshake", sock.since)
	steps.Root().SetString(trace.Agent, p.Agent)
	steps.Root().SetString(trace.PeerAddress, transport.HostOf(sock.RemoteAddr().String()))
	if done := sock.handshakeDoneAt.Load(); done > 0 {
		steps.NextAt("admit", time.Unix(0, done))
	}
	return steps
}

// stream is either end of a gRPC stream.
type stream interface {
	Context() context.Context
	SendMsg(m any) error
	RecvMsg(m any) error
}

// messages carries the messages of a session on either end of a Sync stream.
type messages struct{ stream stream }

func (m messages) Send(event []byte) error { return explainStatus(m.stream.SendMsg(outgoing(event))) }

func (m messages) Receive(read func(event []byte)) error {
	return explainStatus(m.stream.RecvMsg(incoming(read)))
}

// hubSession is the hub's end of a session.
type hubSession struct {
	messages
	stream  grpc.ServerStream
	sock    *socket
	traffic *transport.Traffic
}

// CloseSend implements transport.Session. The hub ends the stream when Sync returns.
func (s *hubSession) CloseSend() {}

func (s *hubSession) OpenTunnel(context.Context) (tunnel.Stream, error) {
	return nil, errors.ErrUnsupported
}

func (s *hubSession) Abort()                      { _ = s.sock.Close() }
func (s *hubSession) Close()                      { s.Abort() }
func (s *hubSession) Context() context.Context    { return s.stream.Context() }
func (s *hubSession) RemoteAddr() string          { return s.sock.RemoteAddr().String() }
func (s *hubSession) Traffic() *transport.Traffic { return s.traffic }

// explainStatus returns what a gRPC error means.
func explainStatus(err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok || errors.Is(err, io.EOF) {
		return err
	}
	switch st.Code() {
	case codes.ResourceExhausted:
		if strings.Contains(st.Message(), "larger than max") {
			return fmt.Errorf("a message exceeds the limit of %d bytes: %s", wire.MaxEvent, st.Message())
		}
	case codes.Canceled:
		return fmt.Errorf("the stream was cancelled: %s", st.Message())
	case codes.Unavailable:
		if strings.Contains(st.Message(), "too_many_pings") {
			return errors.New("the agent pings the principal too often: increase --keep-alive-ping-interval of the agent or decrease --keepalive-min-interval of the principal")
		}
		return fmt.Errorf("the connection broke: %s", st.Message())
	}
	return fmt.Errorf("%s: %s", st.Code(), st.Message())
}
