package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is about what becomes known of the local cluster's objects.

// observed takes an object from the watch, from a list, or from a write's answer.
// Whatever is older than what is known is passed over.
func (n *Reconciler) observed(r kind.Resource, o *kind.Object) {
	if t := n.cache.tables[r]; t == nil || t.gone[o.UID()] {
		return
	}
	old, changed := n.cache.put(r, o)
	ref := refOf(r, o)
	if !changed {
		if revision(old) == revision(o) {
			n.objectChanged(ref) // read again, and found as it was
		}
		return
	}
	if old != nil && old.UID() != o.UID() {
		// Deleted and created again: two events that came as one.
		n.notifySyncs(r, old, nil, true)
		old = nil
	}
	delete(n.deleted, ref)
	n.notifySyncs(r, old, o, true)
	n.reconcileObject(r, o)
	n.objectChanged(ref)
}

// removed takes the disappearance of an object. Watched: it was seen to happen.
func (n *Reconciler) removed(ref kind.Ref, uid string, rev uint64, watched bool) {
	old := n.cache.get(ref)
	if old == nil {
		n.objectChanged(ref)
		return
	}
	if uid != "" && uid != old.UID() || rev != 0 && rev < revision(old) {
		return // of an earlier object of that name
	}
	t := n.cache.tables[ref.Resource]
	t.newest = max(t.newest, rev)
	n.cache.drop(ref)
	delete(n.retries, ref)
	delete(n.repositories.reads, ref) // the answer may be from before
	delete(n.repositories.verifiedAt, ref)
	n.rememberDeleted(ref, old)
	n.notifySyncs(ref.Resource, old, nil, watched)
	n.afterLoss(ref.Resource, old)
	n.objectChanged(ref)
}

// knownGone is lost for an object of which the watch has not told yet.
func (n *Reconciler) knownGone(ref kind.Ref, uid string, rev uint64) {
	if old := n.cache.get(ref); old != nil && (uid == "" || uid == old.UID()) {
		n.cache.tables[ref.Resource].gone[old.UID()] = true
	}
	n.removed(ref, uid, rev, true)
}

// listed replaces what is known of a resource by a consistent list.
func (n *Reconciler) listed(in List) {
	t := n.cache.tables[in.Resource]
	if t == nil {
		return
	}
	present := make(map[objectName]bool, len(in.Objects))
	still := map[string]bool{}
	for _, o := range in.Objects {
		if t.gone[o.UID()] {
			still[o.UID()] = true // the list is older than what we know
			continue
		}
		present[nameOf(o)] = true
		n.observed(in.Resource, o)
	}
	t.gone = still
	for _, o := range sortedObjects(t.objects) {
		if !present[nameOf(o)] && revision(o) <= in.Revision {
			n.removed(refOf(in.Resource, o), o.UID(), 0, false)
		}
	}
	t.complete, t.read, t.reason = true, true, ""
	n.advance(in.Resource, in.Revision)
	if in.Resource == kind.AppProjects {
		n.decideAll()
	}
	n.retryDeferred() // while there was no list, nothing was asked for
	n.viewChanged(in.Resource)
}

// unreadable notes that a resource cannot be read. What is known of it stays, but
// nothing is concluded from what is not.
func (n *Reconciler) unreadable(in Unreadable) {
	if t := n.cache.tables[in.Resource]; t != nil {
		t.complete, t.reason = false, in.Reason
		n.viewChanged(in.Resource)
	}
}

func (n *Reconciler) viewChanged(r kind.Resource) {
	for _, l := range n.sortedSyncs() {
		l.tellView(r)
		l.tryBegin()
	}
}

// advance notes how far a watch has come.
func (n *Reconciler) advance(r kind.Resource, rev uint64) {
	t := n.cache.tables[r]
	if t == nil || rev <= t.frontier {
		return
	}
	t.frontier = rev
	if r == kind.Secrets {
		n.forgetRules()
	}
	n.retryDeferred()
	n.beginAll()
}

// notifySyncs passes a change on to the links that it may concern.
func (n *Reconciler) notifySyncs(r kind.Resource, was, is *kind.Object, watched bool) {
	if r == kind.Secrets && n.deferRepository(was, is) {
		return
	}
	for _, l := range n.affectedSyncs(r, was, is) {
		l.notify(r, was, is, watched)
	}
	if r == kind.AppProjects {
		n.projectChanged(was, is)
		n.rulesChanged(was, is)
		n.globalChanged(was, is)
	}
}

// reconcileObject does for an object what is ours to do beside replicating it.
func (n *Reconciler) reconcileObject(r kind.Resource, o *kind.Object) {
	if n.cfg.Side == kind.Hub {
		n.tendHub(r, o)
		return
	}
	switch l := n.syncs[""]; r {
	case kind.Secrets:
		n.credentialsArrived(o)
	case kind.Applications:
		n.refreshAfterCredentials(o)
		if l.heldApplications != nil || len(l.conditionsWrittenAt) > 0 {
			l.tendConditionsOf(o)
		}
	}
}

// requeueAfter looks at an object again after a while: something went wrong that
// nobody else will bring up again.
func (n *Reconciler) requeueAfter(ref kind.Ref, after engine.Time) {
	if _, ok := n.retries[ref]; !ok {
		n.retries[ref] = n.now + max(after, requeueDelay)
		n.scheduleHousekeeping(n.retries[ref])
	}
}

// requeueDelay is the pause before something local is tried again.
const requeueDelay = 5 * engine.Second
