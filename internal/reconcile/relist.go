package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file limits how often a resource is listed because more is needed than its watch has shown. A full list is the
// most expensive request of a large hub, and the agent reports what it has seen: it may restart constantly, or be
// hostile. Each watch reports its progress once a minute, which is the fallback.

// relistEvery is the minimum time between two lists of a resource. A list may take that long.
const relistEvery = 30 * engine.Second

// relistForOne is the minimum time between two lists for one agent.
const relistForOne = 600 * engine.Second

// relist requests a list if that is due, and reports whether it is.
func (n *Reconciler) relist(r kind.Resource) bool {
	t := n.cache.tables[r]
	if n.now < t.listAt {
		return false
	}
	t.listAt = n.now + relistEvery
	n.emit(Relist{Resource: r})
	return true
}

// askForLists requests lists of resources of which the peer has seen more than this side, as far as they are due. It
// returns when to check again.
func (l *agentSync) askForLists(late []kind.Resource) engine.Time {
	n := l.reconciler
	if again := l.listedAt + relistForOne; n.cfg.Side == kind.Hub && l.listedAt != 0 && n.now < again {
		return again
	}
	again := n.now + relistEvery
	for _, r := range late {
		if n.relist(r) {
			l.listedAt = n.now
		} else {
			again = min(again, n.cache.tables[r].listAt)
		}
	}
	return again
}
