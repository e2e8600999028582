package reconcile

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// A session may last for months, and Applications come and go in it.
func TestReconciler_ForgetsDeletedApplication(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	r := ref("w1", "a")
	p.user(kind.Hub, r, app("w1", "a", "default", "v1"))
	n := p.sides[kind.Hub]
	l, key := n.syncs["w1"], engine.Key{Name: "a"}
	setNote(&l.conditionsWrittenAt, key, 1)
	setNote(&l.refreshes, key, refresh{refresh: "normal", nonce: "x"})
	setNote(&l.finalized, key, "uid")
	uid := p.stores[kind.Hub].objects[r].UID()
	delete(p.stores[kind.Hub].objects, r)
	p.step(kind.Hub, Deleted{Ref: r, UID: uid})
	p.settle()
	if load := n.Stats(); load.Notes > 0 {
		t.Errorf("%d notes are kept", load.Notes)
	}
}
