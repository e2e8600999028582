package reconcile

import (
	"cmp"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file restores replicas of a managed spoke that users change or delete while there is no session. In a session, the
// engine requests such an item from the hub.
//
// The reference of an item is the local object as it last had the version that we recorded on it. It is what the hub sent
// last, and it is ours: it carries our ownership. It is kept in memory only, so Secrets are stored nowhere else. Nothing is
// deleted here. What may be stale:
//
//   - The hub may have given up the item. After it has ordered a deletion, or that the object is left as it is, the item
//     has no reference until the hub sends it again. A deleted object is created again only if the last session has shown
//     that the hub has the item (Peer.Wanted).
//   - Users may copy a replica, or restore a backup. An object that appears is a reference only if its item had one, and
//     an older version does not replace a reference.
//   - A later process of this agent, or a session that has begun, may know more. The caller checks that there is none: see
//     Write.Offline.
//   - The object may have changed. An update is conditional on its resourceVersion. If the object was written from a later
//     state of the hub than the reference, it stays.

// reference is what is known of one item.
type reference struct {
	object   *kind.Object   // nil if there is none
	expected engine.Version // version that is being applied; zero if none is
	leaving  bool           // the hub has ordered to delete the object, or to leave it as it is
	attempts int            // to restore it, in a row
	triedAt  engine.Time
}

// references has the references of a spoke.
type references struct {
	items map[itemName]*reference
	bytes int                      // of the objects
	due   map[itemName]engine.Time // when to compare items again
	allAt engine.Time              // when to compare all items; 0 if never
}

// maxReferenceBytes bounds the objects. An item beyond it is corrected in the next session. Most objects are also in the
// cache and need no further memory.
const maxReferenceBytes = 128 << 20

// Intervals of attempts to restore an item that something keeps changing.
const (
	minRestoreDelay = engine.Second
	maxRestoreDelay = 300 * engine.Second
	offlineAfter    = 5 * engine.Second // after the end of a session, until all items are compared
)

// enforces reports whether local changes of a scope's objects are reverted.
func (l *agentSync) enforces(s *scope) bool {
	return l.reconciler.cfg.Side == kind.Spoke && !l.isStandby() && s.cfg.Role == engine.Replica && s.cfg.Style == engine.Mirror
}

// offline reports whether there is no session and none is about to begin.
func (l *agentSync) offline() bool { return !l.live && l.openingEvent == nil }

func (r *references) get(name itemName) *reference {
	if r.items == nil {
		r.items, r.due = map[itemName]*reference{}, map[itemName]engine.Time{}
	}
	if r.items[name] == nil {
		r.items[name] = &reference{}
	}
	return r.items[name]
}

func (r *references) set(name itemName, o *kind.Object) {
	ref := r.get(name)
	if ref.object != nil {
		r.bytes -= len(ref.object.Raw())
	}
	if o != nil && r.bytes+len(o.Raw()) > maxReferenceBytes {
		o = nil
	}
	if ref.object = o; o != nil {
		r.bytes += len(o.Raw())
	}
}

func (r *references) drop(name itemName) {
	if r.items[name] != nil {
		r.set(name, nil)
		delete(r.items, name)
		delete(r.due, name)
	}
}

// beginApply records that an item was received. Until it is written, the object is no reference.
func (l *agentSync) beginApply(s *scope, e engine.Apply) {
	if !l.enforces(s) {
		return
	}
	name := itemName{e.Scope, e.Key}
	l.references.set(name, nil)
	ref := l.references.get(name)
	ref.expected, ref.attempts = e.Version, 0
	ref.leaving = l.cascades(s, e) || s.cfg.Name == kind.ApplicationScope && kind.IsFrozen(e.Content)
}

// endApply ends beginApply. If nothing was written, the object that is there becomes the reference again.
func (l *agentSync) endApply(s *scope, e engine.Apply, o *kind.Object) {
	if !l.enforces(s) {
		return
	}
	ref := l.references.items[itemName{e.Scope, e.Key}]
	if ref == nil || ref.expected != e.Version {
		return
	}
	ref.expected = engine.Version{}
	l.compareWithReference(s, e.Key, o, l.peer.Withdrawn(e.Scope, e.Key), false)
}

// giveUp records that the hub has ordered to delete an item.
func (l *agentSync) giveUp(s *scope, key engine.Key) {
	if l.enforces(s) {
		name := itemName{s.cfg.Name, key}
		l.references.set(name, nil)
		l.references.get(name).leaving = true
	}
}

// observeReplica reports what a replica object contains, and restores the object if that is due.
func (l *agentSync) observeReplica(s *scope, was, is *kind.Object) {
	key, ok := engine.Key{}, false
	if l.enforces(s) {
		key, ok = s.kind.Key(cmp.Or(is, was), &l.env)
	}
	withdrawn := ok && l.peer.Withdrawn(s.cfg.Name, key) // before the engine forgets the item of a deleted object
	l.reportStored(s, was, is)
	if ok {
		appeared := was == nil && l.openingEvent == nil && l.reconciler.cache.tables[s.kind.Resource()].parts.read()
		l.compareWithReference(s, key, is, withdrawn, appeared)
	}
}

// compareWithReference makes an object the reference, or restores the object if it differs from the reference. If
// appeared, the object was not there when this process read the cluster.
func (l *agentSync) compareWithReference(s *scope, key engine.Key, o *kind.Object, withdrawn, appeared bool) {
	name := itemName{s.cfg.Name, key}
	ref := l.references.items[name]
	switch {
	case withdrawn || ref != nil && ref.leaving || o == nil && (l.met || s.cfg.NoBudget) && !l.peer.Wanted(s.cfg.Name, key):
		if o == nil {
			l.references.drop(name)
		} else {
			l.references.set(name, nil)
		}
	case o != nil && (ref != nil || !appeared) && l.isReference(s, o, ref):
		l.references.set(name, o)
		delete(l.references.due, name)
	case ref == nil || ref.object == nil:
		if o == nil && (ref == nil || ref.expected.IsZero()) {
			l.references.drop(name)
		}
	case o == nil || !l.sameContent(s, o, ref.object):
		l.restoreWhenDue(s, key, ref)
	}
}

// isReference reports whether an object has the version that we recorded on it. While an item is being applied, only its
// version counts. Otherwise a version from an earlier state of the hub does not replace the reference.
func (l *agentSync) isReference(s *scope, o *kind.Object, ref *reference) bool {
	held, ok := s.kind.ReadReplica(o, &l.env)
	recorded := held.Ownership.Version
	if !ok || !held.Ownership.Owned || o.IsDeleting() || recorded.IsZero() || ref != nil && !ref.expected.IsZero() && ref.expected != recorded {
		return false
	}
	if ref != nil && ref.object != nil && held.Ownership.IsOlder(kind.ReadOwnership(ref.object, &l.env)) {
		return false
	}
	stored, alias := engine.VersionOf(held.Content), held.Ownership.Alias
	return stored == recorded || alias.Stored == stored && alias.Written == recorded && alias.Release != "" // not temporary
}

// sameContent reports whether an object is ours and has the content of another one.
func (l *agentSync) sameContent(s *scope, a, b *kind.Object) bool {
	x, ok1 := s.kind.ReadReplica(a, &l.env)
	y, ok2 := s.kind.ReadReplica(b, &l.env)
	return ok1 && ok2 && x.Ownership.Owned && engine.VersionOf(x.Content) == engine.VersionOf(y.Content)
}

// restoreWhenDue restores an object at once the first time, then with growing delays while something keeps changing it.
func (l *agentSync) restoreWhenDue(s *scope, key engine.Key, ref *reference) {
	n, name := l.reconciler, itemName{s.cfg.Name, key}
	if !l.offline() {
		return
	}
	if n.now-ref.triedAt > 2*maxRestoreDelay {
		ref.attempts = 0
	}
	due := n.now
	if ref.attempts > 0 {
		due = ref.triedAt + min(maxRestoreDelay, minRestoreDelay<<min(ref.attempts-1, 10))
	}
	if due > n.now {
		l.compareAt(name, due)
		return
	}
	ref.attempts++
	ref.triedAt = n.now
	delete(l.references.due, name)
	target, err := s.kind.Target(key, &l.env)
	if err != nil {
		return
	}
	session := l.sessions
	n.enqueue(target, job{name: "restore " + s.cfg.Name, why: "restore " + s.cfg.Name + " while the hub is unreachable", origin: Origin{Scope: s.cfg.Name, Key: key},
		decide: func(local *kind.Object) decision {
			if l.sessions != session || !l.offline() || l.references.items[name] != ref || ref.object == nil || ref.leaving {
				return decision{}
			}
			return l.decideRestore(s, target, key, ref.object, local)
		},
		done: func(r result) {
			if r.fail != nil && l.references.items[name] == ref {
				l.compareAt(name, n.now+max(r.fail.RetryAfter, minRestoreDelay<<min(ref.attempts, 8)))
			}
		}})
}

// decideRestore returns how an object gets the content of its reference. It follows the same rules as an item of the hub.
func (l *agentSync) decideRestore(s *scope, target kind.Ref, key engine.Key, reference, local *kind.Object) decision {
	held, ok := s.kind.ReadReplica(reference, &l.env)
	_, untrusted := l.peer.Other()
	if !ok || untrusted || local != nil && (local.IsDeleting() || l.sameContent(s, local, reference)) {
		return decision{}
	}
	if local != nil {
		if own := kind.ReadOwnership(local, &l.env); own.Foreign || own.Owned && l.recreates(s, own, held.Content) { // nothing is deleted
			return decision{}
		}
	}
	if l.reconciler.cfg.AwaitPolicy && !l.reconciler.policy.read {
		return decision{fail: &Failure{Code: engine.Unavailable, Message: "AgentPolicies are not read yet"}}
	}
	e := engine.Apply{Scope: s.cfg.Name, Key: key, Version: held.Ownership.Version, Content: held.Content,
		SourceRevision: held.Ownership.SourceRevision, SourceGeneration: held.Ownership.SourceGeneration, View: held.Ownership.SourceRevision}
	var d decision
	if local == nil {
		if fail := l.refusedByPolicy(s, e); fail != nil {
			return decision{fail: fail}
		}
		merged, err := l.mergeNarrowed(s, nil, e, held.Ownership)
		if err != nil {
			return decision{fail: failure(err)}
		}
		created := l.withReceipt(target, e, merged)
		d = decision{verb: Create, object: created, mustStore: l.mustStore(s, created)}
	} else if d = l.merge(s, target, e, local); d.verb == Update && d.object != nil {
		d.object = kind.WithAlias(d.object, held.Ownership.Alias) // its content is that of the reference
	}
	d.offline = true
	return d
}

func (l *agentSync) compareAt(name itemName, at engine.Time) {
	l.references.due[name] = at
	l.reconciler.scheduleHousekeeping(at)
}

// sessionEnded has all items compared soon: what changed in the session was not corrected if it ended too early.
func (l *agentSync) sessionEnded() {
	if l.reconciler.cfg.Side == kind.Spoke && len(l.references.items) > 0 {
		l.references.allAt = l.reconciler.now + offlineAfter
		l.reconciler.scheduleHousekeeping(l.references.allAt)
	}
}

// compareDue compares the items that are due.
func (l *agentSync) compareDue() {
	r, now := &l.references, l.reconciler.now
	var names []itemName
	for name, at := range r.due {
		if at <= now {
			names = append(names, name)
		} else {
			l.reconciler.scheduleHousekeeping(at)
		}
	}
	if r.allAt != 0 && r.allAt <= now {
		r.allAt = 0
		for name, ref := range r.items {
			if ref.object != nil {
				names = append(names, name)
			}
		}
	} else if r.allAt != 0 {
		l.reconciler.scheduleHousekeeping(r.allAt)
	}
	slices.SortFunc(names, func(a, b itemName) int {
		return cmp.Or(strings.Compare(a.scope, b.scope), strings.Compare(a.key.String(), b.key.String()))
	})
	for _, name := range slices.Compact(names) {
		delete(r.due, name)
		if s := l.scope(name.scope); l.offline() {
			l.compareWithReference(s, name.key, l.object(s, name.key), l.peer.Withdrawn(name.scope, name.key), false)
		}
	}
}
