package agent

import (
	"context"
	"net"
	"strings"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// Live is what the hub may reach on this cluster beside what is synchronised.
type Live struct {
	Resources bool // objects, logs and terminals
	Policy    resource.Policy
	Redis     *redis.Endpoint // of the local Argo CD; nil: resource trees stay here
}

// liveAccess is the part of an agent that nothing else depends on: it serves tunnels.
type liveAccess struct {
	a        *agent
	node     *reconcile.Reconciler // asked between two of its inputs only
	half     *resource.Agent
	tally    resource.RequestCounter
	arrivals *transport.TunnelListener
	relay    *redis.Relay
	trees    *redis.Trees
	objects  resource.Index

	mu           sync.Mutex
	apps         map[string]bool      // as Argo CD's keys name them
	hubNamespace string               // where the hub has copies of them; empty: it has none
	copies       map[string][2]string // name of such a copy → namespace and name here
}

func newLive(a *agent, n *reconcile.Reconciler) (*liveAccess, error) {
	l := &liveAccess{a: a, node: n, arrivals: transport.NewTunnelListener(), apps: map[string]bool{}, copies: map[string][2]string{}}
	cfg := a.cfg.Live
	if cfg.Redis != nil {
		l.relay = &redis.Relay{Redis: *cfg.Redis, Log: a.log}
		l.trees = &redis.Trees{Redis: *cfg.Redis, Apps: l.names, Changed: l.treeChanged, Log: a.log}
	}
	if cfg.Resources {
		server, err := resource.APIServerFor(a.cfg.Cluster)
		if err != nil {
			return nil, err
		}
		if l.half, err = resource.NewAgent(resource.AgentConfig{Server: server, Policy: cfg.Policy, Apps: &l.objects, Local: l.local, Observe: l.tally.Observe, Log: a.log, Trace: a.cfg.Trace,
			ArgoCD: a.cfg.Namespace, Autonomous: a.cfg.Mode == kind.Autonomous}); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// runs lists what has to run.
func (l *liveAccess) runs() map[string]func(context.Context) error {
	out := map[string]func(context.Context) error{}
	if l.half != nil {
		out["resource proxy"] = l.half.Run
		out["tunnels to the API server"] = l.accept
	}
	if l.trees != nil {
		out["resource trees"] = l.trees.Run
	}
	return out
}

// accept passes tunnels on to the proxy. They stay open for as long as it has
// them.
func (l *liveAccess) accept(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = l.arrivals.Close() })
	defer stop()
	for {
		conn, err := l.arrivals.Accept()
		if err != nil {
			return nil // the end
		}
		l.half.Serve(conn)
	}
}

// tunnels says who serves what the hub connects to.
func (l *liveAccess) tunnels() map[string]transport.TunnelHandler {
	out := map[string]transport.TunnelHandler{}
	if l.half != nil {
		out["api"] = l.arrivals.Handle
	}
	if l.relay != nil {
		out["redis"] = func(ctx context.Context, conn net.Conn) { _ = l.relay.Serve(ctx, conn) }
	}
	return out
}

// follow keeps up with which Applications there are.
func (l *liveAccess) follow(in reconcile.Input) {
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
		if in.Resource == kind.Applications {
			l.resyncApplications()
		}
	}
}

// resyncApplications begins again: what is not there any more has no objects.
func (l *liveAccess) resyncApplications() {
	l.mu.Lock()
	clear(l.copies)
	l.mu.Unlock()
	gone := map[string]bool{}
	for _, app := range l.names() {
		gone[app] = true
	}
	l.node.Applications(func(namespace, name string) {
		delete(gone, l.key(namespace, name))
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

// key is what Argo CD calls an Application in its cache.
func (l *liveAccess) key(namespace, name string) string {
	if namespace == l.a.cfg.Namespace {
		return name
	}
	return namespace + "_" + name
}

func (l *liveAccess) setApplication(namespace, name string, exists bool) {
	app := l.key(namespace, name)
	_, copied, _ := kind.HubNameOf(namespace, name, &kind.Env{Side: kind.Hub, SpokeArgoNamespace: l.a.cfg.Namespace})
	l.mu.Lock()
	fresh := exists && !l.apps[app]
	if exists {
		l.apps[app] = true
		l.copies[copied] = [2]string{namespace, name}
	} else {
		delete(l.apps, app)
		delete(l.copies, copied)
	}
	l.mu.Unlock()
	if fresh { // its tree may be older than what we know of it, and is told of only when it changes
		l.trees.Look(app)
	}
	if !exists {
		l.objects.Set(app, nil)
	}
}

// opened notes where the hub has copies of this cluster's Applications.
func (l *liveAccess) opened(hubNamespace string) {
	if l.a.cfg.Mode != kind.Autonomous {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hubNamespace = hubNamespace
}

// local is the name here of an object that the hub asks for. Argo CD's trees
// name Applications as the hub has them.
func (l *liveAccess) local(group, plural, namespace, name string) (localNamespace, localName string) {
	if group != kind.Applications.Group || plural != kind.Applications.Plural {
		return namespace, name
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if here, ok := l.copies[name]; ok && l.hubNamespace != "" && namespace == l.hubNamespace {
		return here[0], here[1]
	}
	return namespace, name
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

// treeChanged notes which objects belong to an Application. The Application is
// one of them: its parent may show it.
func (l *liveAccess) treeChanged(app string, parts [][]byte) {
	var nodes []resource.Node
	for _, part := range parts {
		more, err := resource.Nodes(part)
		if err != nil {
			l.a.log.Warn("cannot read a resource tree", "application", strings.ReplaceAll(app, "_", "/"), "error", err)
			return
		}
		nodes = append(nodes, more...)
	}
	l.mu.Lock()
	defer l.mu.Unlock() // an Application that goes right now must not leave its objects behind
	if l.apps[app] {
		l.objects.Set(app, nodes)
	}
}
