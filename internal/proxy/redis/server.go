package redis

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Server is a Redis to its clients: the hub's, together with those of all agents.
type Server struct {
	cfg        Config
	tasks      sync.WaitGroup // every goroutine that serves somebody
	identities identities
	agents     agents
	patterns   patterns
	counts     counters
	loop       *loop // nil: there is none

	// settled is for how many reads in a row a client must have asked for nothing but what passes before the loop reads
	// for it: changing hands costs more than a few requests.
	settled int

	mu       sync.Mutex
	closed   bool
	sessions map[*session]bool
}

// counters of what has happened; subscriptions and clients are what is.
type counters struct {
	clients, refused, dials, asked, hits, stale, messages, subscriptions atomic.Int64
}

// Stats is a view of what the Server does, for metrics.
type Stats struct {
	Clients       int64 // connected
	Refused       int64 // because there were too many
	Dials         int64 // tunnels asked for
	Asked         int64 // requests to agents
	Hits          int64 // answered without asking the agent
	Stale         int64 // answered with the last known value, because the agent did not answer
	Messages      int64 // that agents have published
	Subscriptions int64 // open, at most one for each agent
	CacheEntries  int
	CacheBytes    int
}

// New prepares a Server. Run makes it work.
func New(cfg Config) *Server {
	srv := &Server{cfg: cfg.withDefaults(), sessions: map[*session]bool{}, settled: 8}
	srv.identities = identities{
		hub: &srv.cfg.Hub, max: srv.replyLimits(), count: srv.cfg.Lanes, linger: 30 * time.Second, answer: srv.cfg.Answer,
		tasks: &srv.tasks, by: map[state]*identity{},
	}
	srv.agents = agents{
		cfg: &srv.cfg, cache: newCache(srv.cfg.CacheBytes), tasks: &srv.tasks, patterns: &srv.patterns,
		counts: &srv.counts, peers: map[string]*peer{},
	}
	return srv
}

// replyLimits bound what the hub's Redis may answer: as much as Redis itself can hold in one value.
func (srv *Server) replyLimits() limits {
	return limits{bulk: 512 << 20, elements: maxElements, total: 1 << 40}
}

// Run serves clients until ctx ends, and returns when nothing of it runs any more. It owns the listener.
func (srv *Server) Run(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	srv.agents.start(ctx)
	if l, err := newLoop(); err == nil {
		srv.mu.Lock()
		srv.loop, srv.identities.loop = l, l
		srv.mu.Unlock()
		defer l.close()
	} else {
		srv.cfg.Log.WarnContext(ctx, "The Redis proxy reads every client on its own, which is slower", "error", err)
	}
	var around sync.WaitGroup
	around.Go(func() { srv.sweep(ctx) })
	around.Go(func() {
		<-ctx.Done()
		_ = listener.Close()
	})
	err := srv.accept(ctx, listener)
	if ctx.Err() != nil {
		err = nil
	}
	cancel(errShutdown)
	srv.cutAll()
	around.Wait()
	srv.agents.close()
	srv.identities.close()
	srv.tasks.Wait()
	return err
}

func (srv *Server) accept(ctx context.Context, listener net.Listener) error {
	pause := 5 * time.Millisecond
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			srv.cfg.Log.WarnContext(ctx, "Cannot accept a client of the Redis proxy", "error", err)
			select {
			case <-time.After(pause): // out of descriptors, most likely: others have to go first
			case <-ctx.Done():
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = 5 * time.Millisecond
		s := newSession(srv, conn)
		if !srv.enter(s) {
			srv.counts.refused.Add(1)
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = conn.Write([]byte("-ERR max number of clients reached\r\n"))
			_ = conn.Close()
			continue
		}
		srv.tasks.Go(func() {
			s.run(ctx)
			srv.exit(s)
		})
	}
}

func (srv *Server) enter(s *session) bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.closed || len(srv.sessions) >= srv.cfg.MaxClients {
		return false
	}
	srv.sessions[s] = true
	srv.counts.clients.Add(1)
	return true
}

func (srv *Server) exit(s *session) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	delete(srv.sessions, s)
	srv.counts.clients.Add(-1)
}

func (srv *Server) cutAll() {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.closed = true
	for s := range srv.sessions {
		s.output.fail(errShutdown)
	}
}

func (srv *Server) sweep(ctx context.Context) {
	ticker := time.NewTicker(min(max(srv.cfg.CacheIdle/4, 10*time.Millisecond), 5*time.Second))
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			srv.rebind()
			srv.agents.sweep(now)
		case <-ctx.Done():
			return
		}
	}
}

// rebind has subscriptions follow Applications that have come to another agent.
func (srv *Server) rebind() {
	srv.mu.Lock()
	var all []*session
	for s := range srv.sessions {
		if s.subscribing.Load() {
			all = append(all, s)
		}
	}
	srv.mu.Unlock()
	for _, s := range all {
		s.rebind()
	}
}

// AgentChanged says that an agent has connected or gone: what waits for it tries at once, and what it has told is asked
// for again.
func (srv *Server) AgentChanged(agent string) {
	if p := srv.agents.find(agent); p != nil {
		p.outdate()
		poke(p.retry)
	}
}

// Forget drops everything that an agent has told. Another one may come under its name.
func (srv *Server) Forget(agent string) {
	srv.AgentChanged(agent)
	srv.agents.cache.forget(agent + "\n")
}

// Invalidate says that the cache of an Application of the hub may be old, although no message has come yet. A refresh is
// known to be done through another stream than that of the messages, and Argo CD reads the tree right after.
func (srv *Server) Invalidate(namespace, name string) {
	target, ok := srv.cfg.Agents.Resolve(namespace, name)
	if !ok || target.Agent == "" {
		return
	}
	srv.agents.invalidate(target.Agent, target.Local)
}

// Stats tells what the Server does.
func (srv *Server) Stats() Stats {
	c := &srv.counts
	entries, bytes := srv.agents.cache.size()
	return Stats{
		Clients: c.clients.Load(), Refused: c.refused.Load(), Dials: c.dials.Load(), Asked: c.asked.Load(),
		Hits: c.hits.Load(), Stale: c.stale.Load(), Messages: c.messages.Load(),
		Subscriptions: c.subscriptions.Load(), CacheEntries: entries, CacheBytes: bytes,
	}
}
