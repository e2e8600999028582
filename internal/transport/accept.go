package transport

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Trailers of a refused stream. The first is gRPC's own word for it.
const (
	retryTrailer = "grpc-retry-pushback-ms"
	codeTrailer  = "argocd-agent-code"
)

// Sync implements the service: one agent's session.
func (s *Server) Sync(stream grpc.BidiStreamingServer[api.CloudEvent, api.CloudEvent]) error {
	p, ok := peerOf(stream.Context())
	_, sock, _ := unwrap(stream.Context())
	if !ok || sock == nil {
		return status.Error(codes.Unauthenticated, "the connection has no identity")
	}
	if !sock.synced.CompareAndSwap(false, true) {
		return s.refuseStream(stream, p, refusedSecondStream, codes.FailedPrecondition, engine.BadMessage,
			"this connection has had its Sync stream; dial again for another", 0)
	}
	steps := s.steps(stream.Context(), p, sock)
	if s.cfg.Admit != nil {
		if retry, err := s.cfg.Admit(p); err != nil {
			steps.Fail(err.Error())
			return s.refuseStream(stream, p, refusedOverloaded, codes.ResourceExhausted, engine.Overloaded, err.Error(), retry)
		}
	}
	c := newConn("hub/"+p.Agent, &s.counters.Traffic, s.cfg.Limits.Queue, closeGrace, func() { _ = sock.Close() })
	c.Agent, c.Fingerprint, c.NotAfter, c.RemoteAddr = p.Agent, p.Fingerprint, p.NotAfter, sock.RemoteAddr().String()
	c.Steps, c.deliveries = steps, newDeliveries(s.cfg.Trace, p.Agent, &s.tracing)
	defer c.stepsEnd()
	c.tunnels = newBook(c, s.cfg.Tunnels, &s.counters)
	if err := s.enter(c); err != nil {
		return s.refuseStream(stream, p, refusedShutdown, codes.Unavailable, engine.ShuttingDown, err.Error(), 0)
	}
	defer s.leave(c)
	// The agent waits for this: now it may speak.
	steps.Next("wait for the greeting")
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return fmt.Errorf("accepting agent %s: %w", p.Agent, err)
	}
	sock.own.Store(c.Traffic)
	sock.tunnels.Store(c.tunnels)
	broken := context.AfterFunc(stream.Context(), func() { c.failSoon(fmt.Errorf("the connection to %s broke", c.RemoteAddr)) })
	defer broken()
	s.counters.Connects.Add(1)
	c.run(stream, s.cfg.Events, nil)
	s.counters.Disconnects.Add(1)
	if bye, ok := c.Cause().(*ByeError); ok && bye.Local {
		_ = sock.Close() // we wanted it gone, with whatever else is on it
	}
	return nil
}

// refuseStream refuses a stream and tells the agent why and when to come back.
func (s *Server) refuseStream(stream grpc.ServerStream, p Peer, reason string, code codes.Code, word engine.Code, message string, retry time.Duration) error {
	s.counters.refuse(reason)
	s.quiet.with(p.Agent, fmt.Errorf("%s: %s", word, message)).Warn("agent turned away", "retryAfter", retry)
	trailer := metadata.Pairs(codeTrailer, string(word))
	if retry > 0 {
		trailer.Set(retryTrailer, strconv.FormatInt(retry.Milliseconds(), 10))
	}
	stream.SetTrailer(trailer)
	return status.Error(code, message)
}
