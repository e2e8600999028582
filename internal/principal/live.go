package principal

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// Live is how Argo CD reaches what runs behind agents: objects, logs and
// terminals through the resource proxy, resource trees through the Redis proxy.
type Live struct {
	Resource    net.Listener // of the resource proxy; nil: off
	ResourceTLS *tls.Config  // demands and verifies client certificates, whose common name is the agent

	// Replicas tells which of those that connect there is another principal; nil: none
	// is. ResourceTLS has to let it in.
	Replicas *identity.ReplicaAuth

	// Names tells which agent's own a certificate is, where it connects; nil: that
	// is not told by certificates.
	Names func(*x509.Certificate) (string, error)

	Redis           net.Listener // of the Redis proxy; nil: off
	HubRedis        redis.Endpoint
	RedisCompressed bool // as Argo CD on the hub is set

	// Access goes into cluster Secrets that the principal makes; nil: somebody
	// else fills them in.
	Access *Access
}

// Targets of tunnels.
const (
	targetAPI   = "api"
	targetRedis = "redis"
)

// live is the part of a principal that nothing else depends on: it hands bytes
// to tunnels.
type live struct {
	p          *principal
	reconciler *reconcile.Reconciler // asked between two of its inputs only
	agents     map[string]kind.Agent // of the node's goroutine
	hub        *resource.Hub
	openLocal  func(ctx context.Context, agent, target string) (net.Conn, error) // opens a tunnel to an agent that is connected here
	tally      resource.RequestCounter
	forwards   forwardCounts
	prefetcher *discoveryPrefetcher
	tokens     *tokens
	redis      *redis.Server
	clusters   *redis.ClusterInfo

	mu            sync.RWMutex
	sessionHolder map[string]string // agent → the other principal that has its session
	redisTargets  map[[2]string]redis.Target
	states        map[string]connectionState
}

type connectionState struct {
	connected bool
	since     time.Time
	spokeArgo string // Argo CD's namespace there
}

func newLive(p *principal, n *reconcile.Reconciler) *live {
	l := &live{p: p, reconciler: n, agents: map[string]kind.Agent{}, redisTargets: map[[2]string]redis.Target{}, states: map[string]connectionState{}, sessionHolder: map[string]string{}}
	l.openLocal = l.openHere
	cfg := p.cfg.Live
	if cfg.Resource != nil {
		l.hub = resource.NewHub(resource.HubConfig{Dial: l.dialAPI, Caller: l.caller, Token: l.byToken, Observe: l.tally.Observe, Log: p.log, Trace: p.cfg.Trace})
		l.prefetcher = newDiscoveryPrefetcher(l.prefetch)
		l.tokens = newTokens(l.hub.Recheck)
	}
	if cfg.Redis != nil {
		l.redis = redis.New(redis.Config{Hub: cfg.HubRedis, Agents: l, Tunnels: dialRedis{l}, Rewrite: l.rewrite, Log: p.log})
		l.clusters = &redis.ClusterInfo{Hub: cfg.HubRedis, Tunnels: dialRedis{l}, States: l.clusterStates, Compressed: cfg.RedisCompressed, Log: p.log}
	}
	return l
}

// runs lists what has to run.
func (l *live) runs() map[string]func(context.Context) error {
	out := map[string]func(context.Context) error{}
	if l.hub != nil {
		out["resource proxy"] = l.p.afterInitialSync(l.serveResources)
		out["discovery of agents' clusters"] = l.prefetcher.run
		out["tokens of cluster Secrets"] = kube.NewWatcher(l.p.client, l.p.registry.secretWatch(), l.tokens.apply, l.p.log, l.p.cfg.Jitter).Run
	}
	if l.redis != nil {
		out["Redis proxy"] = l.p.afterInitialSync(func(ctx context.Context) error { return l.redis.Run(ctx, l.p.cfg.Live.Redis) })
		out["cluster page"] = l.clusters.Run
	}
	return out
}

func (l *live) serveResources(ctx context.Context) error {
	defer l.hub.Close()
	server := resource.NewServer(ctx, l.hub, l.p.cfg.Live.ResourceTLS)
	server.TLSNextProto = l.forwardHandlers(ctx)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(l.p.cfg.Live.Resource, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// recheck ends requests of callers whose certificate was revoked meanwhile.
func (l *live) recheck() {
	if l.hub != nil {
		l.hub.Recheck()
	}
}

// prefetch asks an agent for what argocd-server needs while the agent is away.
func (l *live) prefetch(ctx context.Context, agent string) {
	if err := l.hub.PrefetchDiscovery(ctx, agent); err != nil {
		l.p.log.DebugContext(ctx, "cannot learn all about an agent's cluster", "agent", agent, "error", err)
	}
}

// writing makes trees old before an Application's new status can be read: who
// waited for the end of a refresh reads the tree right after.
func (l *live) writing(ref kind.Ref) {
	if l.redis != nil && ref.Resource == kind.Applications {
		l.redis.Invalidate(ref.Namespace, ref.Name)
	}
}

func (l *live) dialAPI(ctx context.Context, agent string) (net.Conn, error) {
	conn, err := l.open(ctx, agent, targetAPI)
	if away, ok := errors.AsType[*tunnel.NotConnectedError](err); ok {
		return nil, &resource.NotConnectedError{Agent: away.Agent, Since: away.Since}
	}
	if elsewhere, ok := errors.AsType[*RemoteSessionError](err); ok {
		return nil, &resource.NotConnectedError{Agent: agent, Message: elsewhere.Error()}
	}
	return conn, err
}

// dialRedis opens tunnels to agents' Redis.
type dialRedis struct{ live *live }

// Dial implements redis.Dialer.
func (d dialRedis) Dial(ctx context.Context, agent string) (net.Conn, error) {
	conn, err := d.live.open(ctx, agent, targetRedis)
	if away, ok := errors.AsType[*tunnel.NotConnectedError](err); ok {
		return nil, &redis.NotConnectedError{Agent: away.Agent, Since: away.Since}
	}
	return conn, err
}

func (l *live) open(ctx context.Context, agent, target string) (net.Conn, error) {
	conn, err := l.openLocal(ctx, agent, target)
	if away, ok := errors.AsType[*tunnel.NotConnectedError](err); ok {
		conn, err = l.forward(ctx, agent, target, away)
	}
	if err != nil {
		return nil, fmt.Errorf("open a tunnel to %s: %w", agent, err)
	}
	return conn, nil
}

// Resolve implements redis.Resolver.
func (l *live) Resolve(namespace, name string) (redis.Target, bool) {
	if namespace == "" {
		namespace = l.p.cfg.Namespace
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	t, ok := l.redisTargets[[2]string{namespace, name}]
	return t, ok
}

// follow keeps up with which Application is whose.
func (l *live) follow(in reconcile.Input) {
	if gone, ok := in.(reconcile.Unregister); ok && l.hub != nil {
		l.hub.Forget(gone.Agent)
	}
	if l.redis == nil {
		return
	}
	for _, ref := range l.reconciler.DecidedAgain() {
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
		if in.Resource == kind.Applications {
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
		l.redis.Forget(in.Agent)
	}
}

// rebuildTargets begins again. Nobody sees a list that is half made.
func (l *live) rebuildTargets() {
	places := map[[2]string]redis.Target{}
	l.reconciler.Applications(func(namespace, name string) {
		if t, ok := l.target(namespace, name); ok {
			places[[2]string{namespace, name}] = t
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.redisTargets = places
}

// updateTargetsOf places what a registration is about, and nothing else: a fleet
// registers one agent after the other.
func (l *live) updateTargetsOf(agent kind.Agent) {
	if agent.Name != "" {
		l.reconciler.ApplicationsOf(agent, l.updateTarget)
	}
}

func (l *live) updateTarget(namespace, name string) {
	t, ok := l.target(namespace, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if ok {
		l.redisTargets[[2]string{namespace, name}] = t
	} else {
		delete(l.redisTargets, [2]string{namespace, name})
	}
}

// target returns where the trees of an Application come from. For a frozen one
// no agent's tree is served.
func (l *live) target(namespace, name string) (redis.Target, bool) {
	p, ok := l.reconciler.Place(namespace, name)
	if !ok {
		agent, why, frozen := l.reconciler.Frozen(namespace, name)
		return redis.Target{Frozen: fmt.Sprintf("Application %s/%s of agent %s is frozen: %s", namespace, name, agent, why)}, frozen
	}
	t := redis.Target{Agent: p.Agent, Local: p.Name, Rewrite: l.agents[p.Agent].Mode == kind.Autonomous}
	if p.Namespace != "" {
		t.Local = p.Namespace + "_" + p.Name
	}
	return t, ok
}

// changed notes that an agent has come or gone.
func (l *live) changed(r reconcile.Report) {
	if r.Event.Type != engine.Opened && r.Event.Type != engine.Closed {
		return
	}
	l.mu.Lock()
	state := connectionState{connected: r.Event.Type == engine.Opened, since: time.Now(), spokeArgo: l.states[r.Agent].spokeArgo}
	if r.Event.Hello != nil {
		state.spokeArgo = r.Event.Hello.Namespace
	}
	l.states[r.Agent] = state
	l.mu.Unlock()
	if l.hub != nil && state.connected {
		l.prefetcher.add(r.Agent)
	}
	if l.redis != nil {
		l.redis.AgentChanged(r.Agent)
		l.clusters.Changed(r.Agent)
	}
}

// rewrite names Applications in what an autonomous agent's Argo CD has cached as
// the hub knows them.
func (l *live) rewrite(agent string, of redis.Kind, json []byte) []byte {
	reg, ok := l.p.registry.get(agent)
	if !ok {
		return json
	}
	l.mu.RLock()
	w := &kind.Env{Side: kind.Hub, Agent: reg.Agent, SpokeArgoNamespace: l.states[agent].spokeArgo}
	l.mu.RUnlock()
	if of == redis.ManagedResources {
		return kind.ManagedOnHub(json, w)
	}
	return kind.TreeOnHub(json, w)
}

func (l *live) clusterStates() []redis.ClusterState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	counts := map[string]int64{}
	for _, t := range l.redisTargets {
		counts[t.Agent]++ // frozen ones have none
	}
	var out []redis.ClusterState
	for _, name := range l.p.registry.names() {
		reg, ok := l.p.registry.get(name)
		if !ok {
			continue
		}
		if l.p.holder(name) != "" {
			continue // it answers for that one
		}
		c := l.states[name]
		out = append(out, redis.ClusterState{Agent: name, Server: reg.Agent.Server, Connected: c.connected, Since: c.since, Applications: counts[name]})
	}
	return out
}
