package grpc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// patience is how long a test waits for what has to come; nothing that a test
// measures depends on it.
const patience = 20 * time.Second

// record is one call of transport.Events.
type record struct {
	what    string // connected, received, disconnected
	conn    *transport.Conn
	message engine.Message
	err     error
}

// recorder is transport.Events that a test can read.
type recorder struct {
	t        testing.TB
	calls    chan record
	received func(*transport.Conn, engine.Message) // instead of recording
}

func newRecorder(t testing.TB) *recorder {
	t.Helper()
	return &recorder{t: t, calls: make(chan record, 10_000)}
}

func (r *recorder) Connected(c *transport.Conn) { r.calls <- record{what: "connected", conn: c} }
func (r *recorder) Received(c *transport.Conn, m engine.Message) {
	if r.received != nil {
		r.received(c, m)
		return
	}
	r.calls <- record{what: "received", conn: c, message: m}
}
func (r *recorder) Disconnected(c *transport.Conn, err error) {
	r.calls <- record{what: "disconnected", conn: c, err: err}
}

// next returns the next call, which has to be of this sort.
func (r *recorder) next(what string) record {
	r.t.Helper()
	select {
	case got := <-r.calls:
		if got.what != what {
			r.t.Fatalf("%s: got %s (%v, %v)", what, got.what, got.message, got.err)
		}
		return got
	case <-time.After(patience):
		r.t.Fatalf("%s: nothing came", what)
	}
	return record{}
}

// bye waits for the end, which has to be one that an end wanted. The goodbye
// itself, and whatever came before, is passed over.
func (r *recorder) bye() *transport.ByeError {
	r.t.Helper()
	for {
		select {
		case got := <-r.calls:
			if got.what != "disconnected" {
				continue
			}
			bye, ok := got.err.(*transport.ByeError)
			if !ok {
				r.t.Fatalf("it ended by %v", got.err)
			}
			return bye
		case <-time.After(patience):
			r.t.Fatal("it does not end")
		}
	}
}

// eventually waits for a condition that has no channel.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// journal is a log that a test can read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// byCommonName authenticates the agents of these tests.
func byCommonName(c transport.Credentials) (transport.Peer, error) {
	if c.TLS == nil || len(c.TLS.VerifiedChains) == 0 {
		return transport.Peer{}, errors.New("no verified certificate")
	}
	leaf := c.TLS.PeerCertificates[0]
	name := leaf.Subject.CommonName
	if !strings.HasPrefix(name, "agent-") {
		return transport.Peer{}, fmt.Errorf("subject %q is not an agent's", name)
	}
	return transport.Peer{Agent: name, Fingerprint: fmt.Sprintf("%X", sha256.Sum256(leaf.Raw)), NotAfter: leaf.NotAfter}, nil
}

// hubConfig configures both parts of a hub.
type hubConfig struct {
	TLS          *tls.Config
	Authenticate transport.Authenticate
	WebSocket    bool
	Enroll       enroll.Issuer
	Explain      func(error) error
	Keepalive    Keepalive
	Limits       Limits

	Events  transport.Events
	Log     *slog.Logger
	Trace   *trace.Tracer
	Admit   func(transport.Peer) (time.Duration, error)
	Queue   int
	Tunnels tunnel.Limits
	Targets map[string]tunnel.Target

	HelloTimeout time.Duration // if zero, a day, because the agents of most tests send no Hello
}

func newHub(cfg hubConfig) (*transport.Server, *Server) {
	sessions := transport.NewServer(transport.ServerConfig{Events: cfg.Events, Log: cfg.Log, Trace: cfg.Trace, Admit: cfg.Admit,
		Queue: cfg.Queue, Tunnels: cfg.Tunnels, Targets: cfg.Targets, HelloTimeout: cmp.Or(cfg.HelloTimeout, 24*time.Hour)})
	return sessions, NewServer(ServerConfig{TLS: cfg.TLS, Authenticate: cfg.Authenticate, Trace: cfg.Trace, WebSocket: cfg.WebSocket,
		Enroll: cfg.Enroll, Explain: cfg.Explain, Keepalive: cfg.Keepalive, Limits: cfg.Limits}, sessions)
}

// spokeConfig configures both parts of an agent.
type spokeConfig struct {
	Address     string
	TLS         func() (*tls.Config, error)
	Explain     func(error) error
	Proxy       func(*http.Request) (*url.URL, error)
	ProxyTLS    *tls.Config
	WebSocket   bool
	Compress    bool
	Metadata    []string
	OpenTimeout time.Duration
	Keepalive   Keepalive
	Dial        func(ctx context.Context, network, address string) (net.Conn, error)

	Name             string
	Events           transport.Events
	Log              *slog.Logger
	Trace            *trace.Tracer
	Others           []transport.Connector // further addresses
	Failed           func(string, error, time.Duration)
	Queue            int
	Tunnels          map[string]tunnel.Handler
	TunnelLimits     tunnel.Limits
	RenewCertificate func(context.Context, enroll.Client) error
	Random           func() float64
	Now              func() time.Time
	Wait             func(context.Context, time.Duration) error
}

func (cfg spokeConfig) client() ClientConfig {
	return ClientConfig{Address: cfg.Address, TLS: cfg.TLS, Explain: cfg.Explain, Proxy: cfg.Proxy, ProxyTLS: cfg.ProxyTLS, WebSocket: cfg.WebSocket,
		Compress: cfg.Compress, Metadata: cfg.Metadata, OpenTimeout: cfg.OpenTimeout, Keepalive: cfg.Keepalive, Dial: cfg.Dial}
}

func newSpoke(cfg spokeConfig) *transport.Dialer {
	return transport.NewDialer(transport.DialerConfig{Connectors: append([]transport.Connector{NewConnector(cfg.client())}, cfg.Others...), Name: cfg.Name, Events: cfg.Events, Log: cfg.Log, Trace: cfg.Trace,
		Failed: cfg.Failed, Queue: cfg.Queue, Tunnels: cfg.Tunnels, TunnelLimits: cfg.TunnelLimits, RenewCertificate: cfg.RenewCertificate,
		Random: cfg.Random, Now: cfg.Now, Wait: cfg.Wait})
}

// hub is a running Server.
type hub struct {
	*transport.Server
	*recorder
	grpc    *Server
	log     *journal
	address string
	stop    func()
}

// startHub runs a Server on a free port of the loopback device, or on the one
// given, until the test ends.
func startHub(t testing.TB, cfg hubConfig, address ...string) *hub {
	t.Helper()
	at := "127.0.0.1:0"
	if len(address) > 0 {
		at = address[0]
	}
	l, err := Listen(t.Context(), at)
	must(t, err)
	return startHubOn(t, cfg, l)
}

func startHubOn(t testing.TB, cfg hubConfig, l net.Listener) *hub {
	t.Helper()
	h := &hub{recorder: newRecorder(t), log: &journal{}, address: l.Addr().String()}
	if cfg.Authenticate == nil {
		cfg.Authenticate = byCommonName
	}
	if cfg.Events == nil {
		cfg.Events = h.recorder
	}
	cfg.Log = h.log.logger()
	h.Server, h.grpc = newHub(cfg)
	h.stop = running(t, func(ctx context.Context) error { return h.grpc.Run(ctx, l) })
	return h
}

// spoke is a running Dialer.
type spoke struct {
	*transport.Dialer
	*recorder
	log      *journal
	failures chan error // attempts that failed
	stop     func()
}

// failure waits for an attempt that fails.
func (s *spoke) failure() error {
	s.t.Helper()
	select {
	case err := <-s.failures:
		return err
	case <-time.After(patience):
		s.t.Fatal("no attempt fails")
	}
	return nil
}

// dial runs a Dialer until the test ends. It dials again at once.
func dial(t testing.TB, cfg spokeConfig) *spoke {
	t.Helper()
	s := &spoke{recorder: newRecorder(t), log: &journal{}, failures: make(chan error, 1000)}
	cfg.Failed = func(_ string, err error, _ time.Duration) {
		select {
		case s.failures <- err:
		default:
		}
	}
	if cfg.Events == nil {
		cfg.Events = s.recorder
	}
	if cfg.Random == nil {
		cfg.Random = func() float64 { return 0 }
	}
	cfg.Log = s.log.logger()
	s.Dialer = newSpoke(cfg)
	s.stop = running(t, s.Run)
	return s
}

// running runs something until stop is called or the test ends.
func running(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// leakCheck fails the test if goroutines of ours, or of gRPC, outlive it. Call
// it first, so that it looks last.
func leakCheck(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		var left string
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
			if left = ours(); left == "" {
				return
			}
		}
		t.Errorf("goroutines are left:\n%s", left)
	})
}

func ours() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var left []string
	for i, g := range strings.Split(string(buf), "\n\n") {
		if i > 0 && (strings.Contains(g, "google.golang.org/grpc") || strings.Contains(g, "internal/transport")) && !strings.Contains(g, "testing.tRunner(") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}

// roots is a message with a number in it.
func roots(n int) engine.Roots {
	return engine.Roots{Items: []engine.Root{{Scope: "application", Count: uint64(n)}}}
}

func numberOf(t testing.TB, m engine.Message) int {
	t.Helper()
	r, ok := m.(engine.Roots)
	if !ok || len(r.Items) != 1 {
		t.Fatalf("got %T instead of Roots", m)
	}
	return int(r.Items[0].Count)
}
