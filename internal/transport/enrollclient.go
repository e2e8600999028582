package transport

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
)

// Join asks a hub for a certificate, once. The configuration's TLS has to
// recognise the hub by the pin that came with the token (pki.Pin.ClientTLS). An
// *EnrollError is the hub's own answer.
func Join(ctx context.Context, cfg DialerConfig, r JoinRequest) (Joined, error) {
	a := &attempt{Dialer: NewDialer(cfg)}
	client, err := a.client()
	if err != nil {
		return Joined{}, err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.OpenTimeout)
	defer cancel()
	stream, err := api.NewEnrollClient(client).Join(ctx, &api.JoinRequest{
		Agent: r.Agent, TokenId: r.TokenID, TokenSecret: r.TokenValue, Request: r.Request, ClockMillis: r.Clock.UnixMilli(),
	}, plain)
	answer, err := only(stream, err)
	if err != nil {
		if told := enrolError(err); told != nil {
			return Joined{}, told
		}
		return Joined{}, a.explain(err)
	}
	return Joined{Certificate: readCertificate(answer.GetCertificate()), Mode: clip(answer.GetMode())}, nil
}

// plain leaves certificates as they are: they do not get smaller.
var plain = grpc.UseCompressor(encoding.Identity)

// CertificateClient is where an agent with a session renews its certificate.
type CertificateClient struct {
	client   api.EnrollClient
	metadata []string
}

// enrollTimeout bounds one call.
const enrollTimeout = 30 * time.Second

// Renew asks for the next certificate. An *EnrollError is the hub's own answer.
func (o *CertificateClient) Renew(ctx context.Context, request []byte, clock time.Time) (Certificate, error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, o.metadata...), enrollTimeout)
	defer cancel()
	stream, err := o.client.Renew(ctx, &api.RenewRequest{Request: request, ClockMillis: clock.UnixMilli()}, plain)
	answer, err := only(stream, err)
	if err != nil {
		if told := enrolError(err); told != nil {
			return Certificate{}, told
		}
		return Certificate{}, explainStatus(err)
	}
	return readCertificate(answer.GetCertificate()), nil
}

// WatchTrust tells f whom to believe, now and whenever that changes, until the
// context or the session ends. An *EnrollError says that the hub does not.
func (o *CertificateClient) WatchTrust(ctx context.Context, f func(Trust)) error {
	stream, err := o.client.Trust(metadata.AppendToOutgoingContext(ctx, o.metadata...), &api.TrustRequest{}, plain)
	for err == nil {
		var update *api.TrustUpdate
		if update, err = stream.Recv(); err == nil {
			f(Trust{Bundle: update.GetBundle(), Issuer: update.GetIssuer()})
		}
	}
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil //nolint:nilerr // that is how it ends
	}
	if told := enrolError(err); told != nil {
		return told
	}
	return explainStatus(err)
}

// only returns the one answer of a stream.
func only[T any](stream grpc.ServerStreamingClient[T], err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	answer, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		err = errors.New("the principal ended the call without a word")
	}
	if err != nil {
		return nil, &answerError{err, stream.Trailer()}
	}
	return answer, nil
}

// answerError keeps what came with an error.
type answerError struct {
	error
	trailer metadata.MD
}

func (e *answerError) Unwrap() error { return e.error }

// GRPCStatus has gRPC's functions look through it.
func (e *answerError) GRPCStatus() *status.Status { return status.Convert(e.error) }

// enrolError recognises the hub's own answer among all that can go wrong; nil:
// it is something else.
func enrolError(err error) *EnrollError {
	var trailer metadata.MD
	if answered, ok := errors.AsType[*answerError](err); ok {
		trailer = answered.trailer
	}
	st := status.Convert(err)
	told := &EnrollError{Message: st.Message()}
	switch st.Code() {
	case codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition:
		return told
	case codes.Unimplemented:
		told.Message = "the principal does not issue certificates: it is of a version that cannot, or was told not to"
		return told
	case codes.Unavailable:
		if retry := trailer.Get(retryTrailer); len(retry) > 0 {
			if ms, err := strconv.ParseInt(retry[0], 10, 64); err == nil {
				told.Temporary, told.RetryAfter = true, time.Duration(min(max(ms, 0), 600_000))*time.Millisecond
				return told
			}
		}
	}
	return nil
}

func readCertificate(c *api.Certificate) Certificate {
	return Certificate{Chain: c.GetChain(), Bundle: c.GetBundle(), Clock: time.UnixMilli(c.GetClockMillis())}
}

// runCertificateRenewal runs what the agent has to do with its certificate while it has a
// session.
func (d *Dialer) runCertificateRenewal(client *grpc.ClientConn, c *Conn) {
	if d.cfg.RenewCertificate == nil {
		return
	}
	office := &CertificateClient{client: api.NewEnrollClient(client), metadata: d.cfg.Metadata}
	d.carrying.Go(func() {
		if err := d.cfg.RenewCertificate(c.ctx, office); err != nil && c.ctx.Err() == nil {
			d.quiet.with(c.RemoteAddr, err).Warn("certificates are not kept up")
		}
	})
}
