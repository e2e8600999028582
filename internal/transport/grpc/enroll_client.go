package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

// JoinWith returns a function for enroll.ClusterJoin, which connects to the hub of a token. The configuration needs no
// Address and no TLS. If now is nil, time.Now.
func JoinWith(cfg ClientConfig, now func() time.Time) func(context.Context, pki.Token, enroll.JoinRequest) (enroll.Joined, error) {
	if now == nil {
		now = time.Now
	}
	return func(ctx context.Context, token pki.Token, r enroll.JoinRequest) (enroll.Joined, error) {
		cfg.Address = token.Address
		cfg.TLS = func() (*tls.Config, error) { return token.Pin.ClientTLS(token.Host(), now), nil }
		return join(ctx, cfg, r)
	}
}

// join requests the first certificate. An *enroll.Error is the hub's answer.
func join(ctx context.Context, cfg ClientConfig, r enroll.JoinRequest) (enroll.Joined, error) {
	a := newAttempt(cfg.withDefaults(), nil)
	client, err := a.client()
	if err != nil {
		return enroll.Joined{}, err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.OpenTimeout)
	defer cancel()
	stream, err := api.NewEnrollClient(client).Join(ctx, &api.JoinRequest{
		Agent: r.Agent, TokenId: r.TokenID, TokenSecret: r.TokenValue, Request: r.Request, ClockMillis: r.Clock.UnixMilli(),
	}, uncompressed)
	response, err := only(stream, err)
	if err != nil {
		if refused := enrollError(err); refused != nil {
			return enroll.Joined{}, refused
		}
		return enroll.Joined{}, a.explain(err)
	}
	return enroll.Joined{Certificate: readCertificate(response.GetCertificate()), Mode: clip(response.GetMode())}, nil
}

// uncompressed is for certificates and tunnels, which compression does not make smaller.
var uncompressed = grpc.UseCompressor(encoding.Identity)

// enrollTimeout bounds one call.
const enrollTimeout = 30 * time.Second

func (s *agentSession) Renew(ctx context.Context, request []byte, clock time.Time) (enroll.Certificate, error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, s.cfg.Metadata...), enrollTimeout)
	defer cancel()
	stream, err := api.NewEnrollClient(s.client).Renew(ctx, &api.RenewRequest{Request: request, ClockMillis: clock.UnixMilli()}, uncompressed)
	response, err := only(stream, err)
	if err != nil {
		if refused := enrollError(err); refused != nil {
			return enroll.Certificate{}, refused
		}
		return enroll.Certificate{}, explainStatus(err)
	}
	return readCertificate(response.GetCertificate()), nil
}

func (s *agentSession) WatchTrust(ctx context.Context, f func(enroll.Trust)) error {
	stream, err := api.NewEnrollClient(s.client).Trust(metadata.AppendToOutgoingContext(ctx, s.cfg.Metadata...), &api.TrustRequest{}, uncompressed)
	for err == nil {
		var update *api.TrustUpdate
		if update, err = stream.Recv(); err == nil {
			f(enroll.Trust{Bundle: update.GetBundle(), Issuer: update.GetIssuer()})
		}
	}
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil //nolint:nilerr // the normal end
	}
	if refused := enrollError(err); refused != nil {
		return refused
	}
	return explainStatus(err)
}

// only returns the single response of a stream.
func only[T any](stream grpc.ServerStreamingClient[T], err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	response, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		err = errors.New("the principal ended the call without a response")
	}
	if err != nil {
		return nil, &responseError{err, stream.Trailer()}
	}
	return response, nil
}

// responseError is an error with the trailer of its call.
type responseError struct {
	error
	trailer metadata.MD
}

func (e *responseError) Unwrap() error { return e.error }

// GRPCStatus returns the status for functions of gRPC.
func (e *responseError) GRPCStatus() *status.Status { return status.Convert(e.error) }

// enrollError returns the hub's answer, or nil if the error is something else.
func enrollError(err error) *enroll.Error {
	var trailer metadata.MD
	if response, ok := errors.AsType[*responseError](err); ok {
		trailer = response.trailer
	}
	st := status.Convert(err)
	refused := &enroll.Error{Message: st.Message()}
	switch st.Code() {
	case codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition:
		return refused
	case codes.Unimplemented:
		refused.Message = "the principal does not issue certificates: its release does not support it, or it is disabled"
		return refused
	case codes.Unavailable:
		if retry, ok := retryAfter(trailer, 600_000); ok {
			refused.Temporary, refused.RetryAfter = true, retry
			return refused
		}
	}
	return nil
}

func readCertificate(c *api.Certificate) enroll.Certificate {
	return enroll.Certificate{Chain: c.GetChain(), Bundle: c.GetBundle(), Clock: time.UnixMilli(c.GetClockMillis())}
}
