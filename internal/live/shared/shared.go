// Package shared lets clusters without their own repo-server and Redis use those of the hub, through their agents.
package shared

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path"
	"sync"
	"sync/atomic"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/internal/proxy/sharedmode"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// Settings of shared mode.
type Settings struct {
	Agents        []string    // patterns of agents that may use it, in addition to those with spec.shared
	RepoServer    string      // host:port; if empty, shared mode is off
	RepoServerTLS *tls.Config // if nil, plaintext
	Redis         redis.Endpoint
	RedisLimits   redis.TenantLimits
}

// Config is what a Services needs.
type Config struct {
	Settings
	Namespace string // of Argo CD
	Registry  *fleet.Registry
	Do        func(context.Context, func(*reconcile.Reconciler)) error // calls a function with the reconciler
	AddTask   fleet.AddTask
	Log       *slog.Logger
}

// Targets of tunnels that agents open.
const (
	targetRepoServer = "repo-server"
	targetHubRedis   = "hub-redis"
)

// Services gives agents access to the hub's repo-server and Redis.
type Services struct {
	cfg     Config
	repos   *sharedmode.RepoServer
	tenants *redis.Tenants
	ctx     context.Context // ends with run
	cancel  context.CancelFunc
	work    sync.WaitGroup // connections of the Redis proxy to agents' caches

	changes atomic.Uint64 // number of changes that can affect rules

	mu            sync.Mutex
	rules         map[string]cachedRules
	sessions      map[string]redisSession // of agents that use the hub's Redis
	purgePrefixes map[string]bool         // key prefixes of deleted agents
}

// redisSession ends when an agent disconnects.
type redisSession struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// cachedRules are valid until the number of changes differs.
type cachedRules struct {
	changes uint64
	rules   *sharedmode.Rules
}

// New returns the Services. Its Runs serve them.
func New(cfg Config) *Services {
	s := &Services{cfg: cfg, rules: map[string]cachedRules{}, sessions: map[string]redisSession{}, purgePrefixes: map[string]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if cfg.RepoServer != "" {
		s.repos = sharedmode.NewRepoServer(sharedmode.RepoConfig{Address: cfg.RepoServer, TLS: cfg.RepoServerTLS, Rules: s.rulesOf, Log: cfg.Log})
		s.tenants = &redis.Tenants{Redis: cfg.Redis, Allowed: s.allowed, Incarnation: cfg.Registry.Incarnation, Limits: cfg.RedisLimits, Log: cfg.Log}
	}
	return s
}

// Runs returns what must run.
func (s *Services) Runs() map[string]func(context.Context) error {
	if s.repos == nil {
		return nil
	}
	return map[string]func(context.Context) error{"repo-server for agents": s.repos.Run, "Redis for agents": s.run}
}

// run accepts local connections until ctx ends.
func (s *Services) run(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// Targets returns the tunnel targets for agents.
func (s *Services) Targets() map[string]tunnel.Target {
	if s.repos == nil {
		return nil
	}
	return map[string]tunnel.Target{
		targetRepoServer: {Admit: s.allowed, Serve: s.repos.Serve},
		targetHubRedis:   {Admit: s.allowed, Serve: s.serveRedis, PerAgent: 128}, // clients keep connections open
	}
}

// allowed returns an error if an agent may not use the services.
func (s *Services) allowed(agent string) error {
	return s.allowedIf(agent, s.cfg.Registry.Shared(agent))
}

func (s *Services) allowedIf(agent string, declared bool) error {
	if declared {
		return nil
	}
	for _, pattern := range s.cfg.Agents {
		if ok, err := path.Match(pattern, agent); ok && err == nil {
			return nil
		}
	}
	return fmt.Errorf("agent %s may not use the hub's repo-server and Redis: set spec.shared of its Agent on the hub, or --shared-mode-agents of the principal", agent)
}

func (s *Services) serveRedis(ctx context.Context, agent string, conn net.Conn) {
	s.mu.Lock()
	if s.sessions[agent].ctx == nil {
		ctx, cancel := context.WithCancel(s.ctx)
		s.sessions[agent] = redisSession{ctx, cancel}
	}
	s.mu.Unlock()
	s.tenants.Serve(ctx, agent, conn)
}

// DialRedis connects the Redis proxy to the cache of an agent in the hub's Redis, without a tunnel to the agent and back. It
// returns false if the agent is not known to use it.
func (s *Services) DialRedis(agent string) (net.Conn, bool) {
	if s.tenants == nil || s.allowed(agent) != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	session, known := s.sessions[agent]
	if !known || session.ctx.Err() != nil {
		return nil, false
	}
	near, far := net.Pipe()
	s.work.Go(func() { s.tenants.Serve(session.ctx, agent, far) })
	return near, true
}

// HandleEvent closes the local connections of an agent that disconnected, so that the Redis proxy notices it.
func (s *Services) HandleEvent(agent string, f engine.Event) {
	if f.Type == engine.Closed {
		s.disconnect(agent)
	}
}

func (s *Services) disconnect(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session, known := s.sessions[agent]; known {
		session.cancel()
		delete(s.sessions, agent)
	}
}

// maxPurgePrefixes limits the prefixes that wait for deletion. Keys of other agents expire.
const maxPurgePrefixes = 10_000

// Deleted deletes the keys of a deleted agent from the hub's Redis.
func (s *Services) Deleted(a v1alpha1.Agent) {
	if s.tenants == nil || s.allowedIf(a.Name, a.Spec.Shared) != nil {
		return
	}
	s.mu.Lock()
	if len(s.purgePrefixes) < maxPurgePrefixes {
		s.purgePrefixes[redis.TenantPrefix(a.Name, fleet.Incarnation(a))] = true
	}
	s.mu.Unlock()
	s.cfg.AddTask("purge keys of deleted agents", s.purge)
}

func (s *Services) purge(ctx context.Context) error {
	s.mu.Lock()
	prefixes := maps.Clone(s.purgePrefixes)
	s.mu.Unlock()
	if err := s.tenants.Purge(ctx, prefixes); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.purgePrefixes, func(prefix string, _ bool) bool { return prefixes[prefix] })
	return nil
}

// Follow invalidates cached rules. It is called by the goroutine that owns the reconciler, after the reconciler.
func (s *Services) Follow(in reconcile.Input) {
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
		s.disconnect(in.Agent)
		s.mu.Lock()
		delete(s.rules, in.Agent)
		s.mu.Unlock()
		if s.tenants != nil {
			s.tenants.Forget(in.Agent)
		}
	}
}

// Metrics returns the metrics of the services.
func (s *Services) Metrics() []observe.Metric {
	if s.repos == nil {
		return nil
	}
	return []observe.Metric{
		observe.Counter("argocd_agent_principal_shared_repo_requests_total", "Requests from agents to the hub's repo-server.", float64(s.repos.Requests.Load())),
		observe.Counter("argocd_agent_principal_shared_repo_refused_total", "Requests from agents to the hub's repo-server that were denied.", float64(s.repos.Denied.Load())),
	}
}
