package sim

import (
	"cmp"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file decides whether a copy may be removed: its owner has given it up, or a user has agreed to its removal. Both
// end when the owner publishes it again.

// note records whether an object is an agent's now.
func (l *ledger) note(uid, agent string, is bool) {
	key := uid + "@" + agent
	switch {
	case is:
		if l.left[key] {
			delete(l.left, key)
			l.back[key] = l.w.now
		}
		delete(l.agreed, key)
		l.now[key], l.placed[key] = true, true
	case l.now[key]:
		l.left[key] = true
		l.gaveUp[uid] = true
		delete(l.now, key)
	}
}

// mayRemove reports whether there is a reason to remove an agent's replica. A publication that everyone knows removes
// the reason.
func (l *ledger) mayRemove(s *spoke, source string) bool {
	key := source + "@" + s.agent.Name
	if l.left[key] {
		return true
	}
	at, again := l.back[key]
	return again && !l.w.settled(s, at)
}

// accept records that everything that the owner of an agent's objects lacks now may be removed: a user has agreed, or
// the loss cannot be distinguished from a deletion.
func (l *ledger) accept(s *spoke) { l.acceptIf(s, nil) }

// acceptIf does so for what a user was shown in a scope; nil: for all.
func (l *ledger) acceptIf(s *spoke, h *engine.Held) {
	c := s.cluster
	if !s.managed() {
		c = l.w.hub
	}
	for _, r := range l.w.resources() {
		if h != nil && h.Scope != scopeOf(r) {
			continue
		}
		for _, o := range c.st.list(r) {
			if !(ownedByAgent(o) && !c.hub) && o.Annotation(agentKey) != s.agent.Name || h != nil && !shows(s, h, refOf(r, o)) {
				continue
			}
			shown := h != nil && h.Cause != engine.CauseFleet // that one only waits for the hub's check
			switch key := o.Annotation(sourceKey) + "@" + s.agent.Name; {
			case !l.now[key]:
				l.left[key] = true
				if shown {
					l.agreed[key] = true
				}
			case shown && l.movedFrom(s, refOf(r, o), o):
				l.agreedCopy[o.UID()] = true
			}
		}
	}
}

// movedFrom reports whether the source of a managed agent's replica has another replica now: the mapping has changed.
func (l *ledger) movedFrom(s *spoke, copied kind.Ref, o *kind.Object) bool {
	for _, source := range s.hub().st.list(copied.Resource) {
		if s.hub().id(source) == o.Annotation(sourceKey) {
			return s.managed() && copyOnSpoke(s, refOf(copied.Resource, source)) != copied
		}
	}
	return false
}

// confirmed is a user who confirms a hold. It covers what is shown: a scope as it is now, or the other side's store as
// it is now.
func (l *ledger) confirmed(h hold) {
	s := l.w.spokeOf(h.agent)
	if s == nil {
		return // a standby
	}
	if h.scope == "" {
		l.acceptedStore[h.agent] = true
		l.acceptedHub[h.agent] = l.hubEra
	}
	if h.elsewhere == s.managed() { // what the replica of the Applications holds back
		if h.scope == "" {
			l.accept(s)
		} else {
			l.acceptIf(s, h.what)
		}
	}
}

// shows reports whether a replica is part of a hold. If not all items are named, the whole scope is.
func shows(s *spoke, h *engine.Held, copied kind.Ref) bool {
	return h.Count > uint64(len(h.Sample)) || slices.ContainsFunc(h.Sample, func(k engine.Key) bool {
		own := ref(copied.Resource, cmp.Or(k.Namespace, s.cluster.argo), k.Name)
		if !s.managed() {
			own = copyOnHub(s, own)
		}
		return own == copied
	})
}

// unknowable is a store that regressed without a trace.
func (l *ledger) unknowable(s *spoke) {
	l.acceptedHub[s.agent.Name] = l.hubEra
	l.accept(s)
}

func scopeOf(r kind.Resource) string {
	return map[kind.Resource]string{kind.Applications: "application", kind.AppProjects: "appproject",
		kind.Secrets: "repository", kind.ConfigMaps: "gpgkey"}[r]
}

// settled reports whether everybody concerned has had the time to hear of something that happened to an agent's objects
// at a time.
func (w *world) settled(s *spoke, at engine.Time) bool {
	for _, c := range append(w.hubs(), s.cluster) {
		at = max(at, c.downUntil, c.faultUntil, c.lagUntil+c.lag)
	}
	at = max(at, s.partitionUntil, s.slowUntil+20*second, s.cutUntil[0], s.cutUntil[1])
	for _, p := range append(append([]*process{s.process}, w.allPrincipals()...), s.clones...) {
		at = max(at, p.pausedUntil)
	}
	if w.shape.bus { // a message that is lost is sent again, or made good by a comparison
		return w.now-at > 3*minute
	}
	return w.now-at > minute
}
