package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file bounds how often a resource is listed because somebody needs to know
// more than its watch has shown. A full list is the most expensive thing that a
// large hub does, and an agent decides what it claims to have seen: it may restart
// all the time, or be hostile. A watch says by itself how far it has come, once a
// minute, so who is not helped by a list waits for that.

// relistEvery is the pause between two lists of a resource, whoever asks for them.
// A list may take that long.
const relistEvery = 30 * engine.Second

// relistForOne is the pause between two lists on behalf of one agent.
const relistForOne = 600 * engine.Second

// relist asks for a list, if that is due, and reports whether it is.
func (n *Reconciler) relist(r kind.Resource) bool {
	t := n.cache.tables[r]
	if n.now < t.listAt {
		return false
	}
	t.listAt = n.now + relistEvery
	n.emit(Relist{Resource: r})
	return true
}

// askForLists asks for lists of resources of which the peer has seen more than we
// have, as far as they are due, and returns when to look again.
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
