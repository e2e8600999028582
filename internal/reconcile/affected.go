package reconcile

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// affectedSyncs returns the syncs that a change may affect, without projecting the object for each of them.
func (n *Reconciler) affectedSyncs(r kind.Resource, was, is *kind.Object) []*agentSync {
	if n.cfg.Side == kind.Spoke {
		return n.sortedSyncs()
	}
	switch r {
	case kind.Applications:
		return n.affectedByApplication(was, is)
	case kind.AppProjects:
		return n.matchingSyncs(kind.AppProjectScope, was, is, kind.MatchProject)
	case kind.Secrets:
		return n.matchingSyncs(kind.RepositoryScope, was, is, kind.MatchRepository)
	case kind.ConfigMaps:
		if !isGPGKeys(was) && !isGPGKeys(is) {
			return nil // not replicated
		}
	}
	return n.sortedSyncs()
}

func isGPGKeys(o *kind.Object) bool { return o != nil && (kind.GPGKeyKind{}).Matches(o) }

func (n *Reconciler) affectedByApplication(was, is *kind.Object) []*agentSync {
	var out []*agentSync
	add := func(l *agentSync) {
		if slices.Contains(out, l) {
			return
		}
		out = append(out, l)
	}
	for _, o := range []*kind.Object{was, is} {
		if o == nil {
			continue
		}
		for _, l := range n.byNS[o.Namespace()] {
			add(l)
		}
		for _, l := range n.byDestination(o) {
			add(l)
		}
	}
	return out
}

// matchingSyncs returns the syncs that may get a project or a repository as it is, those that have it from before, and
// the autonomous agent whose replica it is or was.
func (n *Reconciler) matchingSyncs(scope string, was, is *kind.Object, of func(*kind.Object, *kind.Env) kind.AgentMatcher) []*agentSync {
	o := is
	if o == nil {
		o = was
	}
	w := kind.Env{Side: kind.Hub, HubArgoNamespace: n.cfg.ArgoNamespace, Settings: n.cfg.Settings, GlobalProjects: n.argo.GlobalProjects, Find: n.cache.get}
	reach := of(o, &w)
	hash := engine.Key{Name: o.Name()}.Hash() // both kinds have this key where the hub is their owner
	var out []*agentSync
	for _, l := range n.sortedSyncs() {
		if reach.Matches(l.env.Agent) || l.peer.Publishes(scope, hash) {
			out = append(out, l)
		}
	}
	return out
}
