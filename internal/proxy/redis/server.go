package redis

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// Server serves the hub's Redis and the Redis servers of all agents as one.
type Server struct {
	cfg    Config
	tasks  sync.WaitGroup // all goroutines that serve clients and agents
	agents agentPool
	counts counters

	mu      sync.Mutex
	closed  bool
	clients map[*clientConn]bool

	handshakes logonce.One // why the last TLS handshake failed
}

type counters struct {
	refused, asked, hits, stale, messages, subscriptions atomic.Int64
}

// Stats are the figures for metrics.
type Stats struct {
	Clients       int64 // connected
	Refused       int64 // clients above the limit
	Asked         int64 // requests to agents
	Hits          int64 // replies from the cache
	Stale         int64 // replies with the last known value, because the agent did not respond
	Messages      int64 // published by agents
	Subscriptions int64 // open, at most one for each agent
	CacheEntries  int
	CacheBytes    int
}

// New returns a Server for Run.
func New(cfg Config) *Server {
	srv := &Server{cfg: cfg.withDefaults(), clients: map[*clientConn]bool{}}
	srv.agents = agentPool{
		cfg: &srv.cfg, cache: newCache(srv.cfg.CacheBytes), tasks: &srv.tasks, counts: &srv.counts,
		clients: map[string]*agentClient{}, values: semaphore.NewWeighted(int64(srv.cfg.ValueBytes)),
	}
	return srv
}

// Run serves clients until ctx ends, and returns when all its goroutines have ended. It takes ownership of the listener.
func (srv *Server) Run(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	srv.agents.start(ctx)
	srv.tasks.Go(func() { srv.sweep(ctx) })
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	err := srv.accept(ctx, listener)
	if ctx.Err() != nil {
		err = nil
	}
	cancel(errShutdown)
	srv.mu.Lock()
	srv.closed = true
	srv.mu.Unlock()
	for _, c := range srv.connected() {
		c.replies.fail(errShutdown)
	}
	srv.tasks.Wait()
	return err
}

func (srv *Server) accept(ctx context.Context, listener net.Listener) error {
	pause := backoff.Backoff{Min: 5 * time.Millisecond, Max: time.Second}
	for {
		conn, err := listener.Accept()
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, net.ErrClosed)):
			return err
		case err != nil: // probably no file descriptors are left
			srv.cfg.Log.WarnContext(ctx, "Failed to accept a client of the Redis proxy", "error", err)
			pause.Wait(ctx, 0)
			continue
		}
		pause.Reset()
		c := newClientConn(srv, srv.secure(conn))
		if !srv.add(c) {
			srv.counts.refused.Add(1)
			if srv.cfg.TLS == nil { // otherwise the write would wait for a handshake
				_, _ = timeoutWriter{conn, time.Second}.Write([]byte("-ERR max number of clients reached\r\n"))
			}
			_ = conn.Close()
			continue
		}
		srv.tasks.Go(func() {
			c.run()
			srv.mu.Lock()
			delete(srv.clients, c)
			srv.mu.Unlock()
		})
	}
}

func (srv *Server) add(c *clientConn) bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.closed || len(srv.clients) >= srv.cfg.MaxClients {
		return false
	}
	srv.clients[c] = true
	return true
}

func (srv *Server) connected() []*clientConn {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return slices.Collect(maps.Keys(srv.clients))
}

// sweep updates subscriptions and the pool of agents.
func (srv *Server) sweep(ctx context.Context) {
	ticker := time.NewTicker(max(min(srv.cfg.CacheIdle/4, 5*time.Second), 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			for _, c := range srv.connected() {
				srv.agents.rebind(c)
			}
			srv.agents.sweep(now)
		case <-ctx.Done():
			return
		}
	}
}

// AgentChanged reports that an agent connected or disconnected. Cached values become stale, and a failed subscription is
// retried immediately.
func (srv *Server) AgentChanged(agent string) {
	srv.agents.invalidate(agent, "")
}

// Forget drops all values of an agent. Another agent can get the same name.
func (srv *Server) Forget(agent string) {
	srv.AgentChanged(agent)
	srv.agents.forget(agent)
}

// Invalidate makes the cached values of an Application stale. The principal calls it when a refresh is complete, because
// Argo CD then reads the tree, and the message about the change can arrive later.
func (srv *Server) Invalidate(namespace, name string) {
	if target, ok := srv.cfg.Agents.Resolve(namespace, name); ok && target.Agent != "" {
		srv.agents.invalidate(target.Agent, target.Local)
	}
}

// Stats returns the current figures.
func (srv *Server) Stats() Stats {
	srv.mu.Lock()
	clients := int64(len(srv.clients))
	srv.mu.Unlock()
	c := &srv.counts
	srv.agents.mu.Lock()
	entries, bytes := len(srv.agents.cache.byID), srv.agents.cache.bytes
	srv.agents.mu.Unlock()
	return Stats{
		Clients: clients, Refused: c.refused.Load(), Asked: c.asked.Load(),
		Hits: c.hits.Load(), Stale: c.stale.Load(), Messages: c.messages.Load(),
		Subscriptions: c.subscriptions.Load(), CacheEntries: entries, CacheBytes: bytes,
	}
}
