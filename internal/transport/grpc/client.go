package grpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
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
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
	"github.com/argocd-agent/argocd-agent/internal/transport/websocket"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// ClientConfig configures the connections of an agent. Address is required.
type ClientConfig struct {
	Address string // host:port of the principal

	// TLS is called for each attempt, so that new certificates are used. If nil, connections are plaintext, for a
	// service mesh.
	TLS func() (*tls.Config, error)

	// Explain makes TLS errors understandable. It may be nil.
	Explain func(error) error

	// Proxy returns the proxy for a URL, like that of http.Transport; usually http.ProxyFromEnvironment. If nil, there
	// is none. Plaintext connections use none.
	Proxy func(*http.Request) (*url.URL, error)

	// ProxyTLS is for proxies with an https address. If nil, the CAs of the system are trusted.
	ProxyTLS *tls.Config

	// WebSocket opens the connection inside a WebSocket, for networks that do not pass HTTP/2. It needs TLS.
	WebSocket bool

	Compress    bool          // both directions, with gzip
	Metadata    []string      // pairs of key and value for each call
	OpenTimeout time.Duration // from the start of an attempt to an accepted session: 20 s
	Keepalive   Keepalive

	// Dial opens TCP connections. If nil, the default dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (cfg ClientConfig) withDefaults() ClientConfig {
	if cfg.Explain == nil {
		cfg.Explain = func(err error) error { return err }
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{KeepAlive: -1}).DialContext // HTTP/2 has its own
	}
	cfg.OpenTimeout = cmp.Or(cfg.OpenTimeout, 20*time.Second)
	cfg.Keepalive = cfg.Keepalive.withDefaults(agentInterval)
	return cfg
}

// firstByteTimeout returns how long to wait for the first byte of the hub. A deadline that passes ends a WebSocket.
func (cfg *ClientConfig) firstByteTimeout() time.Duration {
	if cfg.WebSocket {
		return cfg.OpenTimeout
	}
	return defaultFirstByteTimeout
}

// Connector opens sessions with one hub.
type Connector struct{ cfg ClientConfig }

// NewConnector returns a Connector.
func NewConnector(cfg ClientConfig) *Connector { return &Connector{cfg.withDefaults()} }

func (c *Connector) Address() string { return c.cfg.Address }

func (c *Connector) Connect(ctx context.Context, counters *transport.Counters, steps *trace.Steps) (transport.Session, error) {
	a := newAttempt(c.cfg, counters)
	a.steps = steps
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stream, err := a.open(ctx, life, end, client)
	if err != nil {
		end()
		_ = client.Close()
		return nil, err
	}
	s := &agentSession{messages: messages{stream}, stream: stream, client: client, attempt: a, end: end, traffic: &transport.Traffic{}}
	if sock := a.socket.Load(); sock != nil {
		sock.sessionTraffic.Store(s.traffic)
	}
	return s, nil
}

// attempt is one connection to the hub.
type attempt struct {
	cfg      ClientConfig
	counters *transport.Counters
	steps    *trace.Steps
	socket   atomic.Pointer[socket]

	presented atomic.Pointer[tls.Certificate] // to the hub

	broken context.Context // its cause is the first error below gRPC
	failed context.CancelCauseFunc
}

func newAttempt(cfg ClientConfig, counters *transport.Counters) *attempt {
	if counters == nil {
		counters = &transport.Counters{}
	}
	a := &attempt{cfg: cfg, counters: counters}
	a.broken, a.failed = context.WithCancelCause(context.Background())
	return a
}

// client returns a gRPC client for exactly one connection. The Dialer connects again.
func (a *attempt) client() (*grpc.ClientConn, error) {
	var cfg *tls.Config
	if a.cfg.TLS != nil {
		var err error
		if cfg, err = a.cfg.TLS(); err != nil {
			return nil, fmt.Errorf("prepare TLS for %s: %w", a.cfg.Address, err)
		}
		cfg = a.recordPresented(cfg)
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
		grpc.WithTransportCredentials(newClientCredentials(cfg, a.failed, a.cfg.firstByteTimeout())),
		grpc.WithContextDialer(a.dial),
		grpc.WithNoProxy(), // dial handles proxies
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 2 * a.cfg.OpenTimeout}), // open times out before
		grpc.WithDefaultCallOptions(call...),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: k.Interval, Timeout: k.Timeout, PermitWithoutStream: true}),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare to dial %s: %w", a.cfg.Address, err)
	}
	return client, nil
}

// recordPresented records the certificate that a handshake presents.
func (a *attempt) recordPresented(cfg *tls.Config) *tls.Config {
	present := cfg.GetClientCertificate
	if present == nil {
		return cfg
	}
	cfg = cfg.Clone()
	cfg.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		cert, err := present(info)
		if err == nil {
			a.presented.Store(cert)
		}
		return cert, err
	}
	return cfg
}

// open opens the stream and waits until the hub has accepted it. The stream lives until end is called. While opening,
// it also ends with ctx.
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
	if err == nil && header == nil { // it ended; RecvMsg returns the reason
		if err = stream.RecvMsg(incoming(func([]byte) {})); err == nil || errors.Is(err, io.EOF) {
			err = errors.New("the principal ended the stream without a reason")
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

// refusal returns the hub's answer, or nil if the error is something else.
func refusal(err error, trailer metadata.MD) *transport.RefusedError {
	st, ok := status.FromError(err)
	if !ok {
		return nil
	}
	refused := &transport.RefusedError{Message: st.Message()}
	if code := trailer.Get(codeTrailer); len(code) > 0 {
		refused.Code = engine.Code(clip(code[0]))
	} else if st.Code() == codes.Unauthenticated || st.Code() == codes.PermissionDenied {
		refused.Code = engine.Forbidden
	} else {
		return nil
	}
	refused.RetryAfter, _ = retryAfter(trailer, wire.MaxRetryMillis)
	return refused
}

// retryAfter returns the pause in a trailer, at most limit milliseconds.
func retryAfter(trailer metadata.MD, limit int64) (time.Duration, bool) {
	values := trailer.Get(retryTrailer)
	if len(values) == 0 {
		return 0, false
	}
	ms, err := strconv.ParseInt(values[0], 10, 64)
	return time.Duration(min(max(ms, 0), limit)) * time.Millisecond, err == nil
}

// dial opens a connection for gRPC.
func (a *attempt) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := a.connectOrUpgrade(ctx, address)
	if err != nil {
		a.failed(err)
		return nil, err
	}
	a.steps.Next("handshake")
	s := &socket{Conn: conn, total: &a.counters.Traffic}
	a.socket.Store(s)
	return s, nil
}

func (a *attempt) connectOrUpgrade(ctx context.Context, address string) (net.Conn, error) {
	if a.cfg.WebSocket && a.cfg.TLS != nil {
		return websocket.Dial(ctx, address, a.connect)
	}
	return a.connect(ctx, address)
}

// explain prefers the error below gRPC to the one of gRPC.
func (a *attempt) explain(err error) error {
	cause := context.Cause(a.broken)
	if cause == nil {
		cause = explainStatus(err)
	}
	return fmt.Errorf("dialling %s: %w", a.cfg.Address, a.cfg.Explain(cause))
}

// agentSession is the agent's end of a session.
type agentSession struct {
	messages
	*attempt
	stream  grpc.ClientStream
	client  *grpc.ClientConn
	end     func()
	traffic *transport.Traffic
}

func (s *agentSession) CloseSend() { _ = s.stream.CloseSend() }

func (s *agentSession) OpenTunnel(ctx context.Context) (tunnel.Stream, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, s.cfg.Metadata...)
	stream, err := api.NewTunnelClient(s.client).Open(ctx, uncompressed, grpc.MaxCallRecvMsgSize(maxFrame))
	if err != nil {
		return nil, explainStatus(err)
	}
	return tunnelStream{stream}, nil
}

func (s *agentSession) Abort() { s.end() }

func (s *agentSession) Close() {
	s.end()
	_ = s.client.Close()
}

func (s *agentSession) Context() context.Context { return s.broken }

func (s *agentSession) RemoteAddr() string {
	if sock := s.socket.Load(); sock != nil {
		return sock.RemoteAddr().String()
	}
	return s.cfg.Address
}

func (s *agentSession) Traffic() *transport.Traffic { return s.traffic }
