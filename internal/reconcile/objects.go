package reconcile

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file handles changes of the local cluster's objects.

// observed handles an object from the watch, a list, or the result of a write. It ignores what is older than the cached
// object.
func (n *Reconciler) observed(r kind.Resource, o *kind.Object) {
	if t := n.cache.tables[r]; t == nil || t.parts.of(o.Namespace()).gone[o.UID()] {
		return
	}
	old, changed := n.cache.put(r, o)
	before, ref := old, refOf(r, o)
	if !changed {
		if r == kind.Applications {
			n.restoreObject(o)
			n.reduce(n.cache.get(ref))
		}
		if revision(old) == revision(o) {
			n.objectChanged(ref) // read again and unchanged
		}
		return
	}
	if old != nil && old.UID() != o.UID() {
		// Deleted and created again: one event stands for two.
		n.notifySyncs(r, old, nil, true)
		old = nil
	}
	delete(n.deleted, ref)
	n.notifySyncs(r, old, o, true)
	n.reconcileObject(r, o)
	n.objectChanged(ref)
	if now := n.cache.get(ref); r == kind.Applications && now != nil {
		n.reduce(now)
		n.restored(before, n.cache.get(ref))
	}
}

// removed handles the deletion of an object. If watched, the deletion was seen.
func (n *Reconciler) removed(ref kind.Ref, uid string, rev uint64, watched bool) {
	old := n.cache.get(ref)
	if old == nil {
		n.objectChanged(ref)
		return
	}
	if uid != "" && uid != old.UID() || rev != 0 && rev < revision(old) {
		return // of an earlier object of that name
	}
	p := n.cache.tables[ref.Resource].parts.of(ref.Namespace)
	p.newest = max(p.newest, rev)
	n.cache.drop(ref)
	delete(n.retries, ref)
	delete(n.repositories.reads, ref) // the answer may be older
	delete(n.repositories.verifiedAt, ref)
	delete(n.placements.undecided, ref)
	n.rememberDeleted(ref, old)
	n.notifySyncs(ref.Resource, old, nil, watched)
	if !n.isStandby() {
		n.afterLoss(ref.Resource, old)
	}
	n.objectChanged(ref)
	if ref.Resource == kind.Applications {
		n.restored(old, n.cache.get(ref))
	}
}

// knownGone is removed for an object whose deletion the watch has not reported yet.
func (n *Reconciler) knownGone(ref kind.Ref, uid string, rev uint64) {
	if old := n.cache.get(ref); old != nil && (uid == "" || uid == old.UID()) {
		n.cache.tables[ref.Resource].parts.of(ref.Namespace).gone[old.UID()] = true
	}
	n.removed(ref, uid, rev, true)
}

// listed replaces the cached objects of a resource, or those in one namespace, by a consistent list. The pages before the
// last one only show objects, as a watch does.
func (n *Reconciler) listed(in List) {
	t := n.cache.tables[in.Resource]
	if t == nil {
		return
	}
	p := t.parts.watched(in.Namespace)
	if p == nil {
		return
	}
	if !in.Continues {
		p.listed = make(map[objectName]string, len(in.Objects))
	} else if p.listed == nil {
		return // the first pages are unknown, so that nothing can be concluded from missing objects
	}
	for _, o := range in.Objects {
		p.listed[nameOf(o)] = o.UID()
		n.observed(in.Resource, o)
	}
	if in.More {
		return
	}
	present := p.listed
	p.listed = nil
	still := map[string]bool{}
	for _, uid := range present {
		if p.gone[uid] { // the list is older than the cache
			still[uid] = true
		}
	}
	p.gone = still
	known := t.objects
	if in.Namespace != "" {
		known = map[objectName]*kind.Object{}
		for _, o := range n.cache.inNamespace(in.Resource, in.Namespace) {
			known[nameOf(o)] = o
		}
	}
	for _, o := range sortedObjects(known) {
		if _, listed := present[nameOf(o)]; !listed && revision(o) <= in.Revision {
			n.removed(refOf(in.Resource, o), o.UID(), 0, false)
		}
	}
	p.complete, p.read, p.reason = true, true, ""
	n.advance(in.Resource, p, in.Revision)
	switch in.Resource {
	case kind.AppProjects:
		n.decideAll()
		n.reduceAll()
	case kind.Applications:
		n.finalizeProjects()
	}
	n.retryDeferred() // without a list, nothing was requested
	n.viewChanged(in.Resource, p)
}

// unreadable records that a resource cannot be read. Its cached objects stay, but nothing is concluded from missing
// ones.
func (n *Reconciler) unreadable(in Unreadable) {
	t := n.cache.tables[in.Resource]
	if t == nil {
		return
	}
	if p := t.parts.watched(in.Namespace); p != nil {
		p.complete, p.reason = false, in.Reason
		n.viewChanged(in.Resource, p)
	}
}

// viewChanged reports to the agents of a part of a resource how much of it is known.
func (n *Reconciler) viewChanged(r kind.Resource, p *part) {
	for _, l := range n.sortedSyncs() {
		if slices.Contains(l.parts(r), p) {
			l.reportView(r)
			l.tryBegin()
		}
	}
}

// advance records how far a watch is. If there is no such watch, p is nil.
func (n *Reconciler) advance(r kind.Resource, p *part, rev uint64) {
	if p == nil || rev <= p.frontier {
		return
	}
	p.frontier = rev
	if r == kind.Secrets {
		n.forgetRules()
	}
	n.retryDeferred()
	n.beginAll()
}

// notifySyncs passes a change to the syncs that it may affect.
func (n *Reconciler) notifySyncs(r kind.Resource, was, is *kind.Object, watched bool) {
	if n.isStandby() {
		for _, l := range n.sortedSyncs() {
			l.notify(r, was, is, watched)
		}
		return
	}
	if r == kind.Secrets && n.deferRepository(was, is) {
		return
	}
	for _, l := range n.affectedSyncs(r, was, is) {
		l.notify(r, was, is, watched)
		if r == kind.Applications {
			l.notifyChildren(was, is, kind.MaxGenerations)
		}
	}
	if n.cfg.Side == kind.Hub {
		switch r {
		case kind.Applications:
			n.pushChanged(was, is)
		case kind.Secrets:
			n.writerChanged(was, is)
		}
	}
	if r == kind.AppProjects {
		n.projectChanged(was, is)
		n.rulesChanged(was, is)
		n.globalChanged(was, is)
		n.judgeApplications(was, is)
		n.droppedFieldsChanged(was, is)
	}
}

// reconcileObject does what is needed for an object in addition to replication.
func (n *Reconciler) reconcileObject(r kind.Resource, o *kind.Object) {
	if n.isStandby() {
		return
	}
	if n.cfg.Side == kind.Hub {
		n.reconcileOnHub(r, o)
		return
	}
	switch l := n.syncs[""]; r {
	case kind.Secrets:
		n.credentialsArrived(o)
	case kind.Applications:
		n.refreshAfterCredentials(o)
		if l.heldApplications != nil || len(l.conditionsWrittenAt) > 0 || kind.ClearCondition(o, kind.ConditionHeld) != o {
			l.updateConditionsOf(o)
		}
	}
}

// requeueAfter reconciles an object again after a delay, because no event would trigger that.
func (n *Reconciler) requeueAfter(ref kind.Ref, after engine.Time) {
	if _, ok := n.retries[ref]; !ok {
		n.retries[ref] = n.now + max(after, requeueDelay)
		n.scheduleHousekeeping(n.retries[ref])
	}
}

const requeueDelay = 5 * engine.Second
