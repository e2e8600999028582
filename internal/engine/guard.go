package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// deletionGuard stands between a suspicious deletion and the objects. What it holds
// stays as it is until the owner speaks of it again or a person confirms.
type deletionGuard struct {
	held          map[KeyHash]*replicaItem
	cause         Cause            // of what is held; the strictest, if there were several
	removed       map[KeyHash]bool // items removed by absence in this window, without a user's confirmation
	base          int              // items that were here when the window began
	budgetResetAt Time             // when it ends
	id            string           // of what is held, as last reported
	changed       bool             // since then
}

// Cause is the rule by which deletions are held. It travels by name, so that a
// peer of another build can show one that it does not know.
type Cause string

// The causes.
const (
	CauseStore  Cause = "store"  // the owner's store went back, or is another one
	CauseLast   Cause = "last"   // nothing would be left in the scope
	CauseHalf   Cause = "half"   // more than half of the scope would go
	CauseMany   Cause = "many"   // many items, and a large share of the scope
	CauseSource Cause = "source" // it came from another object of that name
	CauseFleet  Cause = "fleet"  // the hub checks first whether many agents lose items
)

// Budget reports whether the deletion budget of a single agent is the cause.
func (c Cause) Budget() bool { return c == CauseLast || c == CauseHalf || c == CauseMany }

// onAbsent decides on items that a complete round found missing at the owner. They
// are ours, for they carry our mark; but the owner may lack them by mistake: a
// wrong setting, or a view that is not complete. So it takes a confirmation to
// remove the last item of a scope, more than half of it, or many. The limits do
// not depend on how often a removal was tried: what was let go once is not
// judged again in the session, and counts once in the window.
func (g *deletionGuard) onAbsent(r *replica, lost []*replicaItem) {
	if len(lost) == 0 {
		return
	}
	if cause := g.judge(r, lost); cause != "" {
		g.hold(r, lost, cause)
		return
	}
	g.count(r, lost)
	for _, it := range lost {
		it.want, it.removalConfirmed = Version{}, true
		r.cured(it)
		r.remove(it, true, false)
	}
}

// judge returns why items may not be removed now; empty: they may.
func (g *deletionGuard) judge(r *replica, lost []*replicaItem) Cause {
	switch {
	case r.peer.storeUntrusted:
		return CauseStore
	case r.cfg.NoBudget:
		return ""
	}
	if cause := g.exceeded(r, lost); cause != "" {
		return cause
	}
	if r.peer.fleetHold {
		return CauseFleet
	}
	return ""
}

// exceeded returns by which rule the budget would be exceeded, if items were
// removed with what is held; empty: by none.
func (g *deletionGuard) exceeded(r *replica, lost []*replicaItem) Cause {
	g.window(r)
	// What is held already, or went a moment ago, belongs to the same loss: a set
	// must not empty itself a few items at a time.
	going := map[KeyHash]bool{}
	for h := range g.held {
		going[h] = true
	}
	for _, it := range lost {
		going[it.hash] = true
	}
	left := 0
	for h, it := range r.items {
		leaving := going[h] || it.removalConfirmed || it.removing && it.want.IsZero() && it.seq != 0
		if it.exists && it.owned && !leaving {
			left++
		}
	}
	maps.Copy(going, g.removed)
	n := len(going)
	switch {
	case left == 0:
		return CauseLast
	case 2*n > g.base:
		return CauseHalf
	case n > r.tune.DeletionBudgetItems && n*100 > r.tune.DeletionBudgetPercent*g.base:
		return CauseMany
	}
	return ""
}

// window begins to count again if nothing was removed by absence for a while.
// What could not be removed yet still counts.
func (g *deletionGuard) window(r *replica) {
	if r.peer.now < g.budgetResetAt {
		return
	}
	g.base = r.owned
	maps.DeleteFunc(g.removed, func(h KeyHash, _ bool) bool {
		it := r.items[h]
		return it == nil || !it.removalConfirmed || !it.exists || !it.owned
	})
}

// count notes items that are removed by absence without a user's confirmation.
func (g *deletionGuard) count(r *replica, items []*replicaItem) {
	g.window(r)
	if g.removed == nil {
		g.removed = map[KeyHash]bool{}
	}
	for _, it := range items {
		if !g.removed[it.hash] {
			g.removed[it.hash] = true
			g.budgetResetAt = r.peer.now + budgetWindow
		}
	}
}

// budgetWindow is how long removals by absence count against the budget.
const budgetWindow = 600 * Second

// hold keeps items from being removed. A cause that needs a user's confirmation
// stays until nothing is held: it covers whatever else is held meanwhile.
func (g *deletionGuard) hold(r *replica, items []*replicaItem, cause Cause) {
	if g.held == nil {
		g.held = map[KeyHash]*replicaItem{}
	}
	if len(g.held) == 0 || g.cause == CauseFleet || cause == CauseStore {
		g.cause = cause
	}
	for _, it := range items {
		it.heldBack, it.want = true, Version{}
		g.held[it.hash] = it
		g.changed = true
		r.cured(it) // there is nothing left to refuse
		r.update(it)
	}
}

// drop forgets a held item: the owner has it again, or it is being removed.
func (g *deletionGuard) drop(it *replicaItem) {
	if it.heldBack {
		it.heldBack, g.changed = false, true
		delete(g.held, it.hash)
	}
}

// confirm carries out what is held, if it is still what the person looked at.
func (g *deletionGuard) confirm(r *replica, id string) bool {
	if len(g.held) == 0 || id != g.id {
		return false
	}
	if g.cause == CauseFleet { // no user was asked: it counts against the budget
		if cause := g.exceeded(r, nil); cause != "" {
			// Other items have gone since it was held, as users wanted. What is
			// held is now more than the hub's word is enough for.
			g.cause, g.changed = cause, true
			return true
		}
		g.count(r, slices.Collect(maps.Values(g.held)))
	}
	for _, h := range sortedHashes(g.held) {
		it := g.held[h]
		g.drop(it)
		it.removalConfirmed = true
		if it.ticket == 0 {
			r.remove(it, true, false)
		}
		r.update(it)
	}
	return true
}

// report tells of a change in what is held, and what its ID was before; nil: no
// change.
func (g *deletionGuard) report(r *replica) (held *Held, was string) {
	if !g.changed {
		return nil, ""
	}
	g.changed = false
	id := g.fingerprint(r)
	if id == g.id {
		return nil, ""
	}
	was, g.id = g.id, id
	return g.describe(r), was
}

// describe says what is held, for people.
func (g *deletionGuard) describe(r *replica) *Held {
	out := &Held{Scope: r.cfg.Name, ID: g.id, Count: uint64(len(g.held)), Of: uint64(r.owned)}
	if g.id == "" {
		return out
	}
	out.Cause, out.Reason = g.cause, g.reason(r)
	for _, h := range sortedHashes(g.held) {
		out.Sample = append(out.Sample, g.held[h].key)
	}
	slices.SortFunc(out.Sample, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	out.Sample = out.Sample[:min(len(out.Sample), maxSample)]
	return out
}

// reason says in words which rule holds the items, and what to do.
func (g *deletionGuard) reason(r *replica) string {
	const otherwise = "; if not, put right what selects them (label selector, allowed namespaces, the namespace of the Agent) or restore them"
	switch g.cause {
	case CauseStore:
		return "the owner's store went back in time or is another one"
	case CauseSource:
		return "the owner lacks the object that these came from, and deletes another one of that name. Confirm if they are to go as well"
	case CauseLast:
		return "the owner lacks every item that is left in this scope, and the last one is never removed without a confirmation. Confirm if that is intended" + otherwise
	case CauseHalf:
		return "the owner lacks more than half of the items in this scope. Confirm if that is intended" + otherwise
	case CauseMany:
		return fmt.Sprintf("the owner lacks more than %d items and more than %d %% of this scope. Confirm if that is intended", r.tune.DeletionBudgetItems, r.tune.DeletionBudgetPercent) + otherwise
	case CauseFleet:
		return "the owner lacks these items, and the hub checks first whether many agents lose items at once. Nothing needs to be done unless the hub asks for a confirmation: argocd-agentctl pending"
	}
	return ""
}

// maxSample is how many held keys are named to people.
const maxSample = 10

// fingerprint identifies exactly the set of keys that is held, so that a
// confirmation cannot cover more than the person was shown.
func (g *deletionGuard) fingerprint(r *replica) string {
	if len(g.held) == 0 {
		return ""
	}
	sum := sha256.New()
	sum.Write([]byte(r.cfg.Name))
	if g.cause == CauseFleet { // a word on that is no user's confirmation of the same items
		sum.Write([]byte(CauseFleet))
	}
	var b [8]byte
	for _, h := range sortedHashes(g.held) {
		binary.BigEndian.PutUint64(b[:], uint64(h))
		sum.Write(b[:])
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// release lets go of everything that is held, to be looked at again.
func (g *deletionGuard) release(r *replica) {
	for _, h := range sortedHashes(g.held) {
		it := g.held[h]
		g.drop(it)
		r.update(it)
	}
}
