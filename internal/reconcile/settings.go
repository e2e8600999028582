package reconcile

import (
	"cmp"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file handles the settings of the hub's Argo CD.

// argoSettings handles new settings of Argo CD. If the tracking label changes, every projection changes, so all syncs
// start again.
func (n *Reconciler) argoSettings(in ArgoSettings) {
	if n.cfg.Side != kind.Hub {
		return
	}
	again := in.InstanceLabel != n.argo.InstanceLabel
	before := n.settingsID()
	if n.argo = in; n.settingsID() != before {
		n.fleet.beganAt = n.now
	}
	clear(n.placements.rules)
	for _, l := range n.sortedSyncs() {
		if again {
			n.resetSync(l)
		}
		l.env.GlobalProjects = in.GlobalProjects
	}
	if !again {
		n.notifyProjects()
	}
}

// resetSync starts the sync of an agent again. The agent reconnects.
func (n *Reconciler) resetSync(l *agentSync) {
	status := l.peer.Status()
	n.unregister(l.name, "the settings of the hub's Argo CD have changed")
	n.register(Register{Agent: l.env.Agent, KnownCluster: l.cluster, KnownStore: status.Other, StoreUntrusted: status.StoreHoldID != ""})
}

// globalChanged publishes projects again when a project changes that they inherit from.
func (n *Reconciler) globalChanged(was, is *kind.Object) {
	o := cmp.Or(is, was)
	if !slices.ContainsFunc(n.argo.GlobalProjects, func(g kind.GlobalProject) bool { return g.Name == o.Name() }) {
		return
	}
	if rev := n.repositories.rulesChangedAt[o.Name()]; rev != 0 { // their rules have changed with it
		for name := range n.cache.tables[kind.AppProjects].objects {
			n.repositories.rulesChangedAt[name.name] = max(n.repositories.rulesChangedAt[name.name], rev)
		}
	}
	n.notifyProjects()
}

// notifyProjects publishes all projects and repositories again.
func (n *Reconciler) notifyProjects() {
	for _, o := range sortedObjects(n.cache.tables[kind.AppProjects].objects) {
		for _, l := range n.affectedSyncs(kind.AppProjects, o, o) {
			l.notify(kind.AppProjects, o, o, true)
		}
	}
	for _, o := range sortedObjects(n.cache.tables[kind.Secrets].objects) {
		n.notifySyncs(kind.Secrets, o, o, true)
	}
	n.decideAllAgain()
}
