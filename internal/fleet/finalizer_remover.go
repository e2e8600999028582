package fleet

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
	"github.com/argocd-agent/argocd-agent/internal/tasks"
)

// FinalizerRemover completes the deletion of Applications that wait for a cluster that will not answer: Applications of
// retired agents, of agents that do not replicate Applications, and replicas of agents without Agent. It only removes
// finalizers from Applications that are terminating.
type FinalizerRemover struct {
	client     *kube.Client
	registry   *Registry
	reconciler *reconcile.Reconciler // used by Follow only
	do         func(context.Context, func(*reconcile.Reconciler)) error
	scans      queue // of agents
	removals   queue // of Applications, as namespace/name
	log        *slog.Logger

	mu      sync.Mutex
	noReply map[string]noReplyReason // by agent
}

type queue interface {
	Add(key string)
	Run(ctx context.Context) error
}

// noReplyReason is why an agent will not confirm deletions.
type noReplyReason struct{ retired, excluded bool }

// NewFinalizerRemover returns a FinalizerRemover. do calls a function with the reconciler.
func NewFinalizerRemover(client *kube.Client, registry *Registry, reconciler *reconcile.Reconciler, do func(context.Context, func(*reconcile.Reconciler)) error, log *slog.Logger) *FinalizerRemover {
	r := &FinalizerRemover{client: client, registry: registry, reconciler: reconciler, do: do, log: log, noReply: map[string]noReplyReason{}}
	r.scans = tasks.NewQueue(tasks.Config{Name: "find terminating Applications", Do: r.scan, Parallel: 1, Log: log})
	r.removals = tasks.NewQueue(tasks.Config{Name: "remove finalizers of Application", Do: r.removeFinalizers, Parallel: parallelReconciles, Log: log})
	registry.OnChange(r.agentChanged)
	return r
}

// Run removes finalizers until ctx ends.
func (r *FinalizerRemover) Run(ctx context.Context) error {
	return r.registry.runWhenReady(ctx, r.scans.Run, r.removals.Run)
}

func (r *FinalizerRemover) agentChanged(agent string) {
	reg, _ := r.registry.Get(agent)
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
		r.scans.Add(agent)
	}
}

// Follow checks Applications that change. It is called by the goroutine that owns the reconciler, after the reconciler.
func (r *FinalizerRemover) Follow(in reconcile.Input) {
	switch in := in.(type) {
	case reconcile.Observed:
		r.check(in.Resource, in.Object)
	case reconcile.List:
		for _, o := range in.Objects {
			r.check(in.Resource, o)
		}
	}
}

func (r *FinalizerRemover) check(of kind.Resource, o *kind.Object) {
	if of == kind.Applications && o.IsDeleting() && len(o.Finalizers()) > 0 && r.abandoned(r.reconciler, o) {
		r.removals.Add(o.Namespace() + "/" + o.Name())
	}
}

// abandoned reports whether no cluster will complete an Application's deletion.
func (r *FinalizerRemover) abandoned(n *reconcile.Reconciler, o *kind.Object) bool {
	if agent, ok := agentOf(n, o.Namespace(), o.Name()); ok {
		return r.registry.retired(agent) || r.excluded(agent, o)
	}
	replicaOf := o.Annotation(kind.AgentNameAnnotation)
	return replicaOf != "" && !r.registry.HasAgent(replicaOf)
}

// agentOf returns the agent to which an Application belongs by the mapping, placed or frozen.
func agentOf(n *reconcile.Reconciler, namespace, name string) (string, bool) {
	if place, ok := n.Place(namespace, name); ok {
		return place.Agent, true
	}
	agent, _, ok := n.Frozen(namespace, name)
	return agent, ok
}

// excluded reports whether the destination of an Application is the cluster of an agent that does not replicate
// Applications. Neither this agent nor Argo CD on the hub completes its deletion.
func (r *FinalizerRemover) excluded(agent string, o *kind.Object) bool {
	reg, ok := r.registry.Get(agent)
	if !ok || !reg.Agent.Excludes(kind.ApplicationScope) {
		return false
	}
	return kind.DestinedFor(o, reg.Agent)
}

func (r *FinalizerRemover) scan(ctx context.Context, agent string) error {
	return r.do(ctx, func(n *reconcile.Reconciler) {
		n.Applications(func(namespace, name string) {
			if of, ok := agentOf(n, namespace, name); ok && of == agent {
				r.removals.Add(namespace + "/" + name)
			}
		})
	})
}

// removeFinalizers removes the finalizers of Argo CD from a terminating, abandoned Application.
func (r *FinalizerRemover) removeFinalizers(ctx context.Context, key string) error {
	namespace, name, _ := strings.Cut(key, "/")
	ref := kind.Ref{Resource: kind.Applications, Namespace: namespace, Name: name}
	o, err := r.client.Get(ctx, ref)
	if err != nil || o == nil || !o.IsDeleting() {
		return err
	}
	abandoned := false
	if err := r.do(ctx, func(n *reconcile.Reconciler) { abandoned = r.abandoned(n, o) }); err != nil || !abandoned {
		return err
	}
	kept := slices.DeleteFunc(o.Finalizers(), func(f string) bool { return strings.Contains(f, "finalizer.argocd.argoproj.io") })
	if len(kept) == len(o.Finalizers()) {
		return nil
	}
	_, err = r.client.Patch(ctx, ref, map[string]any{"metadata": map[string]any{"resourceVersion": o.ResourceVersion(), "finalizers": kept}})
	if err != nil && !kube.IsNotFound(err) {
		return fmt.Errorf("remove finalizers of Application %s: %w", key, err)
	}
	r.log.InfoContext(ctx, "Removed finalizers from deleted Application", "namespace", namespace, "name", name)
	return nil
}
