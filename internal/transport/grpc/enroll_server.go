package grpc

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

const (
	enrollPrefix = "/argocdagent.v1.Enroll/"

	// enrollRequestTimeout bounds the time for the request of a call, which blocks others until it arrives.
	enrollRequestTimeout = 3 * time.Second
)

// enrollService is the hub's end of Enroll.
type enrollService struct {
	api.UnimplementedEnrollServer
	server *Server
}

// Join implements the service.
func (e enrollService) Join(r *api.JoinRequest, stream grpc.ServerStreamingServer[api.JoinResponse]) error {
	_, _, addr := unwrap(stream.Context())
	host := transport.HostOf(addr.String())
	joined, err := e.server.cfg.Enroll.Join(stream.Context(), enroll.JoinRequest{
		Agent: r.GetAgent(), TokenID: r.GetTokenId(), TokenValue: r.GetTokenSecret(), Request: r.GetRequest(),
		Clock: time.UnixMilli(r.GetClockMillis()), Remote: host,
	})
	if err != nil {
		return e.refuse(stream, host, fmt.Errorf("join: %w", err))
	}
	return stream.Send(&api.JoinResponse{Certificate: certificate(joined.Certificate), Mode: joined.Mode})
}

// Renew implements the service.
func (e enrollService) Renew(r *api.RenewRequest, stream grpc.ServerStreamingServer[api.RenewResponse]) error {
	p, ok := peerOf(stream.Context())
	if !ok {
		return status.Error(codes.Unauthenticated, "the connection has no identity")
	}
	request := enroll.RenewRequest{Agent: p.Agent, Fingerprint: p.Fingerprint, Request: r.GetRequest(), KeyStored: r.GetKeyStored(), Clock: time.UnixMilli(r.GetClockMillis())}
	if state, _, _ := unwrap(stream.Context()); state != nil && len(state.PeerCertificates) > 0 {
		request.Certificate = state.PeerCertificates[0]
	}
	issued, err := e.server.cfg.Enroll.Renew(stream.Context(), request)
	if err != nil {
		return e.refuse(stream, p.Agent, fmt.Errorf("renew: %w", err))
	}
	return stream.Send(&api.RenewResponse{Certificate: certificate(issued)})
}

// Trust implements the service.
func (e enrollService) Trust(_ *api.TrustRequest, stream grpc.ServerStreamingServer[api.TrustUpdate]) error {
	_, sock, _ := unwrap(stream.Context())
	if sock == nil || !sock.trusting.CompareAndSwap(false, true) {
		return status.Error(codes.FailedPrecondition, "this connection has a Trust stream already")
	}
	defer sock.trusting.Store(false)
	for {
		trust, changed := e.server.cfg.Enroll.Trust()
		if err := stream.Send(&api.TrustUpdate{Bundle: trust.Bundle, Issuer: trust.Issuer}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func certificate(c enroll.Certificate) *api.Certificate {
	return &api.Certificate{Chain: c.Chain, Bundle: c.Bundle, ClockMillis: c.Clock.UnixMilli()}
}

// refuse sends the caller the reason, or a general message if the reason is not for callers.
func (e enrollService) refuse(stream grpc.ServerStream, caller string, err error) error {
	e.server.counters.Refuse(refusedEnrollment)
	e.server.dedupLog.With(caller, err).Warn("Failed to issue certificate")
	refused, ok := errors.AsType[*enroll.Error](err)
	if !ok {
		refused = &enroll.Error{Message: "the hub cannot issue a certificate: see the log of the principal", Temporary: true, RetryAfter: 5 * time.Second}
	}
	return enrollStatus(stream, refused)
}

func enrollStatus(stream grpc.ServerStream, err *enroll.Error) error {
	if !err.Temporary {
		return status.Error(codes.PermissionDenied, err.Message)
	}
	if err.RetryAfter > 0 {
		stream.SetTrailer(metadata.Pairs(retryTrailer, strconv.FormatInt(err.RetryAfter.Milliseconds(), 10)))
	}
	return status.Error(codes.Unavailable, err.Message)
}

// beginEnroll admits a call of Enroll within the limits. The caller must call done after it. Trust lasts as long as a
// session and does not count.
func (s *Server) beginEnroll(method, caller string) (done func(), err *enroll.Error) {
	if method == api.Enroll_Trust_FullMethodName {
		return func() {}, nil
	}
	done, err = s.limiter.Begin(caller, method == api.Enroll_Join_FullMethodName)
	if err != nil {
		s.counters.Refuse(refusedRate)
	}
	return done, err
}
