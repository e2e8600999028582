package reconcile

import (
	"maps"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// deletedApplication is what is remembered of a deleted Application of the spoke. If it is restored for the same
// Application of the hub, the commands that it has executed do not run again and do not stay pending on the hub.
type deletedApplication struct {
	source string // UID of the hub's Application
	record string // receipt of commands
	at     engine.Time
	ours   bool // we deleted it
}

// Limits of what is remembered.
const (
	maxDeleted = 10_000
	deletedTTL = 300 * engine.Second
)

// rememberDeleted remembers that an Application from the hub is gone.
func (n *Reconciler) rememberDeleted(ref kind.Ref, old *kind.Object) {
	l := n.syncs[""]
	if ref.Resource != kind.Applications || l == nil || l.env.Agent.Mode != kind.Managed || len(n.deleted) >= maxDeleted {
		return
	}
	if ownership := kind.ReadOwnership(old, &l.env); ownership.Owned {
		n.deleted[ref] = deletedApplication{source: ownership.Source, record: kind.ReadReceipt(old), at: n.now}
	}
}

// forgetDeleted drops what was not restored for long.
func (n *Reconciler) forgetDeleted() {
	maps.DeleteFunc(n.deleted, func(_ kind.Ref, m deletedApplication) bool { return n.now-m.at >= deletedTTL })
}
