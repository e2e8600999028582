package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// deletedApplication is what is remembered of a spoke's Application that is gone. If it is
// put back, for the same Application of the hub, commands that it has carried
// out are not given to it again, nor do they stay pending on the hub forever.
type deletedApplication struct {
	source string // UID of the hub's Application
	record string // of commands
	at     engine.Time
	ours   bool // we removed it
}

// maxDeleted and missLong bound what is remembered: how many, and how long.
const (
	maxDeleted = 10_000
	deletedTTL = 300 * engine.Second
)

// rememberDeleted notes that an Application which came from the hub is gone.
func (n *Reconciler) rememberDeleted(ref kind.Ref, old *kind.Object) {
	l := n.syncs[""]
	if ref.Resource != kind.Applications || l == nil || l.env.Agent.Mode != kind.Managed || len(n.deleted) >= maxDeleted {
		return
	}
	if mark := kind.ReadOwnership(old, &l.env); mark.Owned {
		n.deleted[ref] = deletedApplication{source: mark.Source, record: kind.ReadReceipt(old), at: n.now}
	}
}

// forgetDeleted drops what has not come back for long.
func (n *Reconciler) forgetDeleted() {
	for ref, m := range n.deleted {
		if n.now-m.at >= deletedTTL {
			delete(n.deleted, ref)
		}
	}
}
