package node

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is about what the hub's Argo CD has set for all.

// argoSettings takes over what Argo CD is set to. Another label to track by
// changes what every object looks like to the other side: then all begins anew.
func (n *Node) argoSettings(in ArgoSettings) {
	if n.cfg.Side != kind.Hub {
		return
	}
	anew := in.InstanceLabel != n.argo.InstanceLabel
	before := n.settingsID()
	if n.argo = in; n.settingsID() != before {
		n.fleet.beganAt = n.now
	}
	clear(n.placements.rules)
	for _, l := range n.sortedLinks() {
		if anew {
			n.renew(l)
		}
		l.world.GlobalProjects = in.GlobalProjects
	}
	if !anew {
		n.tellProjects()
	}
}

// renew begins the relation with an agent anew; it connects again.
func (n *Node) renew(l *link) {
	status := l.peer.Status()
	n.unregister(l.name, "the settings of the hub's Argo CD have changed")
	n.register(Register{Agent: l.world.Agent, KnownCluster: l.cluster, KnownStore: status.Other, Suspect: status.Suspect != ""})
}

// globalChanged looks again at projects when one changes that they inherit from.
func (n *Node) globalChanged(was, is *kind.Object) {
	o := is
	if o == nil {
		o = was
	}
	if !slices.ContainsFunc(n.argo.GlobalProjects, func(g kind.GlobalProject) bool { return g.Name == o.Name() }) {
		return
	}
	if rev := n.follow.ruled[o.Name()]; rev != 0 { // their rules have changed with it
		for name := range n.cache.tables[kind.AppProjects].objects {
			n.follow.ruled[name.name] = max(n.follow.ruled[name.name], rev)
		}
	}
	n.tellProjects()
}

// tellProjects tells of every project, and of the repositories that follow them,
// as they are now.
func (n *Node) tellProjects() {
	for _, o := range sortedObjects(n.cache.tables[kind.AppProjects].objects) {
		for _, l := range n.concerned(kind.AppProjects, o, o) {
			l.tell(kind.AppProjects, o, o, true)
		}
	}
	for _, o := range sortedObjects(n.cache.tables[kind.Secrets].objects) {
		n.tell(kind.Secrets, o, o, true)
	}
	n.decideAllAgain()
}
