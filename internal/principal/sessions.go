package principal

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// sessions stands between connections and the node: it knows which connection
// is which session, and sees to what a greeting needs before the node gets it.
type sessions struct {
	ctx                context.Context // of Run; ends with it
	registry           *registry
	revisions          *revisionReader
	newerSessionHolder func(agent string, epoch engine.Epoch) string // the other principal that a newer session of an agent is connected with
	storeUID           string
	require            bool // only agents that have an Agent
	revoked            func(fingerprint string) bool
	post               func(context.Context, reconcile.Input) error
	postUntil          func(context.Context, <-chan struct{}, reconcile.Input) error // post, until a connection is done
	log                *slog.Logger
	jitter             func() float64 // 0 to 1

	helloCount atomic.Int64 // greetings that are under way

	mu         sync.Mutex
	conns      map[uint64]*session
	endReasons map[string]string // agent → why its last connection ended
}

type session struct {
	*transport.Conn
	helloReceived bool
	info          helloInfo // once it has
}

// maxConcurrentHellos is how many agents are greeted at once. Each greeting waits for the
// API server and for the node; after a restart the whole fleet is there at once.
const maxConcurrentHellos = 512

// admit sends an agent away for a moment when too many are being greeted.
func (s *sessions) admit(transport.Peer) (retryAfter time.Duration, err error) {
	if s.helloCount.Load() < maxConcurrentHellos {
		return 0, nil
	}
	return time.Second + time.Duration(s.jitter()*float64(4*time.Second)), errors.New("the hub is greeting as many agents as it can; come back in a moment")
}

// Connected implements link.Events. The agent speaks first.
func (s *sessions) Connected(c *transport.Conn) {
	s.mu.Lock()
	s.conns[c.ID] = &session{Conn: c}
	s.mu.Unlock()
	if s.revoked(c.Fingerprint) { // between the handshake and now
		c.Close(engine.Revoked, "the certificate is revoked")
	}
}

// Received implements link.Events.
func (s *sessions) Received(c *transport.Conn, m engine.Message) {
	if hello, ok := m.(engine.Hello); ok {
		if s.recordHello(c, hello) {
			traceHello(c, hello)
			s.handleHello(c, hello)
		} else {
			c.Close(engine.BadMessage, "a second greeting on one connection") // each costs a request on the API server
		}
		return
	}
	s.forward(c, engine.Received{Session: c.ID, Message: m})
}

// forward passes something on to the node. It waits while the node is busy, so the
// peer does too.
func (s *sessions) forward(c *transport.Conn, in engine.Input) {
	_ = s.postUntil(s.ctx, c.Done(), reconcile.FromPeer{Agent: c.Agent, Input: in}) // fails at the end of either
}

// recordHello reports whether an agent has not greeted before on this connection.
func (s *sessions) recordHello(c *transport.Conn, hello engine.Hello) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.conns[c.ID]
	if known == nil || known.helloReceived {
		return false
	}
	known.helloReceived = true
	known.info = helloInfo{epoch: hello.Epoch, cluster: hello.ClusterUID, fingerprint: c.Fingerprint, expires: c.NotAfter, skew: skewOf(hello, time.Now())}
	return true
}

// hello returns what was said and shown at the beginning of a connection.
func (s *sessions) hello(id uint64) (helloInfo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.conns[id]; known != nil && known.helloReceived {
		return known.info, true
	}
	return helloInfo{}, false
}

// Disconnected implements link.Events.
func (s *sessions) Disconnected(c *transport.Conn, err error) {
	s.mu.Lock()
	delete(s.conns, c.ID)
	s.mu.Unlock()
	s.setEndReason(c.Agent, err)
	_ = s.post(s.ctx, reconcile.FromPeer{Agent: c.Agent, Input: engine.Disconnected{Session: c.ID}})
}

// setEndReason notes why a connection has ended, of an agent that is known: of others
// nobody asks, and there may be any number.
func (s *sessions) setEndReason(agent string, err error) {
	if _, known := s.registry.get(agent); !known {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endReasons[agent] = "the agent ended it"; err != nil {
		s.endReasons[agent] = err.Error()
	}
}

// takeEndReason tells, once, why an agent's last connection ended.
func (s *sessions) takeEndReason(agent string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := s.endReasons[agent]
	delete(s.endReasons, agent)
	return why
}

// helloTimeout bounds what a greeting costs on the hub's API server.
const helloTimeout = 15 * time.Second

// handleHello passes a Hello on with what the node needs to answer it: the agent is
// registered, and how far the hub's store has come is known.
func (s *sessions) handleHello(c *transport.Conn, hello engine.Hello) {
	s.helloCount.Add(1)
	defer s.helloCount.Add(-1)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithTimeout(s.ctx, helloTimeout)
	defer cancel()
	wg.Go(func() {
		select {
		case <-c.Done(): // nobody waits for the answer any more
			cancel()
		case <-ctx.Done():
		}
	})
	if why := s.registry.denyReason(c.Agent); why != "" {
		c.CloseAfter(engine.Revoked, why, suspendedRetry)
		return
	}
	if s.registry.needsFirstConnection(c.Agent, hello) && !s.register(ctx, c, hello) {
		return
	}
	if other := s.newerSessionHolder(c.Agent, hello.Epoch); other != "" {
		c.CloseAfter(engine.Superseded, supersededBy(other), supersededRetry)
		return
	}
	revision, err := s.revisions.revision(ctx)
	if err != nil {
		s.log.Warn("cannot ask the API server how far it is", "agent", c.Agent, "error", err)
		c.CloseAfter(engine.Unavailable, "the hub cannot ask its API server how far it is: "+err.Error(), 5*time.Second)
		return
	}
	s.forward(c, engine.Connected{Session: c.ID, Store: engine.Store{UID: s.storeUID, Revision: revision}})
	s.forward(c, engine.Received{Session: c.ID, Message: hello})
}

// register registers an agent by its first claim, or tells it why not.
func (s *sessions) register(ctx context.Context, c *transport.Conn, hello engine.Hello) bool {
	if why := s.registry.invalidReason(c.Agent); why != "" {
		c.CloseAfter(engine.NotAllowed, "the hub has this agent's registration wrong: "+why, 30*time.Second)
		return false
	}
	err := s.registry.recordFirstConnection(ctx, c.Agent, c.Fingerprint, hello, s.require)
	switch {
	case err == nil:
		return true
	case errors.Is(err, errRevoked):
		c.Close(engine.Revoked, err.Error())
	case errors.Is(err, errUnregistered):
		c.CloseAfter(engine.NotAllowed, err.Error(), 60*time.Second)
	default:
		s.log.WarnContext(ctx, "cannot register an agent", "agent", c.Agent, "error", err)
		c.CloseAfter(engine.Unavailable, "the hub cannot register this agent: "+err.Error(), 10*time.Second)
	}
	return false
}

// deliver carries out what the node wants of a connection. It never waits.
func (s *sessions) deliver(e reconcile.ToPeer) {
	switch e := e.Effect.(type) {
	case engine.Send:
		if c := s.get(e.Session); c != nil {
			if err := c.Send(e.Message); err != nil && c.Cause() == nil {
				s.log.Warn("cannot send", "agent", c.Agent, "error", err) // else the connection ends, and says why
			}
		}
	case engine.CloseSession:
		if c := s.get(e.Session); c != nil {
			c.Close(e.Code, e.Message)
		}
	}
}

func (s *sessions) get(id uint64) *transport.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.conns[id]; known != nil {
		return known.Conn
	}
	return nil
}

// supersededRetry is when a process of an agent may ask again that is older than
// the one that is connected.
const supersededRetry = 10 * time.Second

func supersededBy(principal string) string {
	return "a newer session of this agent is connected with principal " + principal
}

// revoke cuts connections that use a certificate which is no longer accepted.
func (s *sessions) revoke(fingerprints []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.Fingerprint != "" && slices.Contains(fingerprints, c.Fingerprint) {
			c.Close(engine.Revoked, "the certificate is revoked")
		}
	}
}
