package grpc

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
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

// JoinWith returns a function for enroll.ClusterJoin, which connects to the hub of a token. It tries the next address if one
// does not answer, or only temporarily refuses. The configuration needs no Address and no TLS. If now is nil, time.Now.
func JoinWith(cfg ClientConfig, now func() time.Time) func(context.Context, pki.Token, enroll.JoinRequest) (enroll.Joined, error) {
	if now == nil {
		now = time.Now
	}
	return func(ctx context.Context, token pki.Token, r enroll.JoinRequest) (enroll.Joined, error) {
		var failed error
		hosts, port := token.Servers()
		for _, host := range hosts {
			cfg.Address = net.JoinHostPort(host, port)
			cfg.TLS = func() (*tls.Config, error) { return token.Pin.ClientTLS(host, now), nil }
			joined, err := join(ctx, cfg, r)
			if err == nil {
				return joined, nil
			}
			if failed == nil {
				failed = err
			} else {
				failed = fmt.Errorf("%w; %s: %w", failed, cfg.Address, err)
			}
			if refused, ok := errors.AsType[*enroll.Error](err); ok && !refused.Temporary {
				break
			}
		}
		return enroll.Joined{}, failed
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
	var trailer metadata.MD
	stream, err := api.NewEnrollClient(client).Join(ctx, &api.JoinRequest{
		Agent: r.Agent, TokenId: r.TokenID, TokenSecret: r.TokenValue, Request: r.Request, ClockMillis: r.Clock.UnixMilli(),
	}, uncompressed, grpc.Trailer(&trailer))
	response, err := only(stream, err)
	if err != nil {
		return enroll.Joined{}, enrollError(err, trailer, a.explain)
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
	var trailer metadata.MD
	stream, err := api.NewEnrollClient(s.client).Renew(ctx, &api.RenewRequest{Request: request, ClockMillis: clock.UnixMilli(), KeyStored: true}, uncompressed, grpc.Trailer(&trailer))
	response, err := only(stream, err)
	if err != nil {
		return enroll.Certificate{}, enrollError(err, trailer, explainStatus)
	}
	return readCertificate(response.GetCertificate()), nil
}

func (s *agentSession) Fingerprint() string {
	if cert := s.presented.Load(); cert != nil && len(cert.Certificate) > 0 {
		return fmt.Sprintf("%X", sha256.Sum256(cert.Certificate[0]))
	}
	return ""
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
	return enrollError(err, nil, explainStatus)
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
	return response, err
}

// enrollError returns the hub's answer as an *enroll.Error, or what another error means.
func enrollError(err error, trailer metadata.MD, explain func(error) error) error {
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
	return explain(err)
}

func readCertificate(c *api.Certificate) enroll.Certificate {
	return enroll.Certificate{Chain: c.GetChain(), Bundle: c.GetBundle(), Clock: time.UnixMilli(c.GetClockMillis())}
}
