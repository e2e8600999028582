package node

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// missing is what is remembered of a spoke's Application that is gone. If it is
// put back, for the same Application of the hub, commands that it has carried
// out are not given to it again, nor do they stay pending on the hub for ever.
type missing struct {
	source string // UID of the hub's Application
	record string // of commands
	at     engine.Time
	ours   bool // we removed it
}

// missMost and missLong bound what is remembered: how many, and how long.
const (
	missMost = 10_000
	missLong = 300 * engine.Second
)

// miss notes that an Application which came from the hub is gone.
func (n *Node) miss(ref kind.Ref, old *kind.Object) {
	l := n.links[""]
	if ref.Resource != kind.Applications || l == nil || l.world.Agent.Mode != kind.Managed || len(n.missed) >= missMost {
		return
	}
	if mark := kind.ReadMark(old, &l.world); mark.Owned {
		n.missed[ref] = missing{source: mark.Source, record: kind.Record(old), at: n.now}
	}
}

// forgetMissed drops what has not come back for long.
func (n *Node) forgetMissed() {
	for ref, m := range n.missed {
		if n.now-m.at >= missLong {
			delete(n.missed, ref)
		}
	}
}
