package grpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/ratelimit"
)

// Limits bound the resources that clients can use. Zero means the default.
type Limits struct {
	Conns            int           // TCP connections: 20,000, or what the limit of open files allows
	ConnsPerAgent    int           // TCP connections of one agent: 8
	Handshakes       int           // at the same time: 512
	HandshakeTimeout time.Duration // for TLS and the start of HTTP/2: 10 s
}

func (l Limits) withDefaults() Limits {
	if files, known := openFiles(); l.Conns == 0 && known {
		l.Conns = connLimit(files)
	}
	l.Conns = cmp.Or(l.Conns, maxConns)
	l.ConnsPerAgent = cmp.Or(l.ConnsPerAgent, 8)
	l.Handshakes = cmp.Or(l.Handshakes, 512)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, 10*time.Second)
	return l
}

// maxConns is the default number of connections, if there are enough open files.
const maxConns = 20_000

// connLimit returns the number of connections for this number of open files. Some files are left for probes, which keep
// the principal from being restarted, and for the API server.
func connLimit(files int) int {
	return max(1, min(maxConns, files-max(64, files/8)))
}

// Reasons for a refused connection or stream.
const (
	refusedFull         = "connections"      // too many connections
	refusedFiles        = "files"            // too many open files
	refusedHandshakes   = "handshakes"       // too many at the same time
	refusedTLS          = "tls"              // the handshake failed
	refusedAddress      = "address_rate"     // too many failed connections from one address
	refusedAgentRate    = "agent_rate"       // one agent connects too often
	refusedPeer         = "peer_connections" // too many connections of one agent, or without a certificate
	refusedIdentity     = "identity"         // the client is not an agent
	refusedMethod       = "method"           // not in the policy table
	refusedSecondStream = "second_stream"
	refusedEnrollment   = "enrolment"    // no certificate was issued
	refusedRate         = "rate_limit"   // too many requests for certificates
	refusedTunnelToken  = "tunnel_token" // a tunnel on a connection without a session
)

// listener accepts connections within the limits. It closes connections beyond them at once, because clients that wait
// would only add to those that follow.
type listener struct {
	net.Listener
	limits   Limits
	timeout  time.Duration // TCP user timeout
	counters *transport.Counters
	dedupLog *transport.DedupLogger
	ctx      context.Context // ends with Close
	close    context.CancelFunc

	mu          sync.Mutex
	open        map[*socket]struct{}
	handshaking map[*socket]struct{}
	perPeer     map[string][]*socket // connections by agent, oldest first
	stopping    bool

	// addresses limits connections by address that fail, or that no agent's rate permits. Each handshake costs CPU, so
	// connections beyond this rate are closed before it. Agents with valid certificates do not use it up, because many
	// of them may share one address. Each of them gives one back, at most at its own rate: if thousands of agents connect
	// at once, some handshakes take too long, and the others must not be refused for that.
	addresses *ratelimit.Limiter
	agents    *ratelimit.Limiter // connections by agent
}

const (
	addressInterval, addressBurst = 20 * time.Millisecond, 500
	agentConnInterval, agentBurst = time.Second, 30
)

// handshakeEvictAge is the age at which a handshake is ended if there are too many. A normal handshake takes
// milliseconds, so the oldest ones are those of silent clients. If many agents connect at once, all handshakes are
// younger, and the last agents are refused.
const handshakeEvictAge = 2 * time.Second

func newListener(inner net.Listener, limits Limits, userTimeout time.Duration, counters *transport.Counters, dedupLog *transport.DedupLogger) *listener {
	l := &listener{
		Listener: inner, limits: limits, timeout: userTimeout, counters: counters, dedupLog: dedupLog,
		open: map[*socket]struct{}{}, handshaking: map[*socket]struct{}{}, perPeer: map[string][]*socket{},
		addresses: ratelimit.New(addressInterval, addressBurst, time.Now), agents: ratelimit.New(agentConnInterval, agentBurst, time.Now),
	}
	l.ctx, l.close = context.WithCancel(context.Background())
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if outOfFiles(err) && l.waitForFiles(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		setOptions(conn, l.timeout)
		s := &socket{Conn: conn, listener: l, total: &l.counters.Traffic, since: time.Now(), address: addressOf(conn.RemoteAddr())}
		if reason := l.admit(s); reason != "" {
			l.counters.Refuse(reason)
			_ = conn.Close()
			switch reason {
			case refusedAddress:
				l.dedupLog.With(s.address, errors.New("too many connections from this address have failed")).Warn("Connections refused")
			case refusedFull:
				l.dedupLog.With("", fmt.Errorf("%d clients are connected: raise the limit of open files (ulimit -n) if it is below %d, or run another principal",
					l.limits.Conns, maxConns)).Warn("Connections refused")
			}
			continue
		}
		return s, nil
	}
}

// outOfFiles reports whether a connection waits that cannot be accepted without a free file.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// acceptRetryDelay is the pause before the next accept without a free file. Open connections are not affected.
const acceptRetryDelay = 250 * time.Millisecond

// waitForFiles waits for files to be closed. It returns false if the listener is closed.
func (l *listener) waitForFiles(err error) bool {
	l.counters.Refuse(refusedFiles)
	l.dedupLog.With("", fmt.Errorf("%w: raise the limit of open files (ulimit -n), or run another principal", err)).Warn("Failed to accept connections")
	return backoff.Sleep(l.ctx, acceptRetryDelay)
}

func (l *listener) Close() error {
	l.close()
	return l.Listener.Close()
}

func (l *listener) admit(s *socket) (reason string) {
	var old *socket
	defer func() {
		if old != nil { // after mu is unlocked, which Close locks
			l.counters.Refuse(refusedHandshakes)
			_ = old.Close()
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopping:
		return transport.RefusedShuttingDown
	case len(l.open) >= l.limits.Conns:
		return refusedFull
	case l.addresses.Wait(s.address) > 0:
		return refusedAddress
	case len(l.handshaking) >= l.limits.Handshakes:
		oldest := slices.MinFunc(slices.Collect(maps.Keys(l.handshaking)), func(a, b *socket) int { return a.since.Compare(b.since) })
		if s.since.Sub(oldest.since) < handshakeEvictAge {
			return refusedHandshakes
		}
		old = oldest
		delete(l.handshaking, oldest)
	}
	l.open[s] = struct{}{}
	l.handshaking[s] = struct{}{}
	l.counters.Sockets.Add(1)
	return ""
}

// handshakeDone removes a handshake that has ended.
func (l *listener) handshakeDone(s *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.handshaking, s)
}

// countAgent counts a connection of an agent. If there are too many, it returns the oldest other one that has no current
// session, which the caller must close: an agent whose connection broke without notice must be able to return, and
// connections without a session must not displace one with a session.
func (l *listener) countAgent(s *socket, agent string, current *transport.Conn) (displaced *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[s]; !open {
		return nil
	}
	if others := l.perPeer[agent]; len(others) >= l.limits.ConnsPerAgent {
		for _, other := range others {
			if c := other.conn.Load(); c == nil || c != current {
				displaced = other
				break
			}
		}
	}
	l.perPeer[agent] = append(l.perPeer[agent], s)
	s.peer = agent
	return displaced
}

// countAnonymous counts a connection without a certificate. It returns false if there are too many.
func (l *listener) countAnonymous(s *socket) bool {
	const anonymous = "" // no agent has this name
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[s]; !open || len(l.perPeer[anonymous]) >= anonymousConns {
		return false
	}
	l.perPeer[anonymous] = append(l.perPeer[anonymous], s)
	s.anonymous = true
	return true
}

func (l *listener) remove(s *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[s]; !open {
		return
	}
	delete(l.open, s)
	delete(l.handshaking, s)
	l.counters.Sockets.Add(-1)
	if s.peer == "" && !s.anonymous {
		return
	}
	left := slices.DeleteFunc(l.perPeer[s.peer], func(other *socket) bool { return other == s })
	if l.perPeer[s.peer] = left; len(left) == 0 {
		delete(l.perPeer, s.peer)
	}
}

// addressOf returns the key of a client's address: all addresses of an IPv6 subnet can belong to one host.
func addressOf(addr net.Addr) string {
	host := transport.HostOf(addr.String())
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Unmap().Is4() {
		return host
	}
	subnet, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return subnet.String()
}

// stop accepts no more and ends handshakes, so that a slow client cannot delay a shutdown.
func (l *listener) stop() {
	_ = l.Close()
	l.mu.Lock()
	l.stopping = true
	handshaking := slices.Collect(maps.Keys(l.handshaking))
	l.mu.Unlock()
	for _, s := range handshaking {
		_ = s.Close()
	}
}

// socket is a TCP connection that counts its bytes.
type socket struct {
	net.Conn
	listener        *listener // nil on an agent
	total           *transport.Traffic
	sessionTraffic  atomic.Pointer[transport.Traffic]
	since           time.Time
	handshakeDoneAt atomic.Int64                   // in nanoseconds
	synced          atomic.Bool                    // a Sync stream was opened on it
	trusting        atomic.Bool                    // a Trust stream is open on it
	conn            atomic.Pointer[transport.Conn] // of the Sync stream
	address         string                         // of the client, for the rate of its connections
	peer            string                         // agent by which it is counted; guarded by listener.mu
	anonymous       bool                           // guarded by listener.mu
	closeOnce       sync.Once
}

func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.total.WireIn.Add(uint64(n))
	if session := s.sessionTraffic.Load(); session != nil {
		session.WireIn.Add(uint64(n))
	}
	return n, err
}

func (s *socket) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.total.WireOut.Add(uint64(n))
	if session := s.sessionTraffic.Load(); session != nil {
		session.WireOut.Add(uint64(n))
	}
	return n, err
}

func (s *socket) Close() error {
	err := net.ErrClosed
	s.closeOnce.Do(func() {
		if s.listener != nil {
			s.listener.remove(s)
		}
		err = s.Conn.Close()
	})
	return err
}
