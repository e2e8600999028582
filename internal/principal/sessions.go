package principal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/audit/command"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/search"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
	"github.com/argocd-agent/argocd-agent/internal/util/sharedread"
)

// sessionsConfig is what sessions need.
type sessionsConfig struct {
	conns     *connections
	registry  *fleet.Registry
	replicas  *fleet.Replicas
	revisions *sharedread.Reader[uint64] // current resourceVersion of the hub
	storeUID  string
	require   bool                                          // refuse agents without Agent or mode
	refusal   func(agent string, hello engine.Hello) string // why an agent is not accepted; empty if it is
	revoked   func(fingerprint string) bool
	post      func(context.Context, <-chan struct{}, reconcile.Input) error // until the channel is closed, if it is not nil
	log       *slog.Logger
	commands  *command.Auditor
	events    eventWriter
	upgraded  func(agent string, epoch engine.Epoch, m engine.UpgradeState) // what an agent reported
	closed    func(agent string, epoch engine.Epoch)                        // the connection of a session has ended

	deliveries *search.Deliveries // may be nil
}

// eventWriter gets the Events of agents' Applications.
type eventWriter interface {
	Received(agent string, session uint64, m engine.ApplicationEvents)
	Closed(agent string, session uint64)
}

// sessions connects the connections of agents with the reconciler. It implements transport.Events.
type sessions struct {
	sessionsConfig
	ctx    context.Context // ends with the principal
	hellos chan struct{}   // limits the Hellos in progress

	mu         sync.Mutex
	endReasons map[string]string // agent → why its last connection ended

	lastOlder       logonce.Last[string] // incarnation of the last process that was refused as older, by agent
	lastUnavailable logonce.One          // last failed request
}

func newSessions(ctx context.Context, cfg sessionsConfig) *sessions {
	s := &sessions{sessionsConfig: cfg, ctx: ctx, hellos: make(chan struct{}, maxConcurrentHellos), endReasons: map[string]string{}}
	cfg.registry.OnChange(s.agentChanged)
	return s
}

// maxConcurrentHellos limits the Hellos for which requests to the API server are in progress. After a restart all agents
// connect at once, and the API server refuses requests if there are too many. The other Hellos wait: their connections
// exist, and it would cost more to refuse them and connect again.
const maxConcurrentHellos = 64

const (
	helloTimeout    = 15 * time.Second
	suspendedRetry  = 10 * time.Second // for an agent that is denied
	supersededRetry = 10 * time.Second // for a session that is older than another one

	leastUnavailable, mostUnavailable = 5 * time.Second, 20 * time.Second // after a failed request to the API server
)

// agentChanged closes the connections of an agent that is denied, and its sessions that are older than one with another
// principal replica. Otherwise both replicas would write until the connection times out.
func (s *sessions) agentChanged(agent string) {
	denied := s.registry.DenyReason(agent)
	for _, c := range s.conns.of(agent) {
		if denied != "" {
			c.CloseAfter(engine.Revoked, denied, suspendedRetry)
		} else if c.hello != nil {
			s.superseded(c.Conn, c.hello.Epoch)
		}
	}
}

// superseded closes a connection and returns true if another principal replica holds a newer session of its agent.
func (s *sessions) superseded(c *transport.Conn, epoch engine.Epoch) bool {
	other := s.replicas.NewerSession(c.Agent, epoch)
	if other == "" {
		return false
	}
	s.refuseOlder(c, epoch, "a newer session of this agent is connected to principal "+other)
	return true
}

// refuseOlder closes a connection because of a newer session of its agent. It is logged once for each process of the agent: two
// that compete are a fault of the installation. One that is closing, for example because the agent moves, is not.
func (s *sessions) refuseOlder(c *transport.Conn, epoch engine.Epoch, reason string) {
	if c.Cause() == nil && s.lastOlder.Changed(c.Agent, fmt.Sprint(epoch.Incarnation)) {
		s.log.Warn("Older session of agent refused", "agent", c.Agent, "incarnation", epoch.Incarnation, "reason", reason)
	}
	c.CloseAfter(engine.Superseded, reason, supersededRetry)
}

// Connected implements transport.Events. The agent sends first.
func (s *sessions) Connected(c *transport.Conn) {
	s.conns.add(c)
	if s.revoked(c.Fingerprint) { // after the handshake
		c.Close(engine.Revoked, "the certificate is revoked")
	}
}

// Received implements transport.Events.
func (s *sessions) Received(c *transport.Conn, m engine.Message) {
	if ack, ok := m.(engine.Ack); ok {
		s.commands.Answers(c.Agent, c.ID, ack)
		s.deliveries.Acknowledged(c.Agent, ack, time.Now())
	}
	hello, ok := m.(engine.Hello)
	events, isEvents := m.(engine.ApplicationEvents)
	upgrade, isUpgrade := m.(engine.UpgradeState)
	switch {
	case !ok && !s.conns.hasHello(c):
		c.Close(engine.BadMessage, fmt.Sprintf("a %T before the Hello", m))
	case isEvents:
		s.events.Received(c.Agent, c.ID, events)
	case isUpgrade:
		if epoch, ok := s.conns.epoch(c); ok {
			s.upgraded(c.Agent, epoch, upgrade)
		}
	case !ok:
		s.forward(c, engine.Received{Session: c.ID, Message: m})
	case s.conns.recordHello(c, hello):
		if c.Steps != nil {
			c.Steps.Root().SetString(trace.Epoch, fmt.Sprintf("%d/%d", hello.Epoch.Incarnation, hello.Epoch.Attempt))
			c.Steps.Next("hello")
		}
		s.handleHello(c, hello)
	default: // each costs a request to the API server
		c.Close(engine.BadMessage, "second Hello on one connection")
	}
}

// forward posts an input to the reconciler. It blocks while the reconciler is busy, and so does the peer.
func (s *sessions) forward(c *transport.Conn, in engine.Input) {
	_ = s.post(s.ctx, c.Done(), reconcile.FromPeer{Agent: c.Agent, Input: in}) // fails if the connection or ctx ended
}

// Disconnected implements transport.Events.
func (s *sessions) Disconnected(c *transport.Conn, err error) {
	if epoch, ok := s.conns.epoch(c); ok {
		s.closed(c.Agent, epoch)
	}
	s.conns.remove(c)
	s.setEndReason(c.Agent, err)
	s.commands.Closed(c.Agent, c.ID)
	s.events.Closed(c.Agent, c.ID)
	_ = s.post(s.ctx, nil, reconcile.FromPeer{Agent: c.Agent, Input: engine.Disconnected{Session: c.ID}})
}

// setEndReason records why a connection of a registered agent ended. The number of other agents is not bounded.
func (s *sessions) setEndReason(agent string, err error) {
	if _, known := s.registry.Get(agent); !known {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endReasons[agent] = "the agent closed the connection"; err != nil {
		s.endReasons[agent] = err.Error()
	}
}

// takeEndReason returns why an agent's last connection ended, once.
func (s *sessions) takeEndReason(agent string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	reason := s.endReasons[agent]
	delete(s.endReasons, agent)
	return reason
}

// handleHello posts a Hello after the agent is registered and the revision of the hub's store is known.
func (s *sessions) handleHello(c *transport.Conn, hello engine.Hello) {
	store, ok := s.prepare(c, hello)
	if !ok {
		return
	}
	var skew engine.Time
	if known, ok := s.conns.hello(c.Agent, hello.Epoch); ok && known.SkewSeconds != nil {
		skew = engine.Time(*known.SkewSeconds) * engine.Second
	}
	_ = s.post(s.ctx, c.Done(), reconcile.FromPeer{Agent: c.Agent, ClockSkew: skew, // fails if the connection or ctx ended
		Input: engine.Connected{Session: c.ID, Store: store}})
	s.forward(c, engine.Received{Session: c.ID, Message: hello})
}

// prepare registers an agent if necessary and returns the hub's store, or closes the connection.
func (s *sessions) prepare(c *transport.Conn, hello engine.Hello) (store engine.Store, ok bool) {
	mark, ok := s.admit(c, hello)
	if !ok {
		return store, false
	}
	ctx, cancel := s.whileOpen(c)
	defer cancel()
	revision, err := s.revisions.Read(ctx) // one read for all agents that wait. It and the one before it end within helloTimeout
	if err != nil {
		s.unavailable(c, "read the current resourceVersion", err)
		return store, false
	}
	s.lastUnavailable.Reset()
	if s.conns.hasNewer(c, hello) { // its mark may be newer, too
		s.refuseOlder(c, hello.Epoch, "a newer session of this agent is connected")
		return store, false
	}
	return engine.Store{UID: s.storeUID, Revision: revision, Mark: mark}, true
}

// admit registers an agent if necessary and returns its history mark, or closes the connection. It waits for its turn.
func (s *sessions) admit(c *transport.Conn, hello engine.Hello) (mark engine.HistoryMark, ok bool) {
	select {
	case s.hellos <- struct{}{}:
		defer func() { <-s.hellos }()
	case <-c.Done():
		return mark, false
	case <-s.ctx.Done():
		return mark, false
	}
	open, closed := s.whileOpen(c)
	defer closed()
	ctx, cancel := context.WithTimeout(open, helloTimeout)
	defer cancel()
	if reason := s.registry.DenyReason(c.Agent); reason != "" {
		c.CloseAfter(engine.Revoked, reason, suspendedRetry)
		return mark, false
	}
	if reason := s.refusal(c.Agent, hello); reason != "" {
		c.CloseAfter(engine.NotAllowed, reason, 30*time.Second)
		return mark, false
	}
	if s.registry.NeedsFirstConnection(c.Agent, hello) && !s.register(ctx, c, hello) || s.superseded(c, hello.Epoch) {
		return mark, false
	}
	mark, err := s.registry.HistoryMark(ctx, c.Agent, hello.Known.Mark)
	if err != nil {
		s.unavailable(c, "read the Agent", err)
		return mark, false
	}
	return mark, true
}

// whileOpen returns a context that ends with the connection or with the principal. The caller must cancel it.
func (s *sessions) whileOpen(c *transport.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.Context())
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// unavailable closes a connection because a request to the API server failed. If the connection or the principal ends, that
// is the reason, and it does nothing. All agents that wait can fail at the same time, so they return at different times.
func (s *sessions) unavailable(c *transport.Conn, what string, err error) {
	if c.Context().Err() != nil || s.ctx.Err() != nil {
		return
	}
	level := slog.LevelWarn
	if !s.lastUnavailable.Changed(what + ": " + err.Error()) { // all agents that waited for one request
		level = slog.LevelDebug
	}
	s.log.Log(s.ctx, level, "Failed to prepare session", "agent", c.Agent, "request", what, "error", err)
	retry := leastUnavailable + time.Duration(rand.Float64()*float64(mostUnavailable-leastUnavailable)) //nolint:gosec // to spread load, not a secret
	c.CloseAfter(engine.Unavailable, "the hub failed to "+what+": "+err.Error(), retry)
}

// register records the first connection of an agent, or closes it.
func (s *sessions) register(ctx context.Context, c *transport.Conn, hello engine.Hello) bool {
	if reason := s.registry.InvalidReason(c.Agent); reason != "" {
		c.CloseAfter(engine.NotAllowed, "the Agent on the hub is invalid: "+reason, 30*time.Second)
		return false
	}
	err := s.registry.RecordFirstConnection(ctx, c.Agent, c.Fingerprint, hello, s.require)
	switch {
	case err == nil:
		return true
	case errors.Is(err, fleet.ErrRevoked):
		c.Close(engine.Revoked, err.Error())
	case errors.Is(err, fleet.ErrUnregistered), errors.Is(err, fleet.ErrNoMode), errors.Is(err, fleet.ErrNoStandby), errors.Is(err, fleet.ErrDeleted):
		c.CloseAfter(engine.NotAllowed, err.Error(), 60*time.Second)
	default:
		s.unavailable(c, "register this agent", err)
	}
	return false
}

// deliver sends a message or closes a session, as the reconciler decided. It does not block.
func (s *sessions) deliver(e reconcile.ToPeer) {
	switch e := e.Effect.(type) {
	case engine.Send:
		if c := s.conns.get(e.Session); c != nil {
			if items, ok := e.Message.(engine.Delta); ok {
				s.commands.Items(c.Agent, c.ID, items)
				s.deliveries.Sent(c.Agent, items, time.Now())
			}
			if err := c.Send(e.Message); err != nil && c.Cause() == nil {
				s.log.Warn("Failed to send message", "agent", c.Agent, "error", err)
			}
		}
	case engine.CloseSession:
		if c := s.conns.get(e.Session); c != nil {
			if denied := s.registry.DenyReason(c.Agent); denied != "" { // the reconciler knows only that it is not registered
				c.CloseAfter(engine.Revoked, denied, suspendedRetry)
			}
			c.Close(e.Code, e.Message)
		}
	}
}

// AuthenticateWith adapts an Authenticator to transport.Authenticate.
func AuthenticateWith(a *identity.Authenticator) transport.Authenticate {
	return func(c transport.Credentials) (transport.Peer, error) {
		p, err := a.Authenticate(identity.Client(c))
		return transport.Peer(p), err
	}
}
