package principal

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// finalizerRemover lets Applications go whose deletion waits for a cluster that will
// never answer: those of retired agents, of agents with which Applications are
// not exchanged, and copies of agents that the hub does not know any more. It
// deletes nothing, and touches nothing that nobody has deleted.
type finalizerRemover struct {
	client         *kube.Client
	registry       *registry
	reconciler     *reconcile.Reconciler // asked between two of its inputs only
	withReconciler func(context.Context, func(*reconcile.Reconciler)) error
	scans          *workQueue // agents whose Applications have to be looked through
	removals       *workQueue // Applications, as namespace/name
	log            *slog.Logger

	mu      sync.Mutex
	noReply map[string]noReplyReason // agents for which there is any
}

// noReplyReason is why an agent will not answer for its Applications.
type noReplyReason struct{ retired, excluded bool }

func (r *finalizerRemover) prepare() *finalizerRemover {
	r.noReply = map[string]noReplyReason{}
	r.scans = (&workQueue{what: "look for deletions that wait", do: r.scan, parallel: 1, log: r.log}).prepare()
	r.removals = (&workQueue{what: "let an Application go", do: r.removeFinalizers, parallel: parallelReconciles, log: r.log}).prepare()
	return r
}

// agentChanged looks whether an agent was silenced just now.
func (r *finalizerRemover) agentChanged(agent string) {
	reg, _ := r.registry.get(agent)
	now := noReplyReason{retired: r.registry.retired(agent), excluded: reg.Agent.Excludes(kind.ApplicationScope)}
	r.mu.Lock()
	was := r.noReply[agent]
	if now != (noReplyReason{}) {
		r.noReply[agent] = now
	} else {
		delete(r.noReply, agent)
	}
	r.mu.Unlock()
	if now.retired && !was.retired || now.excluded && !was.excluded {
		r.scans.add(agent)
	}
}

// follow looks at Applications as they change. It is called by the goroutine that
// owns the node, after the node.
func (r *finalizerRemover) follow(in reconcile.Input) {
	switch in := in.(type) {
	case reconcile.Observed:
		r.check(in.Resource, in.Object)
	case reconcile.List:
		for _, o := range in.Objects {
			r.check(in.Resource, o)
		}
	}
}

func (r *finalizerRemover) check(of kind.Resource, o *kind.Object) {
	if of == kind.Applications && o.IsDeleting() && len(o.Finalizers()) > 0 && r.abandoned(r.reconciler, o) {
		r.removals.add(o.Namespace() + "/" + o.Name())
	}
}

// abandoned reports whether nobody will ever finish an Application's deletion.
func (r *finalizerRemover) abandoned(n *reconcile.Reconciler, o *kind.Object) bool {
	if agent, ok := agentOf(n, o.Namespace(), o.Name()); ok {
		return r.registry.retired(agent) || r.excluded(agent, o)
	}
	copyOf := o.Annotation(kind.AgentNameMark)
	return copyOf != "" && !r.registry.hasAgent(copyOf)
}

// agentOf returns the agent to which an Application belongs by the mapping,
// whether it may run there or is frozen.
func agentOf(n *reconcile.Reconciler, namespace, name string) (string, bool) {
	if place, ok := n.Place(namespace, name); ok {
		return place.Agent, true
	}
	agent, _, ok := n.Frozen(namespace, name)
	return agent, ok
}

// excluded reports whether an Application is for the cluster of an agent with which
// none are exchanged: so it does not hear of the deletion, and Argo CD on the hub
// leaves that cluster alone. One for another cluster may be the hub's to finish.
func (r *finalizerRemover) excluded(agent string, o *kind.Object) bool {
	reg, ok := r.registry.get(agent)
	if !ok || !reg.Agent.Excludes(kind.ApplicationScope) {
		return false
	}
	return kind.DestinedFor(o, reg.Agent)
}

// scan looks through the Applications of an agent that was silenced just now.
func (r *finalizerRemover) scan(ctx context.Context, agent string) error {
	return r.withReconciler(ctx, func(n *reconcile.Reconciler) {
		n.Applications(func(namespace, name string) {
			if of, ok := agentOf(n, namespace, name); ok && of == agent {
				r.removals.add(namespace + "/" + name)
			}
		})
	})
}

// removeFinalizers takes off what keeps an Application from going: the finalizers that
// Argo CD would see to. Those of others are theirs.
func (r *finalizerRemover) removeFinalizers(ctx context.Context, key string) error {
	namespace, name, _ := strings.Cut(key, "/")
	ref := kind.Ref{Resource: kind.Applications, Namespace: namespace, Name: name}
	o, err := r.client.Get(ctx, ref)
	if err != nil || o == nil || !o.IsDeleting() {
		return err
	}
	abandoned := false
	if err := r.withReconciler(ctx, func(n *reconcile.Reconciler) { abandoned = r.abandoned(n, o) }); err != nil || !abandoned {
		return err
	}
	kept := slices.DeleteFunc(o.Finalizers(), func(f string) bool { return strings.Contains(f, "finalizer.argocd.argoproj.io") })
	if len(kept) == len(o.Finalizers()) {
		return nil
	}
	_, err = r.client.Patch(ctx, ref, map[string]any{"metadata": map[string]any{"resourceVersion": o.ResourceVersion(), "finalizers": kept}})
	if err != nil && !kube.IsNotFound(err) {
		return fmt.Errorf("let Application %s go: %w", key, err)
	}
	r.log.InfoContext(ctx, "let a deleted Application go that nobody will finalise: its cluster is gone, or not told of Applications", "namespace", namespace, "name", name)
	return nil
}
