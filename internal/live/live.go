// Package live gives Argo CD access to the clusters of agents: objects, logs and exec sessions through the resource proxy,
// resource trees through the Redis proxy. Requests go through tunnels and do not pass the reconciler.
package live

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/forward"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/tasks"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// Settings of live access.
type Settings struct {
	Resource    net.Listener // of the resource proxy; if nil, it is off
	ResourceTLS *tls.Config  // verifies client certificates, whose common name is the agent

	// ReplicaAuth authenticates other principal replicas at the resource proxy. ResourceTLS must accept them. If nil, there
	// are none.
	ReplicaAuth *identity.ReplicaAuth

	// Names returns the agent that a certificate authenticates at the principal. If nil, agents do not use certificates.
	Names func(*x509.Certificate) (string, error)

	Redis           net.Listener // of the Redis proxy; if nil, it is off
	RedisTLS        *tls.Config  // for clients of the Redis proxy; if nil, they connect without TLS
	HubRedis        redis.Endpoint
	RedisCompressed bool // as Argo CD on the hub is configured
	RedisCacheBytes int  // of cached values of agents; if zero, the default
	RedisValueBytes int  // of large values of agents that are being read; if zero, the default

	// Access is written to cluster Secrets that the principal creates. If nil, credentials are not shared.
	Access *Access
}

// Config is what a Live needs.
type Config struct {
	Settings
	Namespace   string                                    // of Argo CD
	Watch       func(kube.Watch, kube.Sink) *kube.Watcher // subscribes to a watch
	Registry    *fleet.Registry
	Replicas    *fleet.Replicas
	Reconciler  *reconcile.Reconciler // used by Follow only
	Revocations *identity.Revocations
	InSync      func() map[string]int64                                           // when agents were last in sync, in seconds; nil if that is not known
	OpenTunnel  func(ctx context.Context, agent, target string) (net.Conn, error) // to an agent that is connected here
	// DialSharedRedis connects to the cache of an agent in the hub's Redis. It returns false if the agent has its own.
	DialSharedRedis func(agent string) (net.Conn, bool)
	Log             *slog.Logger
	Trace           *trace.Tracer
	Audit           *audit.Log // may be nil
}

// Targets of tunnels.
const (
	targetAPI      = "api"
	targetRedis    = "redis"
	targetReplicas = "replicas"
)

// Live serves the proxies.
type Live struct {
	cfg        Config
	agents     map[string]kind.Agent // owned by the reconciler's goroutine
	hub        *resource.Hub         // nil if the resource proxy is off
	requests   *resource.RequestCounter
	forwarder  *forward.Forwarder
	prefetches *tasks.Queue // of agents
	tokens     *tokens
	redis      *redis.Server // nil if the Redis proxy is off
	clusters   *redis.ClusterInfo

	mu            sync.RWMutex
	sessionHolder map[string]string // agent → the other principal replica that holds its session
	redisTargets  map[[2]string]redis.Target
	states        map[string]connectionState
}

type connectionState struct {
	connected bool
	since     time.Time
	spokeArgo string // namespace of Argo CD
}

// New returns a Live. Its Runs serve the proxies.
func New(cfg Config) *Live {
	l := &Live{cfg: cfg, agents: map[string]kind.Agent{}, redisTargets: map[[2]string]redis.Target{}, states: map[string]connectionState{}, sessionHolder: map[string]string{}}
	l.forwarder = forward.New(cfg.ReplicaAuth, cfg.Replicas, l, cfg.Trace)
	if cfg.Resource != nil {
		l.requests = resource.NewRequestCounter(metricPrefix)
		l.hub = resource.NewHub(resource.HubConfig{Dial: l.dialAPI, Caller: l.caller, Token: l.byToken, User: l.user, Observe: l.requests.Observe, Log: cfg.Log, Trace: cfg.Trace, Audit: cfg.Audit})
		l.prefetches = tasks.NewQueue(tasks.Config{Name: "prefetch discovery", Do: l.prefetch, Parallel: 8, Log: cfg.Log})
		l.tokens = newTokens(l.hub.Recheck)
		cfg.Watch(cfg.Registry.SecretWatch(), l.tokens.apply)
	}
	if cfg.Redis != nil {
		l.redis = redis.New(redis.Config{Hub: cfg.HubRedis, Agents: l, Dial: l.dialRedis, TLS: cfg.RedisTLS, Rewrite: l.rewrite, CacheBytes: cfg.RedisCacheBytes, ValueBytes: cfg.RedisValueBytes, Log: cfg.Log})
		l.clusters = redis.NewClusterInfo(cfg.HubRedis, l.dialRedis, l.clusterStates, cfg.RedisCompressed, cfg.Log)
	}
	cfg.Registry.OnChange(l.agentChanged)
	return l
}

// Runs returns what must run. The proxies accept requests when wait returns.
func (l *Live) Runs(wait func(context.Context) error) map[string]func(context.Context) error {
	after := func(run func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			if wait(ctx) != nil {
				return nil //nolint:nilerr // ctx ended
			}
			return run(ctx)
		}
	}
	out := map[string]func(context.Context) error{}
	if l.hub != nil {
		out["resource proxy"] = after(l.serveResources)
		out["discovery of agents' clusters"] = l.prefetches.Run
	}
	if l.redis != nil {
		out["Redis proxy"] = after(func(ctx context.Context) error { return l.redis.Run(ctx, l.cfg.Redis) })
		out["cluster page"] = l.clusters.Run
	}
	return out
}

func (l *Live) serveResources(ctx context.Context) error {
	defer l.hub.Close()
	server := resource.NewServer(ctx, l.hub, l.cfg.ResourceTLS)
	server.TLSNextProto = l.forwarder.NextProtos(ctx)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(l.cfg.Resource, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Recheck ends requests of callers whose certificate was revoked.
func (l *Live) Recheck() {
	if l.hub != nil {
		l.hub.Recheck()
	}
}

// agentChanged updates the principal replica that holds an agent's session.
func (l *Live) agentChanged(agent string) {
	holder := l.cfg.Replicas.Holder(agent)
	l.mu.Lock()
	changed := l.sessionHolder[agent] != holder
	if holder == "" {
		delete(l.sessionHolder, agent)
	} else {
		l.sessionHolder[agent] = holder
	}
	l.mu.Unlock()
	if changed && l.redis != nil {
		l.redis.AgentChanged(agent)
	}
}

// prefetch reads what argocd-server needs while an agent is disconnected.
func (l *Live) prefetch(ctx context.Context, agent string) error {
	if err := l.hub.PrefetchDiscovery(ctx, agent); err != nil {
		l.cfg.Log.DebugContext(ctx, "Failed to prefetch discovery", "agent", agent, "error", err)
	}
	return nil // retried with the next session
}

// Writing invalidates the tree of an Application before its new status can be read, because a client that waits for the end
// of a refresh reads the tree next.
func (l *Live) Writing(ref kind.Ref) {
	if l.redis != nil && ref.Resource == kind.Applications {
		l.redis.Invalidate(ref.Namespace, ref.Name)
	}
}

func (l *Live) dialAPI(ctx context.Context, agent string) (net.Conn, error) {
	conn, err := l.open(ctx, agent, targetAPI)
	if e, ok := errors.AsType[*tunnel.NotConnectedError](err); ok {
		return nil, &resource.NotConnectedError{Agent: e.Agent, Since: e.Since}
	}
	if e, ok := errors.AsType[*forward.SessionError](err); ok {
		return nil, &resource.NotConnectedError{Agent: agent, Message: e.Error()}
	}
	return conn, err
}

func (l *Live) dialRedis(ctx context.Context, agent string) (net.Conn, error) {
	conn, err := l.open(ctx, agent, targetRedis)
	if e, ok := errors.AsType[*tunnel.NotConnectedError](err); ok {
		return nil, e
	}
	return conn, err
}

func (l *Live) open(ctx context.Context, agent, target string) (net.Conn, error) {
	conn, err := l.OpenLocal(ctx, agent, target)
	if e, ok := errors.AsType[*tunnel.NotConnectedError](err); ok {
		conn, err = l.forwarder.Open(ctx, agent, target, e)
	}
	if err != nil {
		return nil, fmt.Errorf("open a tunnel to %s: %w", agent, err)
	}
	return conn, nil
}

// OpenLocal implements forward.Local.
func (l *Live) OpenLocal(ctx context.Context, agent, target string) (net.Conn, error) {
	if target == targetRedis {
		if conn, ok := l.cfg.DialSharedRedis(agent); ok {
			return conn, nil
		}
	}
	return l.cfg.OpenTunnel(ctx, agent, target)
}

// InSync implements forward.Local.
func (l *Live) InSync() map[string]int64 { return l.cfg.InSync() }

// InSyncOf asks the principal replica at an address when its agents were last in sync.
func (l *Live) InSyncOf(ctx context.Context, address string) (map[string]int64, error) {
	return l.forwarder.InSync(ctx, address)
}

// SpokeNamespace implements forward.Local.
func (l *Live) SpokeNamespace(agent string) string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.states[agent].spokeArgo
}

// SetSpokeNamespace implements forward.Local.
func (l *Live) SetSpokeNamespace(agent, namespace string) {
	if _, known := l.cfg.Registry.Get(agent); !known {
		return // its state would not be removed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if state := l.states[agent]; namespace != "" && !state.connected && state.spokeArgo != namespace {
		state.spokeArgo = namespace
		l.states[agent] = state
	}
}

// Resolve implements redis.Resolver.
func (l *Live) Resolve(namespace, name string) (redis.Target, bool) {
	if namespace == "" {
		namespace = l.cfg.Namespace
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	t, ok := l.redisTargets[[2]string{namespace, name}]
	return t, ok
}

// AgentOf returns the agent on which an Application of the hub is placed. It is empty if there is none.
func (l *Live) AgentOf(namespace, name string) string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.redisTargets[[2]string{namespace, name}].Agent
}

// Follow updates the targets of Applications. It is called by the goroutine that owns the reconciler, after the reconciler.
func (l *Live) Follow(in reconcile.Input) {
	if gone, ok := in.(reconcile.Unregister); ok && l.hub != nil {
		l.hub.Forget(gone.Agent)
	}
	for _, ref := range l.cfg.Reconciler.DecidedAgain() {
		l.updateTarget(ref.Namespace, ref.Name)
	}
	switch in := in.(type) {
	case reconcile.Observed:
		if in.Resource == kind.Applications {
			l.updateTarget(in.Object.Namespace(), in.Object.Name())
		}
	case reconcile.Deleted:
		if in.Ref.Resource == kind.Applications {
			l.updateTarget(in.Ref.Namespace, in.Ref.Name)
		}
	case reconcile.List:
		if in.Resource == kind.Applications && !in.More {
			l.rebuildTargets()
		}
	case reconcile.Register:
		if before := l.agents[in.Agent.Name]; before != in.Agent {
			l.agents[in.Agent.Name] = in.Agent
			l.updateTargetsOf(before)
			l.updateTargetsOf(in.Agent)
		}
	case reconcile.Unregister:
		before := l.agents[in.Agent]
		delete(l.agents, in.Agent)
		l.mu.Lock()
		delete(l.states, in.Agent)
		l.mu.Unlock()
		l.updateTargetsOf(before)
		if l.redis != nil {
			l.redis.Forget(in.Agent)
		}
	}
}

// rebuildTargets replaces all targets at once.
func (l *Live) rebuildTargets() {
	targets := map[[2]string]redis.Target{}
	l.cfg.Reconciler.Applications(func(namespace, name string) {
		if t, ok := l.target(namespace, name); ok {
			targets[[2]string{namespace, name}] = t
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.redisTargets = targets
}

// updateTargetsOf updates the targets of one agent's Applications.
func (l *Live) updateTargetsOf(agent kind.Agent) {
	if agent.Name != "" {
		l.cfg.Reconciler.ApplicationsOf(agent, l.updateTarget)
	}
}

func (l *Live) updateTarget(namespace, name string) {
	t, ok := l.target(namespace, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if ok {
		l.redisTargets[[2]string{namespace, name}] = t
	} else {
		delete(l.redisTargets, [2]string{namespace, name})
	}
}

// target returns the source of an Application's trees. For a frozen Application no tree is served.
func (l *Live) target(namespace, name string) (redis.Target, bool) {
	p, ok := l.cfg.Reconciler.Place(namespace, name)
	if !ok {
		agent, reason, frozen := l.cfg.Reconciler.Frozen(namespace, name)
		return redis.Target{Frozen: fmt.Sprintf("Application %s/%s of agent %s is frozen: %s", namespace, name, agent, reason)}, frozen
	}
	t := redis.Target{Agent: p.Agent, Local: p.Name, Rewrite: l.agents[p.Agent].RenamesApplications()}
	if p.Namespace != "" {
		t.Local = p.Namespace + "_" + p.Name
	}
	return t, ok
}

// HandleEvent records that a session of an agent opened or closed. Discovery is prefetched after the initial sync: when a
// session opens, it has no tunnels yet.
func (l *Live) HandleEvent(agent string, f engine.Event) {
	if f.Type == engine.InitialSyncDone && l.hub != nil {
		l.prefetches.Add(agent)
	}
	if f.Type != engine.Opened && f.Type != engine.Closed {
		return
	}
	l.mu.Lock()
	state := connectionState{connected: f.Type == engine.Opened, since: time.Now(), spokeArgo: l.states[agent].spokeArgo}
	if f.Hello != nil {
		state.spokeArgo = f.Hello.Namespace
	}
	l.states[agent] = state
	l.mu.Unlock()
	if l.redis != nil {
		l.redis.AgentChanged(agent)
		l.clusters.Changed(agent)
	}
}

// rewrite replaces the names of Applications in the cache of an agent's Argo CD by those on the hub.
func (l *Live) rewrite(t redis.Target, of redis.Kind, hub string, json []byte, most int) ([]byte, error) {
	reg, ok := l.cfg.Registry.Get(t.Agent)
	if !ok {
		return json, nil
	}
	w := &kind.Env{Side: kind.Hub, Agent: reg.Agent, SpokeArgoNamespace: l.SpokeNamespace(t.Agent)}
	if of == redis.ManagedResources {
		return kind.ManagedOnHub(json, w, t.Local, hub, most)
	}
	return kind.TreeOnHub(json, w), nil
}

func (l *Live) clusterStates() []redis.ClusterState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	counts := map[string]int64{}
	for _, t := range l.redisTargets {
		counts[t.Agent]++ // targets of frozen Applications have no agent
	}
	var out []redis.ClusterState
	for _, name := range l.cfg.Registry.Names() {
		reg, ok := l.cfg.Registry.Get(name)
		if !ok || l.cfg.Replicas.Holder(name) != "" { // the holder reports it
			continue
		}
		c := l.states[name]
		out = append(out, redis.ClusterState{Agent: name, Server: reg.Agent.Server, Connected: c.connected, Since: c.since, Applications: counts[name]})
	}
	return out
}
