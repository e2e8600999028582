package agent

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// Live configures live access from the hub to this cluster.
type Live struct {
	Resources bool // objects, logs and exec sessions
	Policy    resource.Policy
	Callers   resource.Callers // what is done with callers of live requests
	Redis     *redis.Endpoint  // of the local Argo CD. If nil, the hub cannot read resource trees.
}

// liveAccess serves the hub's tunnels.
type liveAccess struct {
	a              *agent
	core           *reconcile.Reconciler // used only between two of its inputs
	proxy          *resource.Agent
	requests       *resource.RequestCounter
	tunnelListener *tunnel.Listener
	relay          *redis.Relay
	trees          *redis.Trees
	objects        resource.Index

	mu           sync.Mutex
	apps         map[string]bool      // by Argo CD's cache key
	hubNamespace string               // of the replicas on the hub; empty if there are none
	hubNames     map[string][2]string // name on the hub to namespace and name on this cluster
}

func newLive(a *agent, n *reconcile.Reconciler) (*liveAccess, error) {
	l := &liveAccess{a: a, core: n, tunnelListener: tunnel.NewListener(), requests: resource.NewRequestCounter("argocd_agent"), apps: map[string]bool{}, hubNames: map[string][2]string{}}
	cfg := a.cfg.Live
	if cfg.Redis != nil {
		l.relay = &redis.Relay{Redis: *cfg.Redis}
		l.trees = redis.NewTrees(*cfg.Redis, l.names, l.treeChanged, a.log)
	}
	if cfg.Resources {
		server, err := resource.APIServerFor(a.cfg.Cluster)
		if err != nil {
			return nil, err
		}
		if l.proxy, err = resource.NewAgent(resource.AgentConfig{Server: server, Policy: cfg.Policy, Apps: &l.objects, LocalName: l.localName, Observe: l.requests.Observe, Log: a.log, Trace: a.cfg.Trace, Audit: a.cfg.Audit, MayImpersonate: l.mayImpersonate, Callers: cfg.Callers, User: newOwnUser(a.client),
			ArgoCD: a.cfg.Namespace, Autonomous: a.cfg.Mode == kind.Autonomous}); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *liveAccess) runs() map[string]func(context.Context) error {
	out := map[string]func(context.Context) error{}
	if l.proxy != nil {
		out["resource proxy"] = l.proxy.Run
		out["tunnels to the API server"] = l.accept
	}
	if l.trees != nil {
		out["resource trees"] = l.trees.Run
	}
	return out
}

func (l *liveAccess) accept(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = l.tunnelListener.Close() })
	defer stop()
	for {
		conn, err := l.tunnelListener.Accept()
		if err != nil {
			return nil
		}
		l.proxy.Serve(conn)
	}
}

// tunnels returns the handler of each tunnel target.
func (l *liveAccess) tunnels() map[string]tunnel.Handler {
	out := map[string]tunnel.Handler{"replicas": l.a.serveReplicas}
	if l.proxy != nil {
		out["api"] = l.tunnelListener.Handle
	}
	if l.relay != nil {
		out["redis"] = func(ctx context.Context, conn net.Conn) { _ = l.relay.Serve(ctx, conn) }
	}
	return out
}

func (l *liveAccess) applied(in reconcile.Input) {
	if l.trees == nil {
		return
	}
	switch in := in.(type) {
	case reconcile.Observed:
		if in.Resource == kind.Applications {
			l.setApplication(in.Object.Namespace(), in.Object.Name(), true)
		}
	case reconcile.Deleted:
		if in.Ref.Resource == kind.Applications {
			l.setApplication(in.Ref.Namespace, in.Ref.Name, false)
		}
	case reconcile.List:
		if in.Resource == kind.Applications && !in.More {
			l.resyncApplications()
		}
	}
}

// resyncApplications replaces the set of Applications after a list.
func (l *liveAccess) resyncApplications() {
	l.mu.Lock()
	clear(l.hubNames)
	l.mu.Unlock()
	gone := map[string]bool{}
	for _, app := range l.names() {
		gone[app] = true
	}
	l.core.Applications(func(namespace, name string) {
		delete(gone, l.cacheKey(namespace, name))
		l.setApplication(namespace, name, true)
	})
	l.mu.Lock()
	for app := range gone {
		delete(l.apps, app)
	}
	l.mu.Unlock()
	for app := range gone {
		l.objects.Set(app, nil)
	}
}

// cacheKey returns Argo CD's cache key of an Application.
func (l *liveAccess) cacheKey(namespace, name string) string {
	if namespace == l.a.cfg.Namespace {
		return name
	}
	return namespace + "_" + name
}

func (l *liveAccess) setApplication(namespace, name string, exists bool) {
	app := l.cacheKey(namespace, name)
	_, copied, _ := (&kind.Env{Side: kind.Hub, SpokeArgoNamespace: l.a.cfg.Namespace}).HubNameOf(namespace, name)
	l.mu.Lock()
	fresh := exists && !l.apps[app]
	if exists {
		l.apps[app] = true
		l.hubNames[copied] = [2]string{namespace, name}
	} else {
		delete(l.apps, app)
		delete(l.hubNames, copied)
	}
	l.mu.Unlock()
	if fresh { // its tree may exist already, and Redis reports only changes
		l.trees.Look(app)
	}
	if !exists {
		l.objects.Set(app, nil)
	}
}

// opened records the namespace of this cluster's Applications on the hub.
func (l *liveAccess) opened(w engine.Welcome) {
	agent := kind.Agent{Mode: l.a.cfg.Mode, Mapping: kind.Mapping(w.Mapping), Children: slices.Contains(w.Capabilities, kind.ChildCapability)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hubNamespace = ""; agent.RenamesApplications() {
		l.hubNamespace = w.HubNamespace
	}
}

// localName returns the name on this cluster of an object that the hub requests. The hub's trees have the hub's names.
func (l *liveAccess) localName(group, plural, namespace, name string) (localNamespace, localName string) {
	if group != kind.Applications.Group || plural != kind.Applications.Plural {
		return namespace, name
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if here, ok := l.hubNames[name]; ok && l.hubNamespace != "" && namespace == l.hubNamespace {
		return here[0], here[1]
	}
	return namespace, name
}

// mayImpersonate reports whether the AppProject of an Application names a ServiceAccount. It asks the core, so that a project
// that has just changed counts.
func (l *liveAccess) mayImpersonate(ctx context.Context, app, user string) bool {
	var may atomic.Bool // Do can return before the core has answered
	err := l.a.runner.Do(ctx, func(n *reconcile.Reconciler) { may.Store(n.MayImpersonate(app, user)) })
	return err == nil && may.Load()
}

func (l *liveAccess) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]string, 0, len(l.apps))
	for app := range l.apps {
		out = append(out, app)
	}
	return out
}

// treeChanged records which objects belong to an Application. The Application is one of them, for an app of apps.
func (l *liveAccess) treeChanged(app string, parts [][]byte) {
	var nodes []resource.Node
	for _, part := range parts {
		more, err := resource.Nodes(part, l.a.cfg.Live.Policy.Orphans)
		if err != nil {
			l.a.log.Warn("Failed to read resource tree", "application", strings.ReplaceAll(app, "_", "/"), "error", err)
			return
		}
		nodes = append(nodes, more...)
	}
	l.mu.Lock()
	defer l.mu.Unlock() // so that a concurrent deletion does not leave objects behind
	if l.apps[app] {
		l.objects.Set(app, nodes)
	}
}
