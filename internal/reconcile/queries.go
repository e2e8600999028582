package reconcile

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Projects calls f for the hub's projects that permit an agent's cluster, with the repositories that each permits. For
// an autonomous agent these are the hub's own projects too: replicas of what the agent wrote do not decide what the hub
// gives it.
func (n *Reconciler) Projects(agent string, f func(name string, sourceRepos []string)) {
	l := n.syncs[agent]
	if l == nil {
		return
	}
	world := l.env
	if world.Agent.Mode == kind.Autonomous { // the namespace of an Application does not matter
		world.Agent.Mode, world.Agent.Mapping = kind.Managed, kind.ByDestination
	} else if world.Agent.Excludes(kind.AppProjectScope) {
		return
	}
	for _, o := range sortedObjects(n.cache.tables[kind.AppProjects].objects) {
		if o.Annotation(kind.PrincipalUID) != "" && !kind.IsRestored(o, &world) {
			continue
		}
		item, ok := (kind.AppProjectKind{}).Publish(o, &world)
		if !ok {
			continue
		}
		repos, _ := rawjson.Strings(rawjson.Get(item.Content, "spec", "sourceRepos")) // including inherited ones
		f(o.Name(), repos)
	}
}

// Repositories calls f for the repository Secrets of the hub, and whether each is sent to an agent.
func (n *Reconciler) Repositories(agent string, f func(secret *kind.Object, placed bool)) {
	l := n.syncs[agent]
	if l == nil {
		return
	}
	s := l.scope(kind.RepositoryScope)
	for _, o := range sortedObjects(n.cache.tables[kind.Secrets].objects) {
		if !(kind.RepositoryKind{}).Matches(o) || kind.CanPush(o) {
			continue
		}
		placed := false
		if s != nil {
			_, placed = l.publish(s, o)
		}
		f(o, placed)
	}
}

// Object returns an object of the local cluster, or nil.
func (n *Reconciler) Object(ref kind.Ref) *kind.Object { return n.cache.get(ref) }

// Application returns the hub's Application that is placed on a managed agent under an instance name: its name or,
// outside of Argo CD's namespace, namespace_name. It returns nil if there is none.
func (n *Reconciler) Application(agent, instance string) *kind.Object {
	l := n.syncs[agent]
	if l == nil {
		return nil
	}
	if o := kind.PlacedApplication(instance, &l.env); o != nil && !o.IsReduced() {
		return o
	}
	return nil
}

// MayImpersonate reports whether the AppProject of a spoke's Application names the user, a ServiceAccount, for its
// deployment. If instance is empty, any Application of the cluster counts. An instance is the name of an Application or,
// outside of Argo CD's namespace, namespace_name.
func (n *Reconciler) MayImpersonate(instance, user string) bool {
	names := func(app *kind.Object) bool {
		project := n.cache.get(n.projectRef(kind.ProjectOf(app)))
		return project != nil && user != "" && kind.ServiceAccountUser(app, project) == user
	}
	if instance != "" {
		ref := kind.Ref{Resource: kind.Applications, Namespace: n.cfg.ArgoNamespace, Name: instance}
		if namespace, name, other := strings.Cut(instance, "_"); other {
			ref.Namespace, ref.Name = namespace, name
		}
		app := n.cache.get(ref)
		return app != nil && names(app)
	}
	for _, app := range n.cache.tables[kind.Applications].objects {
		if names(app) {
			return true
		}
	}
	return false
}
