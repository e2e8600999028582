package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // agents may ask for it
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// ServerConfig is what a Server needs. Events, Authenticate and Log are
// required.
type ServerConfig struct {
	// TLS has to demand and verify client certificates; nil means plaintext,
	// for a mesh that vouches for peers in a header.
	TLS *tls.Config

	Authenticate Authenticate
	Events       Events
	Log          *slog.Logger
	Trace        *trace.Tracer // nil: nothing is traced

	// WebSocket lets agents in by WebSocket too, on the same port. Without TLS
	// there is none.
	WebSocket bool

	// Admit may turn an agent away for a while; nil: all may come.
	Admit func(Peer) (retryAfter time.Duration, err error)

	// Enroll issues certificates; nil: nobody does here. Without TLS there are none.
	Enroll Enroller

	// Explain makes handshake errors understandable; nil: they stay as they are.
	Explain func(error) error

	Keepalive Keepalive
	Limits    Limits
	Tunnels   TunnelLimits

	// Targets are what agents may connect to here, by name. Any other is refused.
	Targets map[string]Target
}

// Keepalive finds connections that died without a word. Zero means the default.
type Keepalive struct {
	Interval    time.Duration // of silence, until an end asks for a sign of life: agent 30 s, hub 45 s
	Timeout     time.Duration // for that sign: 10 s
	MinInterval time.Duration // hub: an agent that asks more often is sent away: 10 s
}

func (k Keepalive) withDefaults(interval time.Duration) Keepalive {
	k.Interval = or(k.Interval, interval)
	k.Timeout = or(k.Timeout, 10*time.Second)
	k.MinInterval = or(k.MinInterval, 10*time.Second)
	return k
}

const (
	// The agent asks first; the hub asks only agents that do not.
	agentInterval = 30 * time.Second
	hubInterval   = 45 * time.Second

	// idle is how long a connection may be open without a stream on it.
	idle = 15 * time.Second

	// closeGrace is the time that a peer has to take our goodbye.
	closeGrace = time.Second

	// Windows are what a peer may send before somebody reads it: the memory that
	// it can take, and the bytes that can be on their way. With a round trip of
	// 50 ms a stream moves some 15 MB/s and a connection 30; on one with 256
	// tunnels that nobody reads, 256 MiB wait at most. gRPC extends the window of a stream for a
	// message that is larger, and gives a connection's back as data comes, so a
	// stream that is not read holds up no other.
	streamWindow = 1 << 20
	connWindow   = 2 << 20

	// maxHeaders is the size of a call's metadata. Meshes put certificates there.
	maxHeaders = 32 << 10

	// reconnectSpacing is how far apart agents shall come back after a shutdown.
	reconnectSpacing = 2 * time.Millisecond
)

// Server is the hub's end: it accepts agents.
type Server struct {
	api.UnimplementedSyncServer
	cfg      ServerConfig
	counters Counters
	quiet    *dedupLogger
	tracing  atomic.Int64   // deliveries that are traced
	running  sync.WaitGroup // sessions
	carrying sync.WaitGroup // goroutines of tunnels

	pace      *enrollLimiter // of those who want certificates
	enrolling chan struct{}  // certificates that are being issued to agents
	joining   chan struct{}  // and to strangers

	mu       sync.Mutex
	conns    map[uint64]*Conn
	byAgent  map[string][]*Conn
	gone     map[string]time.Time // when an agent's last session ended
	draining bool
}

// NewServer returns a Server that is not running yet.
func NewServer(cfg ServerConfig) *Server {
	if cfg.Explain == nil {
		cfg.Explain = func(err error) error { return err }
	}
	cfg.Limits = cfg.Limits.withDefaults()
	cfg.Keepalive = cfg.Keepalive.withDefaults(hubInterval)
	cfg.Tunnels = cfg.Tunnels.withDefaults()
	streams := cfg.Tunnels.PerAgent + 64
	for _, target := range cfg.Targets {
		streams += target.limit()
	}
	cfg.Limits.Streams = or(cfg.Limits.Streams, uint32(streams))
	return &Server{
		cfg: cfg, quiet: newQuiet(cfg.Log, time.Now), pace: newPace(time.Now), enrolling: make(chan struct{}, enrolling), joining: make(chan struct{}, enrolling),
		conns: map[uint64]*Conn{}, byAgent: map[string][]*Conn{}, gone: map[string]time.Time{},
	}
}

// Counters returns the totals, which go on counting.
func (s *Server) Counters() *Counters { return &s.counters }

// Listen opens a port for Run. Keepalive of the protocol makes that of TCP
// superfluous.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1}
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for agents on %s: %w", address, err)
	}
	return l, nil
}

// Run serves until the context is cancelled, then tells the agents to come back
// and returns nil. It closes the listener.
func (s *Server) Run(ctx context.Context, inner net.Listener) error {
	if s.cfg.TLS != nil && s.cfg.TLS.ClientAuth != tls.RequireAndVerifyClientCert {
		_ = inner.Close()
		return errors.New("the TLS configuration for agents does not require and verify client certificates")
	}
	l := newListener(inner, s.cfg.Limits, s.cfg.Keepalive.Timeout, &s.counters, s.quiet)
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
	case err = <-failed:
		failed <- nil
		err = fmt.Errorf("accepting agents on %s: %w", inner.Addr(), err)
	}
	l.stop()
	s.drain(l)
	server.Stop()
	<-failed
	s.carrying.Wait()
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
		grpc.MaxConcurrentStreams(s.cfg.Limits.Streams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(s.cfg.Limits.HandshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idle, Time: k.Interval, Timeout: k.Timeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: k.MinInterval, PermitWithoutStream: true}),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(readBuffer(s.cfg.TLS)),
		grpc.WaitForHandlers(true),
	}
}

// readBuffer is gRPC's own: TLS has one already.
func readBuffer(cfg *tls.Config) int {
	if cfg != nil {
		return 0
	}
	return 4 << 10
}

// Conns returns the connections that are open now.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Conn, 0, len(s.conns))
	for _, c := range s.conns {
		out = append(out, c)
	}
	return out
}

// Cut closes the connections that match, for example those of a certificate
// that was revoked, and returns how many there were.
func (s *Server) Cut(match func(*Conn) bool, code engine.Code, message string) int {
	n := 0
	for _, c := range s.Conns() {
		if match(c) {
			n++
			c.Close(code, message)
		}
	}
	return n
}

// drain says goodbye to everyone, and waits until they have gone. Each is given
// another time to come back, so that the next process is not overrun.
func (s *Server) drain(l *listener) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	conns := s.Conns()
	spread := time.Duration(len(conns)) * reconnectSpacing
	for _, c := range conns {
		retry := time.Duration(rand.Float64() * float64(spread)) //nolint:gosec // to spread load, not to hide anything
		c.CloseAfter(engine.ShuttingDown, "the principal is shutting down; come back", retry)
	}
	timer := time.AfterFunc((maxExtended+2)*closeGrace, l.closeAll)
	s.running.Wait()
	timer.Stop()
}

// enter adds a connection, unless the end has come.
func (s *Server) enter(c *Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errors.New("the principal is shutting down")
	}
	s.conns[c.ID] = c
	s.byAgent[c.Agent] = append(s.byAgent[c.Agent], c)
	s.running.Add(1)
	return nil
}

func (s *Server) leave(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c.ID)
	s.part(c)
	s.mu.Unlock()
	s.running.Done()
}
