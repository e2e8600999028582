package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// ServerConfig configures a Server. Events and Log are required.
type ServerConfig struct {
	Events Events
	Log    *slog.Logger
	Trace  *trace.Tracer // if nil, nothing is traced

	// Admit may refuse an agent for a while. If nil, all are admitted.
	Admit func(Peer) (retryAfter time.Duration, err error)

	HelloTimeout time.Duration // from an accepted session to its Hello: 30 s

	Queue   int // bytes that wait for one agent: 8 MiB
	Tunnels tunnel.Limits

	// Targets are what agents may connect to, by name.
	Targets map[string]tunnel.Target
}

const (
	defaultQueue = 8 << 20

	// defaultHelloTimeout is longer than an agent waits for its own API server before it sends its Hello.
	defaultHelloTimeout = 30 * time.Second

	// maxSessionsPerAgent limits the sessions of one agent. A newer one replaces the others as soon as it has sent its
	// Hello.
	maxSessionsPerAgent = 8

	// reconnectSpacing is the average time between two agents that return after a shutdown. A principal on two cores completes
	// about 200 handshakes per second.
	reconnectSpacing = 5 * time.Millisecond

	// maxRemembered is the number of disconnected agents whose time of disconnection is known.
	maxRemembered = 20_000
)

// Server has the hub's sessions. A transport passes authenticated sessions to Accept.
type Server struct {
	cfg      ServerConfig
	tunnels  tunnel.Config
	counters Counters
	dedupLog *DedupLogger
	tracing  atomic.Int64 // traced deliveries
	sessions sync.WaitGroup
	running  sync.WaitGroup // goroutines of tunnels

	stopping context.Context // ends when new sessions are refused
	stop     context.CancelFunc

	mu             sync.Mutex
	byAgent        map[string][]*Conn
	disconnectedAt map[string]time.Time // of agents without a session
}

// NewServer returns a Server without sessions.
func NewServer(cfg ServerConfig) *Server {
	cfg.Queue = cmp.Or(cfg.Queue, defaultQueue)
	cfg.HelloTimeout = cmp.Or(cfg.HelloTimeout, defaultHelloTimeout)
	cfg.Tunnels = cfg.Tunnels.WithDefaults()
	s := &Server{
		cfg: cfg, dedupLog: NewDedupLogger(cfg.Log, time.Now),
		byAgent: map[string][]*Conn{}, disconnectedAt: map[string]time.Time{},
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.tunnels = tunnel.Config{Limits: cfg.Tunnels, Counters: &s.counters.Tunnels, Refuse: s.counters.Refuse, Log: s.dedupLog.With, Running: &s.running}
	return s
}

// Counters returns the totals.
func (s *Server) Counters() *Counters { return &s.counters }

// Log returns the logger that transports use for errors of peers.
func (s *Server) Log() *DedupLogger { return s.dedupLog }

// TunnelStreams returns the number of tunnels that one agent may have.
func (s *Server) TunnelStreams() int {
	streams := s.cfg.Tunnels.PerAgent
	for _, target := range s.cfg.Targets {
		streams += target.Limit()
	}
	return streams
}

// Accept adds the session of an authenticated agent, or returns a *RefusedError. The transport must then notify the
// agent that it may send, and call Serve. steps may be nil.
func (s *Server) Accept(p Peer, session Session, steps *trace.Steps) (*Conn, error) {
	if s.cfg.Admit != nil {
		if retry, err := s.cfg.Admit(p); err != nil {
			steps.Fail(err.Error())
			return nil, s.refuse(p, refusedOverloaded, &RefusedError{engine.Overloaded, err.Error(), retry})
		}
	}
	c := newConn(session, "hub/"+p.Agent, &s.counters.Traffic, s.cfg.Queue, time.Now())
	c.Agent, c.Fingerprint, c.NotAfter = p.Agent, p.Fingerprint, p.NotAfter
	c.Steps, c.deliveries = steps, newDeliveries(s.cfg.Trace, p.Agent, &s.tracing)
	c.tunnels = tunnel.NewPool(s.tunnels, s.cfg.Targets, tunnel.Peer{
		Agent: p.Agent, Request: c.requestTunnel, Closing: c.ctx.Done(), Welcomed: func() bool { return c.welcomeOrder.Load() > 0 },
	})
	if !s.add(c) {
		c.stepsEnd()
		return nil, s.refuse(p, RefusedShuttingDown, &RefusedError{engine.ShuttingDown, "the principal is shutting down", 0})
	}
	steps.Next("wait for hello")
	return c, nil
}

func (s *Server) refuse(p Peer, reason string, err *RefusedError) error {
	s.counters.Refuse(reason)
	s.dedupLog.With(p.Agent, fmt.Errorf("%s: %s", err.Code, err.Message)).Warn("Agent refused", "retryAfter", err.RetryAfter)
	return err
}

// Serve runs an accepted connection until its session ends, in the caller's goroutine. The session ends at the latest
// when the agent's certificate expires. If this side ended it, Serve aborts the session.
func (s *Server) Serve(c *Conn) {
	defer s.remove(c)
	defer c.stepsEnd()
	if !c.NotAfter.IsZero() {
		expiry := time.AfterFunc(time.Until(c.NotAfter), func() {
			c.Close(engine.Revoked, "the certificate of this connection has expired: connect again with the renewed one")
		})
		defer expiry.Stop()
	}
	s.counters.Connects.Add(1)
	hello := time.AfterFunc(s.cfg.HelloTimeout, func() {
		if !c.greeted.Load() {
			s.counters.Refuse(refusedNoHello)
			c.Close(engine.BadMessage, fmt.Sprintf("no Hello within %v", s.cfg.HelloTimeout))
		}
	})
	defer hello.Stop()
	c.run(s.cfg.Events)
	s.counters.Disconnects.Add(1)
	if bye, ok := c.Cause().(*ByeError); ok && bye.Local {
		c.session.Abort()
	}
}

// Discard removes an accepted connection that cannot be served.
func (s *Server) Discard(c *Conn) {
	c.stepsEnd()
	s.remove(c)
}

// ServeTunnel serves a stream that the agent has opened on the session of a connection. See tunnel.Pool.Serve.
func (s *Server) ServeTunnel(ctx context.Context, c *Conn, stream tunnel.Stream) error {
	return c.tunnels.Serve(ctx, stream)
}

func (c *Conn) requestTunnel(token, target string) error {
	err := c.Send(engine.Open{Token: token, Target: target})
	if errors.Is(err, ErrClosed) {
		return tunnel.ErrNotConnected
	}
	return err
}

// OpenTunnel connects to a target of an agent. The context only limits the opening. The tunnel ends when it is closed,
// when the agent's session ends, or when it is idle for long. The agent connects to the target after OpenTunnel has
// returned, and never if it fails.
//
// A *tunnel.NotConnectedError means that the agent has no session here. A *tunnel.AgentError is the agent's reason to
// refuse.
func (s *Server) OpenTunnel(ctx context.Context, agent, target string) (net.Conn, error) {
	c, since := s.currentConn(agent)
	if c == nil {
		s.counters.Refuse(tunnel.NotConnected)
		return nil, &tunnel.NotConnectedError{Agent: agent, Since: since}
	}
	return c.tunnels.Open(ctx, target)
}

// currentConn returns the connection of an agent that was welcomed last and is not closing. If there is none, it
// returns the time of the disconnection, if known.
func (s *Server) currentConn(agent string) (current *Conn, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since = s.disconnectedAt[agent]
	for _, c := range s.byAgent[agent] {
		order := c.welcomeOrder.Load()
		if order == 0 {
			continue
		}
		select {
		case <-c.ctx.Done():
			since = time.Now()
			continue
		default:
		}
		if current == nil || order > current.welcomeOrder.Load() {
			current = c
		}
	}
	return current, since
}

// Current returns the connection with the current session of an agent, or nil.
func (s *Server) Current(agent string) *Conn {
	c, _ := s.currentConn(agent)
	return c
}

// Sessions returns the connections with the current session of each agent.
func (s *Server) Sessions() (all []*Conn) {
	s.mu.Lock()
	agents := slices.Collect(maps.Keys(s.byAgent))
	s.mu.Unlock()
	for _, agent := range agents {
		if c := s.Current(agent); c != nil {
			all = append(all, c)
		}
	}
	return all
}

// HasTunnels reports whether the hub uses a tunnel of the session, for example for a log or a terminal.
func (c *Conn) HasTunnels() bool { return c.tunnels.InUse() > 0 }

// Conns returns the open connections.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(s.byAgent))...)
}

// Cut closes the connections that match, for example those of a revoked certificate, and returns their number.
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

// StopAccepting refuses new sessions from now on, without a pause before the agent may try again: another principal replica can
// accept it. Open sessions continue.
func (s *Server) StopAccepting() {
	s.mu.Lock() // so that no session is added later
	defer s.mu.Unlock()
	s.stop()
}

// Stopping is closed when new sessions are refused. Transports then accept no more connections.
func (s *Server) Stopping() <-chan struct{} { return s.stopping.Done() }

// Drain refuses new sessions, asks the agents to return and waits until their sessions have ended. Each agent gets a
// different time to return, so that the next process is not overloaded.
func (s *Server) Drain() {
	s.StopAccepting()
	conns := s.Conns()
	spread := time.Duration(len(conns)) * reconnectSpacing
	for _, c := range conns {
		retry := time.Duration(rand.Float64() * float64(spread)) //nolint:gosec // to spread load, not a secret
		c.CloseAfter(engine.ShuttingDown, "the principal is shutting down; come back", retry)
	}
	timer := time.AfterFunc((maxExtensions+2)*closeGrace, func() {
		for _, c := range conns {
			c.abort()
		}
	})
	s.sessions.Wait()
	timer.Stop()
}

// Wait waits for the goroutines of tunnels. Call it after Drain, when the streams of all tunnels have ended.
func (s *Server) Wait() { s.running.Wait() }

// add adds a connection. It returns false during a shutdown. If the agent has too many, it ends the oldest one that has
// no current session.
func (s *Server) add(c *Conn) bool {
	current := s.Current(c.Agent)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Err() != nil {
		return false
	}
	if others := s.byAgent[c.Agent]; len(others) >= maxSessionsPerAgent {
		if i := slices.IndexFunc(others, func(other *Conn) bool { return other != current && other.Cause() == nil }); i >= 0 {
			others[i].fail(fmt.Errorf("agent %s has more than %d sessions", c.Agent, maxSessionsPerAgent))
			others[i].abort()
		}
	}
	s.byAgent[c.Agent] = append(s.byAgent[c.Agent], c)
	s.sessions.Add(1)
	return true
}

func (s *Server) remove(c *Conn) {
	defer s.sessions.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.byAgent[c.Agent], func(other *Conn) bool { return other == c })
	if len(left) == 0 {
		delete(s.byAgent, c.Agent)
	} else {
		s.byAgent[c.Agent] = left
	}
	if c.welcomeOrder.Load() == 0 {
		return
	}
	for agent := range s.disconnectedAt {
		if len(s.disconnectedAt) < maxRemembered {
			break
		}
		delete(s.disconnectedAt, agent) // any one
	}
	s.disconnectedAt[c.Agent] = time.Now()
}
