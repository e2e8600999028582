package grpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // agents may use it
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// ServerConfig configures a Server. Authenticate is required.
type ServerConfig struct {
	// TLS must require and verify client certificates. If nil, connections are plaintext, for a service mesh that
	// authenticates clients and passes their identity in a header.
	TLS *tls.Config

	Authenticate transport.Authenticate
	Trace        *trace.Tracer // if nil, nothing is traced

	// WebSocket also accepts agents inside a WebSocket, on the same port. It needs TLS.
	WebSocket bool

	// Enroll issues certificates. If nil, this principal does not. It needs TLS.
	Enroll enroll.Issuer

	// Explain makes handshake errors understandable. It may be nil.
	Explain func(error) error

	Keepalive Keepalive
	Limits    Limits
}

// Keepalive finds connections that broke without notice. Zero means the default.
type Keepalive struct {
	Interval    time.Duration // without traffic before a side sends a ping: agent 30 s, hub 45 s
	Timeout     time.Duration // for the answer: 10 s
	MinInterval time.Duration // hub: an agent that pings more often is disconnected: 10 s
}

func (k Keepalive) withDefaults(interval time.Duration) Keepalive {
	k.Interval = cmp.Or(k.Interval, interval)
	k.Timeout = cmp.Or(k.Timeout, 10*time.Second)
	k.MinInterval = cmp.Or(k.MinInterval, 10*time.Second)
	return k
}

const (
	// The agent pings first. The hub pings only agents that do not.
	agentInterval = 30 * time.Second
	hubInterval   = 45 * time.Second

	// maxIdle is the time for which a connection may have no stream.
	maxIdle = 15 * time.Second

	// Windows bound what a peer may send before it is read: the memory that it can use, and the bytes in transit. With a
	// round trip of 50 ms, a stream has about 15 MB/s and a connection 30 MB/s. If no stream of 256 tunnels is read,
	// 256 MiB wait at most. gRPC extends the window of a stream for a larger message. It restores the window of the
	// connection as data arrives, so a stream that is not read blocks no other.
	streamWindow = 1 << 20
	connWindow   = 2 << 20

	// maxHeaders is the size of a call's metadata. Service meshes put certificates there.
	maxHeaders = 32 << 10
)

// Server accepts agents and passes their sessions to a transport.Server.
type Server struct {
	api.UnimplementedSyncServer
	cfg      ServerConfig
	hub      *transport.Server
	counters *transport.Counters
	dedupLog *transport.DedupLogger
	limiter  *enroll.Limiter
	running  sync.WaitGroup // goroutines that wait for the request of a call
}

// NewServer returns a Server that does not run yet.
func NewServer(cfg ServerConfig, hub *transport.Server) *Server {
	if cfg.Explain == nil {
		cfg.Explain = func(err error) error { return err }
	}
	cfg.Limits = cfg.Limits.withDefaults()
	cfg.Keepalive = cfg.Keepalive.withDefaults(hubInterval)
	return &Server{cfg: cfg, hub: hub, counters: hub.Counters(), dedupLog: hub.Log(), limiter: enroll.NewLimiter(time.Now)}
}

// Listen opens a port for Run. TCP keepalive is off, because HTTP/2 has its own.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1}
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for agents on %s: %w", address, err)
	}
	return l, nil
}

// Run serves until the context is cancelled, then asks the agents to return and returns nil. It closes the listener, at the
// latest then, and leaves no goroutine behind. When new sessions are refused, it closes the listener and serves open
// sessions. So a connection is refused before a handshake, and the agent can reach another principal replica at once.
func (s *Server) Run(ctx context.Context, inner net.Listener) error {
	if s.cfg.TLS != nil && s.cfg.TLS.ClientAuth != tls.RequireAndVerifyClientCert {
		_ = inner.Close()
		return errors.New("the TLS configuration for agents does not require and verify client certificates")
	}
	l := newListener(inner, s.cfg.Limits, s.cfg.Keepalive.Timeout, s.counters, s.dedupLog)
	server := grpc.NewServer(s.options()...)
	api.RegisterSyncServer(server, s)
	api.RegisterTunnelServer(server, tunnelService{server: s})
	if s.cfg.Enroll != nil && s.cfg.TLS != nil {
		api.RegisterEnrollServer(server, enrollService{server: s})
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()

	var err error
	select {
	case <-ctx.Done():
	case <-s.hub.Stopping():
		l.stop()
		<-ctx.Done()
	case err = <-failed:
		failed <- nil
		err = fmt.Errorf("accepting agents on %s: %w", inner.Addr(), err)
	}
	l.stop()
	s.hub.Drain()
	server.Stop()
	<-failed
	s.running.Wait()
	s.hub.Wait()
	return err
}

func (s *Server) options() []grpc.ServerOption {
	k := s.cfg.Keepalive
	return []grpc.ServerOption{
		grpc.Creds(s.credentials()),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.StreamInterceptor(s.authorizeStream),
		grpc.UnaryInterceptor(s.authorizeUnary),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.Unimplemented, "this method is not served here")
		}),
		grpc.MaxRecvMsgSize(wire.MaxEvent),
		grpc.MaxSendMsgSize(wire.MaxEvent),
		grpc.MaxConcurrentStreams(uint32(s.hub.TunnelStreams() + 64)),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(s.cfg.Limits.HandshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxIdle, Time: k.Interval, Timeout: k.Timeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: k.MinInterval, PermitWithoutStream: true}),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(readBuffer(s.cfg.TLS)),
		grpc.WaitForHandlers(true),
	}
}

// readBuffer returns the size of gRPC's read buffer. TLS has its own.
func readBuffer(cfg *tls.Config) int {
	if cfg != nil {
		return 0
	}
	return 4 << 10
}
