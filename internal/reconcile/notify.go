package reconcile

import (
	"bytes"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file turns objects into what the engine is told of them.

// notify passes a change of one object to the scopes that read its resource: how
// it was and how it is, nil where there was or is none.
func (l *agentSync) notify(r kind.Resource, was, is *kind.Object, watched bool) {
	if !l.known || is != nil && l.reconciler.repositories.deferred[refOf(r, is)] {
		return
	}
	if r == kind.Applications && l.reconciler.cfg.Side == kind.Hub && is != nil && !l.decided(was, is) {
		return
	}
	if is == nil && r == kind.Applications {
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
			l.publishOrWithdraw(s, old, now, engine.Withdraw{Seen: s.seenLeaving(was, is, watched), Deleted: is == nil || is.IsDeleting()})
		case s.cfg.Style != engine.OneShot:
			l.reportStored(s, old, now)
		}
	}
}

// seenLeaving reports whether an item that is not published any more was seen to
// leave: its object was deleted, or a user edited it. An object that is as it was,
// and leaves because settings or another object changed, counts as absent: one
// such change can concern any number of items, so the deletion budget and the
// fleet check apply. Credentials are withdrawn at once in any case.
func (s *scope) seenLeaving(was, is *kind.Object, watched bool) bool {
	if is == nil {
		return watched
	}
	return was != is || s.cfg.NoBudget
}

// forget drops what was noted of an Application that is gone.
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

// own returns an object if it is of the scope's kind, else nil.
func (s *scope) own(o *kind.Object) *kind.Object {
	if o == nil || !s.kind.Matches(o) {
		return nil
	}
	return o
}

// publishOrWithdraw publishes an object, or withdraws it. It counts as seen leaving if
// its end was watched, or if the object itself says that it has left. It counts
// as deleted by a user if the object is gone or going, rather than moved out of
// the scope by its labels, its destination or the settings.
func (l *agentSync) publishOrWithdraw(s *scope, was, is *kind.Object, withdraw engine.Withdraw) {
	meant := false // for this agent, though maybe not sendable
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
	o := was
	if o == nil {
		o = is
	}
	if key, ok := s.kind.Key(o, &l.env); ok {
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

// recordUnsendable notes why an object cannot be sent, or with an empty reason that
// it can. Users hear of both, once.
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

// reportStored says what an object holds.
func (l *agentSync) reportStored(s *scope, was, is *kind.Object) {
	if is != nil {
		if held, ok := s.kind.ReadReplica(is, &l.env); ok {
			l.step(engine.Observe{Scope: s.cfg.Name, Key: held.Key, Stored: engine.VersionOf(held.Content), Size: len(held.Content),
				Owned: held.Ownership.Owned || s.cfg.Style == engine.Attached, Alias: held.Ownership.Alias.Alias, Lossy: len(held.Ownership.Alias.Lost) > 0, SourceRevision: held.Ownership.SourceRevision})
			return
		}
	}
	o := was
	if o == nil {
		o = is
	}
	if key, ok := s.kind.Key(o, &l.env); ok {
		l.step(engine.ObjectGone{Scope: s.cfg.Name, Key: key})
	}
}

// notifyAll tells everything there is, and which of it is all there is.
func (l *agentSync) notifyAll() {
	l.known = true
	for _, r := range Resources() {
		for _, o := range l.objects(r) {
			l.notify(r, nil, o, true)
			if l.reconciler.cfg.Side == kind.Hub && r == kind.Applications {
				l.reconcileApplication(o)
			}
		}
		l.tellView(r)
	}
}

// withdrawAll takes back everything that was told in a world that is no more.
func (l *agentSync) withdrawAll() {
	for _, r := range Resources() {
		for _, o := range l.objects(r) {
			l.notify(r, o, nil, false)
		}
	}
	l.known = false
}

func (l *agentSync) tellView(r kind.Resource) {
	for _, s := range l.scopes {
		needed := l.decides(s.kind)
		if !slices.Contains(needed, r) {
			continue
		}
		view := engine.View{Scope: s.cfg.Name, Complete: l.known}
		for _, other := range needed {
			if t := l.reconciler.cache.tables[other]; !t.complete {
				view.Complete, view.Reason = false, "cannot read "+other.Plural+": "+t.reason
			}
		}
		l.step(view)
	}
}
