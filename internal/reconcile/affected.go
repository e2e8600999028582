package reconcile

import (
	"cmp"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// affectedSyncs returns the syncs that a change may affect, without projecting the object for each of them.
func (n *Reconciler) affectedSyncs(r kind.Resource, was, is *kind.Object) []*agentSync {
	if n.cfg.Side == kind.Spoke || n.isStandby() {
		return n.sortedSyncs()
	}
	if r == kind.Applications {
		return n.affectedByApplication(was, is)
	}
	var out []*agentSync
	for _, k := range n.kinds {
		if k.Resource() != r || !matches(k, was) && !matches(k, is) {
			continue
		}
		if k.traits.Agents == nil {
			return n.sortedSyncs()
		}
		first := len(out) == 0
		out = append(out, n.matchingSyncs(k, was, is)...)
		if !first { // another kind of the same resource
			slices.SortFunc(out, compareSyncs)
			out = slices.Compact(out)
		}
	}
	return out
}

func matches(k kind.Kind, o *kind.Object) bool { return o != nil && k.Matches(o) }

func (n *Reconciler) affectedByApplication(was, is *kind.Object) []*agentSync {
	var out []*agentSync
	for _, o := range []*kind.Object{was, is} {
		if o == nil {
			continue
		}
		for _, l := range slices.Concat(n.byNS[o.Namespace()], n.byDestination(o)) {
			if !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	return out
}

// envWithoutAgent returns the hub's Env for what does not depend on an agent.
func (n *Reconciler) envWithoutAgent() *kind.Env {
	return &kind.Env{Side: kind.Hub, HubArgoNamespace: n.cfg.ArgoNamespace, Settings: n.cfg.Settings, GlobalProjects: n.argo.GlobalProjects, Find: n.cache.get}
}

// matchingSyncs returns the syncs that may get an object as it is, and those that have it from before.
func (n *Reconciler) matchingSyncs(k kindTraits, was, is *kind.Object) []*agentSync {
	o := cmp.Or(is, was)
	agents := k.traits.Agents(o, n.envWithoutAgent())
	hash := engine.Key{Name: o.Name()}.Hash()
	var out []*agentSync
	for _, l := range n.sortedSyncs() {
		if agents.Matches(l.env.Agent) || l.peer.Publishes(k.Scope(), hash) {
			out = append(out, l)
		}
	}
	return out
}
