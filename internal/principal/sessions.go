package principal

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/link"
	"github.com/argocd-agent/argocd-agent/internal/node"
)

// sessions stands between connections and the node: it knows which connection
// is which session, and sees to what a greeting needs before the node gets it.
type sessions struct {
	ctx      context.Context // of Run; ends with it
	registry *registry
	fresh    *fresh
	storeUID string
	require  bool // only registered agents
	post     func(context.Context, node.Input) error
	log      *slog.Logger

	mu    sync.Mutex
	conns map[uint64]*link.Conn
}

// Connected implements link.Events. The agent speaks first.
func (s *sessions) Connected(c *link.Conn) {
	s.mu.Lock()
	s.conns[c.ID] = c
	s.mu.Unlock()
}

// Received implements link.Events.
func (s *sessions) Received(c *link.Conn, m engine.Message) {
	if hello, ok := m.(engine.Hello); ok {
		s.greet(c, hello)
		return
	}
	_ = s.post(s.ctx, node.FromPeer{Agent: c.Agent, Input: engine.Received{Session: c.ID, Message: m}})
}

// Disconnected implements link.Events.
func (s *sessions) Disconnected(c *link.Conn, err error) {
	s.mu.Lock()
	delete(s.conns, c.ID)
	s.mu.Unlock()
	_ = s.post(s.ctx, node.FromPeer{Agent: c.Agent, Input: engine.Disconnected{Session: c.ID}})
}

// greetTimeout bounds what a greeting costs on the hub's API server.
const greetTimeout = 15 * time.Second

// greet passes a Hello on with what the node needs to answer it: the agent is
// registered, and how far the hub's store has come is known.
func (s *sessions) greet(c *link.Conn, hello engine.Hello) {
	ctx, cancel := context.WithTimeout(s.ctx, greetTimeout)
	defer cancel()
	if _, known := s.registry.get(c.Agent); !known {
		if s.require {
			c.CloseAfter(engine.NotAllowed, "this agent is not registered on the hub, and the hub requires it; create its cluster Secret first", 60*time.Second)
			return
		}
		if err := s.registry.claim(ctx, c.Agent, hello); err != nil {
			s.log.Warn("can not register an agent", "agent", c.Agent, "error", err)
			c.CloseAfter(engine.Unavailable, "the hub can not register this agent: "+err.Error(), 10*time.Second)
			return
		}
	}
	revision, err := s.fresh.revision(ctx)
	if err != nil {
		s.log.Warn("can not ask the API server how far it is", "agent", c.Agent, "error", err)
		c.CloseAfter(engine.Unavailable, "the hub's API server does not answer", 5*time.Second)
		return
	}
	store := engine.Store{UID: s.storeUID, Revision: revision}
	if s.post(s.ctx, node.FromPeer{Agent: c.Agent, Input: engine.Connected{Session: c.ID, Store: store}}) != nil {
		return
	}
	_ = s.post(s.ctx, node.FromPeer{Agent: c.Agent, Input: engine.Received{Session: c.ID, Message: hello}})
}

// deliver carries out what the node wants of a connection. It never waits.
func (s *sessions) deliver(e node.ToPeer) {
	switch e := e.Effect.(type) {
	case engine.Send:
		if c := s.get(e.Session); c != nil {
			if err := c.Send(e.Message); err != nil {
				s.log.Warn("can not send", "agent", c.Agent, "error", err)
			}
		}
	case engine.Cut:
		if c := s.get(e.Session); c != nil {
			c.Close(e.Code, e.Message)
		}
	}
}

func (s *sessions) get(id uint64) *link.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[id]
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
