package principal

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"path"
	"sync"
	"sync/atomic"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	proxy "github.com/argocd-agent/argocd-agent/internal/proxy/sharedmode"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// Shared is what clusters without a repo-server and a Redis of their own use
// here, through their agents.
type Shared struct {
	Agents        []string    // patterns: agents that may, beside those that are declared so
	RepoServer    string      // host:port; empty: nobody may
	RepoServerTLS *tls.Config // nil: plaintext
	Redis         redis.Endpoint
}

// Targets of tunnels that agents open.
const (
	targetRepoServer = "repo-server"
	targetHubRedis   = "hub-redis"
)

// shared lets agents use the hub's repo-server and Redis.
type shared struct {
	p       *principal
	repos   *proxy.RepoServer
	tenants *redis.Tenants
	work    sync.WaitGroup // connections of the Redis proxy

	changes atomic.Uint64 // of what rules are made of

	mu            sync.Mutex
	ctx           context.Context // of run; nil: not yet
	rules         map[string]cachedRules
	uses          map[string]bool                  // agents that keep their cache here
	localConns    map[string]map[net.Conn]struct{} // connections of the Redis proxy to it
	purgePrefixes map[string]bool                  // what the keys begin with of agents that were deleted, and are to go
}

// cachedRules are good until something changes.
type cachedRules struct {
	changes uint64
	rules   *proxy.Rules
}

func newShared(p *principal) *shared {
	cfg := p.cfg.Shared
	s := &shared{p: p, rules: map[string]cachedRules{}, uses: map[string]bool{}, localConns: map[string]map[net.Conn]struct{}{}, purgePrefixes: map[string]bool{}}
	if cfg.RepoServer != "" {
		s.repos = &proxy.RepoServer{Address: cfg.RepoServer, TLS: cfg.RepoServerTLS, Rules: s.rulesOf, Log: p.log}
		s.tenants = &redis.Tenants{Redis: cfg.Redis, Allowed: s.allowed, Incarnation: p.registry.incarnation, Log: p.log}
	}
	return s
}

// runs lists what has to run.
func (s *shared) runs() map[string]func(context.Context) error {
	if s.repos == nil {
		return nil
	}
	return map[string]func(context.Context) error{"repo-server for agents": s.repos.Run, "Redis for agents": s.run}
}

// run is the time in which the Redis proxy can connect.
func (s *shared) run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// targets is what agents may connect to.
func (s *shared) targets() map[string]tunnel.Target {
	if s.repos == nil {
		return nil
	}
	return map[string]tunnel.Target{
		targetRepoServer: {Admit: s.allowed, Serve: s.repos.Serve},
		targetHubRedis:   {Admit: s.allowed, Serve: s.serveRedis, PerAgent: 128}, // clients keep theirs open
	}
}

// allowed says why an agent may not use the hub's repo-server and Redis.
func (s *shared) allowed(agent string) error {
	return s.mayShare(agent, s.p.registry.shared(agent))
}

func (s *shared) mayShare(agent string, declared bool) error {
	if declared {
		return nil
	}
	for _, pattern := range s.p.cfg.Shared.Agents {
		if ok, err := path.Match(pattern, agent); ok && err == nil {
			return nil
		}
	}
	return fmt.Errorf("agent %s may not use the hub's repo-server and Redis: set spec.shared of its Agent on the hub, or --shared-mode-agents of the principal", agent)
}

func (s *shared) serveRedis(ctx context.Context, agent string, conn net.Conn) {
	s.mu.Lock()
	s.uses[agent] = true
	s.mu.Unlock()
	s.tenants.Serve(ctx, agent, conn)
}

// dialRedis connects the Redis proxy to the cache of an agent that keeps it
// here: the way through the agent and back would be long. False: it does not, or
// not that we know of.
func (s *shared) dialRedis(agent string) (net.Conn, bool) {
	if s.tenants == nil || s.allowed(agent) != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil || !s.uses[agent] {
		return nil, false
	}
	ctx := s.ctx
	near, far := net.Pipe()
	if s.localConns[agent] == nil {
		s.localConns[agent] = map[net.Conn]struct{}{}
	}
	s.localConns[agent][far] = struct{}{}
	s.work.Go(func() {
		s.tenants.Serve(ctx, agent, far)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.localConns[agent], far)
		if len(s.localConns[agent]) == 0 {
			delete(s.localConns, agent)
		}
	})
	return near, true
}

// changed notes that an agent has gone: then the Redis proxy shall know it, as
// it does of others, by the end of its connections.
func (s *shared) changed(r reconcile.Report) {
	if r.Event.Type == engine.Closed {
		s.leave(r.Agent)
	}
}

func (s *shared) leave(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uses, agent)
	for conn := range s.localConns[agent] {
		_ = conn.Close()
	}
}

// maxPurgePrefixes bounds whose keys are waited to be removed; those of others expire.
const maxPurgePrefixes = 10_000

// deleted has what an agent kept here removed, after it was let go.
func (s *shared) deleted(rec agentRecord) {
	if s.tenants == nil || s.mayShare(rec.Name, rec.Spec.Shared) != nil {
		return
	}
	s.mu.Lock()
	if len(s.purgePrefixes) < maxPurgePrefixes {
		s.purgePrefixes[redis.TenantPrefix(rec.Name, incarnation(rec))] = true
	}
	s.mu.Unlock()
	s.p.tasks.add("what deleted agents kept in Redis", s.purge)
}

func (s *shared) purge(ctx context.Context) error {
	s.mu.Lock()
	dead := maps.Clone(s.purgePrefixes)
	s.mu.Unlock()
	if err := s.tenants.Purge(ctx, dead); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.purgePrefixes, func(prefix string, _ bool) bool { return dead[prefix] })
	return nil
}

// follow notes that rules may not be good any more.
func (s *shared) follow(in reconcile.Input) {
	switch in := in.(type) {
	case reconcile.Observed:
		if in.Resource != kind.Applications {
			s.changes.Add(1)
		}
	case reconcile.Deleted:
		if in.Ref.Resource != kind.Applications {
			s.changes.Add(1)
		}
	case reconcile.List, reconcile.Register:
		s.changes.Add(1)
	case reconcile.Unregister:
		s.changes.Add(1)
		s.leave(in.Agent)
		s.mu.Lock()
		delete(s.rules, in.Agent)
		s.mu.Unlock()
		if s.tenants != nil {
			s.tenants.Forget(in.Agent)
		}
	}
}

func (s *shared) metrics() []observe.Metric {
	if s.repos == nil {
		return nil
	}
	return []observe.Metric{
		observe.Counter(metricPrefix+"_shared_repo_requests_total", "Requests from agents to the hub's repo-server.", float64(s.repos.Requests.Load())),
		observe.Counter(metricPrefix+"_shared_repo_refused_total", "Requests from agents to the hub's repo-server that were denied.", float64(s.repos.Refused.Load())),
	}
}
