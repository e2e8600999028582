package transport

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
)

// Enroller issues certificates to agents.
type Enroller interface {
	// Join is asked by whoever has a token. An *EnrollError says why not.
	Join(ctx context.Context, r JoinRequest) (Joined, error)
	// Renew is asked by an agent for itself.
	Renew(ctx context.Context, p Peer, request []byte, clock time.Time) (Certificate, error)
	// Trust tells whom to believe, and is closed when that has changed.
	Trust() (Trust, <-chan struct{})
}

// JoinRequest is what a cluster without a certificate has to say.
type JoinRequest struct {
	Agent               string
	TokenID, TokenValue string
	Request             []byte // for a certificate, PEM
	Clock               time.Time
	Remote              string // where it comes from; set by the hub
}

// Joined is the hub's answer.
type Joined struct {
	Certificate
	Mode string
}

// Certificate is one that the hub has issued.
type Certificate struct {
	Chain, Bundle []byte    // PEM
	Clock         time.Time // the hub's
}

// Trust is whom an agent shall believe.
type Trust struct {
	Bundle []byte // PEM
	Issuer []byte // SHA-256 of the public key of the CA that issues now; empty: none does here
}

// EnrollError says why there is no certificate, in words for whoever wants one.
type EnrollError struct {
	Message    string
	Temporary  bool // try again
	RetryAfter time.Duration
}

func (e *EnrollError) Error() string { return e.Message }

const (
	// anonymousLife is how long a connection without a certificate may last, and
	// anonymousConns how many there may be. Joining takes one call.
	anonymousLife  = 20 * time.Second
	anonymousConns = 256

	// enrolling is how many calls are worked on at a time: each costs some requests
	// on the API server, and may hold a message in memory. As many again are for
	// strangers, who can so not keep agents from renewing.
	enrolling = 16

	// enrollRequest is how long a caller may take to say what it wants. Meanwhile
	// it keeps a place from others.
	enrollRequest = 3 * time.Second
)

// enrollService is the hub's end of Enroll.
type enrollService struct {
	api.UnimplementedEnrollServer
	server *Server
}

// Join implements the service.
func (e enrollService) Join(r *api.JoinRequest, stream grpc.ServerStreamingServer[api.JoinResponse]) error {
	_, _, addr := unwrap(stream.Context())
	joined, err := e.server.cfg.Enroll.Join(stream.Context(), JoinRequest{
		Agent: r.GetAgent(), TokenID: r.GetTokenId(), TokenValue: r.GetTokenSecret(), Request: r.GetRequest(),
		Clock: time.UnixMilli(r.GetClockMillis()), Remote: hostOf(addr),
	})
	if err != nil {
		return e.refuse(stream, hostOf(addr), "joining", err)
	}
	return stream.Send(&api.JoinResponse{Certificate: certificate(joined.Certificate), Mode: joined.Mode})
}

// Renew implements the service.
func (e enrollService) Renew(r *api.RenewRequest, stream grpc.ServerStreamingServer[api.RenewResponse]) error {
	p, ok := peerOf(stream.Context())
	if !ok {
		return status.Error(codes.Unauthenticated, "the connection has no identity")
	}
	issued, err := e.server.cfg.Enroll.Renew(stream.Context(), p, r.GetRequest(), time.UnixMilli(r.GetClockMillis()))
	if err != nil {
		return e.refuse(stream, p.Agent, "renewing", err)
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
		now, changed := e.server.cfg.Enroll.Trust()
		if err := stream.Send(&api.TrustUpdate{Bundle: now.Bundle, Issuer: now.Issuer}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func certificate(c Certificate) *api.Certificate {
	return &api.Certificate{Chain: c.Chain, Bundle: c.Bundle, ClockMillis: c.Clock.UnixMilli()}
}

// refuse tells whoever asked what is wrong, if that is their business.
func (e enrollService) refuse(stream grpc.ServerStream, who, doing string, err error) error {
	e.server.counters.refuse(refusedEnrolment)
	e.server.quiet.with(who, fmt.Errorf("%s: %w", doing, err)).Warn("no certificate")
	told, ok := errors.AsType[*EnrollError](err)
	if !ok {
		told = &EnrollError{Message: "the hub cannot issue a certificate now; its log says why", Temporary: true, RetryAfter: 5 * time.Second}
	}
	return enrollStatus(stream, told)
}

func enrollStatus(stream grpc.ServerStream, told *EnrollError) error {
	if !told.Temporary {
		return status.Error(codes.PermissionDenied, told.Message)
	}
	if told.RetryAfter > 0 {
		stream.SetTrailer(metadata.Pairs(retryTrailer, strconv.FormatInt(told.RetryAfter.Milliseconds(), 10)))
	}
	return status.Error(codes.Unavailable, told.Message)
}

// gate lets a call of Enroll in, within limits. It has to be told when the call
// is over. Trust lasts as long as a session and is not counted.
func (s *Server) gate(method, who string) (leave func(), err *EnrollError) {
	if method == api.Enroll_Trust_FullMethodName {
		return func() {}, nil
	}
	if wait := s.pace.take(who); wait > 0 {
		s.counters.refuse(refusedPace)
		return nil, &EnrollError{Message: "too many attempts from here: wait a moment and try again", Temporary: true, RetryAfter: wait}
	}
	places := s.enrolling
	if method == api.Enroll_Join_FullMethodName {
		places = s.joining
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		s.counters.refuse(refusedPace)
		return nil, &EnrollError{Message: "the hub is issuing as many certificates as it can: try again in a moment", Temporary: true, RetryAfter: time.Second}
	}
}
