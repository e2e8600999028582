package sim

import (
	"bytes"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file checks that an agent without a session reverts a local edit of what the hub owns.

// changeCutOff separates a managed spoke from the hub, and lets a user of the spoke change what the hub owns.
func changeCutOff(w *world, a action) {
	s := w.pickSpoke(a.n[0], true)
	if s == nil {
		return
	}
	s.partitionUntil = max(s.partitionUntil, w.now+2*minute)
	for _, c := range w.liveConns() {
		if c.spoke == s {
			c.cut()
		}
	}
	if a.n[1]%2 == 0 {
		a.n[2] %= 3 // of its spec
	}
	w.after(w.between(second, 60*second), func() { // the agent notices within 45 s
		if a.n[1]%3 == 0 {
			deleteCopy(w, a)
		} else {
			editCopy(w, a)
		}
	})
}

// revertWithin is how long an agent may take, with an API server that works.
const revertWithin = 20 * second

// expectRevert checks some time after a local edit that it was reverted, if the agent had no session since then.
func (w *world) expectRevert(s *spoke, r kind.Ref, before *kind.Object) {
	p, edited := s.process, s.cluster.st.get(r)
	if edited == nil || bytes.Equal(before.Get("spec", "source"), edited.Get("spec", "source")) || !w.mustRevert(s, r, before) {
		return
	}
	life, opens := p.life, p.opens
	w.after(revertWithin, func() {
		if p != s.process || p.life != life || p.opens != opens || !w.mustRevert(s, r, before) {
			return
		}
		now := s.cluster.st.get(r)
		w.check(now == nil || !bytes.Equal(now.Get("spec", "source"), edited.Get("spec", "source")), "%s has no session, and does not revert a local edit of %s on %s", p.name, short(r), s.cluster.name)
	})
}

// mustRevert reports whether an agent without a session has all that it needs to restore an object: it has met the hub, it
// is the latest process, nothing interferes or keeps changing the object back, and the hub has not changed the object since it was written. An object that the
// hub has frozen or given up in between, or that users have labeled to be ignored, stays as it is.
func (w *world) mustRevert(s *spoke, copied kind.Ref, before *kind.Object) bool {
	p, c := s.process, s.cluster
	quiet := max(c.downUntil, c.faultUntil, c.lagUntil, p.pausedUntil) <= w.now && len(c.denials) == 0
	if !quiet || !p.up || p.online || !p.met || s.modeChanged || p.reconciler.Memory().StoreUntrusted ||
		c.recall(leases, "agent").Incarnation != p.incarnation || before.Annotation(kind.VersionAnnotation) == "" {
		return false
	}
	key := before.Annotation(sourceKey) + "@" + s.agent.Name
	_, again := w.ledger.back[key]
	if again || !w.ledger.now[key] || w.ledger.wasFrozen[key] || before.Label(ignoreKey) != "" || s.ctl.fights[copied.Name] {
		return false
	}
	for _, r := range s.hub().applications(func(o *kind.Object) bool { return s.hub().id(o) == before.Annotation(sourceKey) }) {
		o := s.hub().st.get(r)
		return !o.IsDeleting() && copyOnSpoke(s, r) == copied && bytes.Equal(o.Get("spec", "source"), before.Get("spec", "source"))
	}
	return false
}
