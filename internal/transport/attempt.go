package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// attempt is one connection to the hub, from dialling to its end.
type attempt struct {
	*Dialer
	steps  *trace.Steps
	mu     sync.Mutex
	socket *socket
	conn   *Conn // once the hub has accepted it
	cause  error // the first thing that went wrong below gRPC
}

// attempt dials once and, if the hub accepts, lives as long as the session. It
// returns the connection, nil if there was none, and why it ended.
func (d *Dialer) attempt(ctx context.Context) (*Conn, error) {
	a := &attempt{Dialer: d, steps: d.cfg.Trace.Steps(ctx, trace.KindClient, "connect to the principal", "dial", d.cfg.Now())}
	a.steps.Root().SetString(trace.Server, d.cfg.Address)
	client, err := a.client()
	if err != nil {
		a.steps.Fail(err.Error())
		return nil, err
	}
	defer func() { _ = client.Close() }()

	// The session outlives ctx for as long as a goodbye takes.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stream, err := a.open(ctx, life, end, client)
	if err != nil {
		a.steps.Fail(err.Error())
		return nil, err
	}
	c := newConn(agentSource(d.cfg.Name), &d.counters.Traffic, d.cfg.Queue, closeGrace, end)
	c.Agent, c.RemoteAddr, c.Since, c.Steps = d.cfg.Name, d.cfg.Address, d.cfg.Now(), a.steps
	if s := a.sock(); s != nil {
		c.RemoteAddr = s.RemoteAddr().String()
		s.own.Store(c.Traffic)
	}
	c.deliveries = newDeliveries(d.cfg.Trace, "", &d.tracing)
	p := newPorter(d, client, c)
	c.asked, c.offer = p.handleRequest, offerOf(d.cfg.Tunnels)
	d.setTunnelClient(p)
	defer d.setTunnelClient(nil)
	a.opened(c)
	stop := context.AfterFunc(ctx, func() { c.Close(engine.ShuttingDown, "the agent is shutting down") })
	defer stop()
	d.counters.Connects.Add(1)
	d.runCertificateRenewal(client, c)
	c.run(stream, d.cfg.Events, func() { _ = stream.CloseSend() })
	d.counters.Disconnects.Add(1)
	c.stepsEnd()
	return c, c.Cause()
}

// client makes a gRPC client for exactly one connection: it is this package
// that dials again, at its own pace.
func (a *attempt) client() (*grpc.ClientConn, error) {
	creds := newClientCredentials(nil, a.failed, a.cfg.verdict())
	if a.cfg.TLS != nil {
		cfg, err := a.cfg.TLS()
		if err != nil {
			return nil, fmt.Errorf("preparing TLS for %s: %w", a.cfg.Address, err)
		}
		creds = newClientCredentials(cfg, a.failed, a.cfg.verdict())
	}
	call := []grpc.CallOption{
		grpc.ForceCodecV2(newCodec()),
		grpc.MaxCallRecvMsgSize(wire.MaxEvent),
		grpc.MaxCallSendMsgSize(wire.MaxEvent),
	}
	if a.cfg.Compress {
		call = append(call, grpc.UseCompressor(gzip.Name))
	}
	k := a.cfg.Keepalive
	client, err := grpc.NewClient("passthrough:///"+a.cfg.Address,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(a.dial),
		grpc.WithNoProxy(), // dial does that
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 2 * a.cfg.OpenTimeout}), // open is earlier
		grpc.WithDefaultCallOptions(call...),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: k.Interval, Timeout: k.Timeout, PermitWithoutStream: true}),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
	)
	if err != nil {
		return nil, fmt.Errorf("preparing to dial %s: %w", a.cfg.Address, err)
	}
	return client, nil
}

// open opens the stream and waits until the hub has accepted it. The stream
// lives until end is called, or until ctx is done, whichever comes first while
// opening.
func (a *attempt) open(ctx, life context.Context, end func(), client *grpc.ClientConn) (grpc.BidiStreamingClient[api.CloudEvent, api.CloudEvent], error) {
	cancelled := context.AfterFunc(ctx, end)
	defer cancelled()
	timer := time.AfterFunc(a.cfg.OpenTimeout, func() {
		a.failed(fmt.Errorf("no answer within %s", a.cfg.OpenTimeout))
		end()
	})
	defer timer.Stop()

	life = metadata.AppendToOutgoingContext(life, a.cfg.Metadata...)
	if span := a.steps.Root().TraceParent(); span != "" {
		life = metadata.AppendToOutgoingContext(life, trace.Header, span)
	}
	stream, err := api.NewSyncClient(client).Sync(life)
	if err != nil {
		return nil, a.explain(err)
	}
	a.steps.Next("wait to be accepted")
	header, err := stream.Header()
	if err == nil && header == nil { // it ended; RecvMsg says why
		if err = stream.RecvMsg(&incoming{}); err == nil || errors.Is(err, io.EOF) {
			err = errors.New("the principal ended the stream without a word")
		}
	}
	if err != nil {
		if refused := refusal(err, stream.Trailer()); refused != nil {
			return nil, refused
		}
		return nil, a.explain(err)
	}
	return stream, nil
}

// refusal recognises the hub's own answer among all that can go wrong.
func refusal(err error, trailer metadata.MD) *RefusedError {
	st, ok := status.FromError(err)
	if !ok {
		return nil
	}
	refused := &RefusedError{Message: st.Message()}
	if word := trailer.Get(codeTrailer); len(word) > 0 {
		refused.Code = engine.Code(clip(word[0]))
	} else if st.Code() == codes.Unauthenticated || st.Code() == codes.PermissionDenied {
		refused.Code = engine.Forbidden
	} else {
		return nil
	}
	if retry := trailer.Get(retryTrailer); len(retry) > 0 {
		if ms, err := strconv.ParseInt(retry[0], 10, 64); err == nil {
			refused.RetryAfter = time.Duration(min(max(ms, 0), wire.MaxRetryMillis)) * time.Millisecond
		}
	}
	return refused
}

// dial connects, by way of a proxy where there is one.
func (a *attempt) dial(ctx context.Context, address string) (net.Conn, error) {
	connect := a.connect
	if a.cfg.WebSocket && a.cfg.TLS != nil {
		connect = a.openWebSocket
	}
	conn, err := connect(ctx, address)
	if err != nil {
		a.failed(err)
		return nil, err
	}
	a.steps.Next("handshake")
	s := &socket{Conn: conn, total: &a.counters.Traffic}
	a.mu.Lock()
	a.socket = s
	a.mu.Unlock()
	return s, nil
}

func (a *attempt) sock() *socket {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.socket
}

// opened has a broken connection end the session.
func (a *attempt) opened(c *Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn = c
	if a.cause != nil {
		c.failSoon(a.cause)
	}
}

func (a *attempt) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause == nil {
		a.cause = err
	}
	if a.conn != nil {
		a.conn.failSoon(fmt.Errorf("the connection to %s broke: %w", a.conn.RemoteAddr, err))
	}
}

// explain prefers what went wrong below gRPC to gRPC's words for it.
func (a *attempt) explain(err error) error {
	a.mu.Lock()
	cause := a.cause
	a.mu.Unlock()
	if cause == nil {
		cause = explainStatus(err)
	}
	return fmt.Errorf("dialling %s: %w", a.cfg.Address, a.cfg.Explain(cause))
}
