package reconcile

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file reports objects to the engine.

// notify passes a change of one object to the scopes that read its resource. was and is are nil where there was or is
// no object.
func (l *agentSync) notify(r kind.Resource, was, is *kind.Object, watched bool) {
	if !l.known || is != nil && (is.IsReduced() || l.reconciler.repositories.deferred[refOf(r, is)]) {
		return
	}
	forAgent := r == kind.Applications && !l.isStandby()
	if forAgent && l.reconciler.cfg.Side == kind.Hub && is != nil && !l.decided(was, is) {
		return
	}
	if is == nil && forAgent {
		l.forget(was)
	}
	for i := range l.scopes {
		s := &l.scopes[i]
		if s.kind.Resource() != r {
			continue
		}
		old, now := s.own(was), s.own(is)
		switch {
		case old == nil && now == nil:
		case s.cfg.Role == engine.Owner:
			if s.cfg.Style == engine.OneShot && now != nil {
				l.recordRefresh(now)
			}
			l.publishOrWithdraw(s, old, now, engine.Withdraw{Seen: s.seenLeaving(was, is, watched), DeletedUID: l.deletedUID(was, is)})
		case s.cfg.Style == engine.Attached && l.elsewhere && now != nil: // it is compact
		case s.cfg.Style != engine.OneShot:
			l.observeReplica(s, old, now)
		}
	}
}

// deletedUID returns the UID of an object that a user deleted: it is gone or terminating. Otherwise it is empty.
func (l *agentSync) deletedUID(was, is *kind.Object) string {
	switch {
	case is == nil:
		return kind.PublishedUID(was, &l.env)
	case is.IsDeleting():
		return kind.PublishedUID(is, &l.env)
	}
	return ""
}

// seenLeaving reports whether an item that is no longer published was seen to leave: its object was deleted, or a user
// edited it. If settings or another object changed and the object did not, the item counts as absent. One such change
// can affect any number of items, so the deletion budget and the fleet check apply. Credentials are withdrawn at once
// in any case.
func (s *scope) seenLeaving(was, is *kind.Object, watched bool) bool {
	if is == nil {
		return watched
	}
	return was != is || s.cfg.NoBudget
}

// forget drops the notes about a deleted Application.
func (l *agentSync) forget(o *kind.Object) {
	key, ok := l.scope(kind.CommandScope).kind.Key(o, &l.env)
	if !ok {
		return
	}
	delete(l.conditionsWrittenAt, key)
	delete(l.executed, key)
	delete(l.withoutID, key)
	delete(l.frozen, key)
	delete(l.refreshes, key)
	delete(l.finalized, key)
}

// own returns the object if it is of the scope's kind, otherwise nil.
func (s *scope) own(o *kind.Object) *kind.Object {
	if o == nil || !s.kind.Matches(o) {
		return nil
	}
	return o
}

// publishOrWithdraw publishes or withdraws an object. It counts as seen leaving if its deletion was watched or an edit
// moved it out of the scope. It counts as deleted by a user if the object is gone or terminating.
func (l *agentSync) publishOrWithdraw(s *scope, was, is *kind.Object, withdraw engine.Withdraw) {
	meant := false // meant for this agent, though maybe not sendable
	if is != nil {
		item, ok := l.publish(s, is)
		if ok {
			l.recordUnsendable(itemName{s.cfg.Name, item.Key}, item.Unsendable)
		}
		meant = ok
		if ok && item.Content != nil {
			in := engine.Publish{Scope: s.cfg.Name, Key: item.Key, Version: engine.VersionOf(item.Content), DependsOn: item.DependsOn}
			if s.cfg.Style == engine.Attached && was != nil {
				before, had := l.publish(s, was)
				in.SendExtra = !had || !bytes.Equal(before.Extra, item.Extra)
				in.Urgent = kind.Urgent(is, before.Extra, item.Extra)
			}
			l.step(in)
			return
		}
	}
	if key, ok := s.kind.Key(cmp.Or(was, is), &l.env); ok {
		if s.cfg.Style == engine.Attached {
			delete(l.refreshed, key)
		}
		if !meant {
			l.recordUnsendable(itemName{s.cfg.Name, key}, "")
		}
		withdraw.Scope, withdraw.Key = s.cfg.Name, key
		l.step(withdraw)
	}
}

// itemName names an item of any scope.
type itemName struct {
	scope string
	key   engine.Key
}

// recordUnsendable records why an object cannot be sent. If reason is empty, it can. Both are reported once.
func (l *agentSync) recordUnsendable(item itemName, reason string) {
	f := engine.Event{Type: engine.Accepted, Scope: item.scope, Key: item.key}
	switch {
	case l.unsendable[item] == reason:
		return
	case reason == "":
		delete(l.unsendable, item)
	default:
		if l.unsendable == nil {
			l.unsendable = map[itemName]string{}
		}
		l.unsendable[item] = reason
		f.Type, f.Code, f.Message = engine.Rejected, engine.Invalid, reason
	}
	l.reconciler.emit(Report{Agent: l.name, Event: f})
}

// reportStored reports what a replica object contains. A replica that ends because a user deleted its object on the hub counts as
// gone, although finalizers of others keep it for a while, for example until its delete hooks have run. Otherwise the hub would
// lack it: its deletion would be held, or its hooks removed.
func (l *agentSync) reportStored(s *scope, was, is *kind.Object) {
	if is != nil {
		if held, ok := s.kind.ReadReplica(is, &l.env); ok && !l.isEnding(s, held.Key, is) {
			alias := held.Ownership.Alias
			// Before the first session, the release of the other side is unknown. Then opened has the aliases checked. A temporary
			// alias has no release. If it were checked whenever the object is seen, two writers of one field would never stop.
			outdated := l.met && alias.Release != "" && l.isOutdated(s, alias)
			l.step(engine.Observe{Scope: s.cfg.Name, Key: held.Key, Stored: l.versionOf(s, is, held), Size: len(held.Content),
				Owned: held.Ownership.Owned || s.cfg.Style == engine.Attached, Alias: alias.Alias, Lossy: len(alias.Lost) > 0, Outdated: outdated, SourceRevision: held.Ownership.SourceRevision, SourceGeneration: held.Ownership.SourceGeneration})
			return
		}
	}
	if key, ok := s.kind.Key(cmp.Or(was, is), &l.env); ok {
		if is == nil && l.reconciler.cache.get(refOf(s.kind.Resource(), was)) != was { // not withdrawAll
			delete(l.ending, itemName{s.cfg.Name, key})
		}
		l.step(engine.ObjectGone{Scope: s.cfg.Name, Key: key})
	}
}

// isEnding reports whether a replica is terminating because a user deleted its object on the hub, without its resources. The next
// process knows that by the record of the removal.
func (l *agentSync) isEnding(s *scope, key engine.Key, o *kind.Object) bool {
	if l.reconciler.cfg.Side != kind.Spoke || !o.IsDeleting() {
		return false
	}
	return l.ending[itemName{s.cfg.Name, key}] || l.peer.RemovedByUser(s.cfg.Name, key, kind.ReadOwnership(o, &l.env).Source)
}

// notifyAll reports all objects, and which views are complete.
func (l *agentSync) notifyAll() {
	l.known = true
	for _, r := range l.reconciler.resources {
		for _, o := range l.objects(r) {
			l.notify(r, nil, o, true)
			if l.reconciler.cfg.Side == kind.Hub && !l.isStandby() {
				if r == kind.Applications {
					l.reconcileApplication(o)
				}
				l.removeRefused(r, o)
			}
		}
		l.reportView(r)
	}
}

// withdrawAll takes back everything that was reported under the previous Env. A reduced Application stays as it was published:
// it is reported when its content is read.
func (l *agentSync) withdrawAll() {
	l.references = references{}
	for _, r := range l.reconciler.resources {
		for _, o := range l.objects(r) {
			if !o.IsReduced() {
				l.notify(r, o, nil, false)
			}
		}
	}
	l.known = false
}

func (l *agentSync) reportView(r kind.Resource) {
	for _, s := range l.scopes {
		needed := l.decides(s.kind)
		if !slices.Contains(needed, r) {
			continue
		}
		view := engine.View{Scope: s.cfg.Name, Complete: l.known}
		for _, other := range needed {
			if other == kind.Applications && l.hasReduced() {
				view.Complete, view.Reason = false, l.unreadApplications()
			}
			for _, p := range l.parts(other) {
				if !p.complete {
					view.Complete, view.Reason = false, "cannot read "+other.Plural+": "+p.reason
				}
			}
		}
		l.step(view)
	}
}
