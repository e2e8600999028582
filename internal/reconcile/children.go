package reconcile

import (
	"cmp"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file publishes child Applications of a managed spoke when their parents change. See kind.ChildKind.

// notifyChildren publishes the children of an Application again, or withdraws them, if it became or is no longer one that
// has published children.
func (l *agentSync) notifyChildren(was, is *kind.Object, generations int) {
	if !l.env.Agent.Children || l.reconciler.cfg.Side != kind.Spoke || generations == 0 || was != nil && is != nil && l.sameParent(was, is) {
		return
	}
	parent := refOf(kind.Applications, cmp.Or(is, was))
	for _, o := range l.objects(kind.Applications) {
		if ref, ok := kind.ParentOf(o, &l.env); ok && ref == parent && !kind.ReadOwnership(o, &l.env).Owned {
			l.notify(kind.Applications, o, o, true)
			l.notifyChildren(nil, o, generations-1)
		}
	}
}

// sameParent reports whether two states of an Application have the same published children.
func (l *agentSync) sameParent(was, is *kind.Object) bool {
	before, _ := kind.ParentOf(was, &l.env)
	after, _ := kind.ParentOf(is, &l.env)
	return before == after && kind.ReadOwnership(was, &l.env).Owned == kind.ReadOwnership(is, &l.env).Owned
}
