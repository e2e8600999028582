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

// deletionGuard holds suspicious deletions. A held object stays as it is until the owner sends the item again or a user
// confirms.
type deletionGuard struct {
	held          map[KeyHash]*replicaItem
	cause         Cause            // of the hold; the strictest, if there were several
	removed       map[KeyHash]bool // items deleted by absence in this window, without a user's confirmation
	base          int              // number of items when the window began
	budgetResetAt Time             // end of the window
	id            string           // of the hold, as last reported
	changed       bool             // since the last report
}

// Cause is the rule that holds deletions. It travels by name, so that a peer of another release can show one that it
// does not know.
type Cause string

const (
	CauseStore  Cause = "store"  // the owner's store regressed or was replaced
	CauseLast   Cause = "last"   // nothing would be left in the scope
	CauseHalf   Cause = "half"   // more than half of the scope would be deleted
	CauseMany   Cause = "many"   // many items, and a large share of the scope
	CauseSource Cause = "source" // the object came from another source object of that name
	CauseFleet  Cause = "fleet"  // the hub checks whether many agents lose items
)

// Budget reports whether the deletion budget of a single agent is the cause.
func (c Cause) Budget() bool { return c == CauseLast || c == CauseHalf || c == CauseMany }

// onAbsent decides on items that a complete round found missing at the owner. The objects carry our ownership
// annotation. But the owner may lack them by mistake: a wrong setting or an incomplete view. So a confirmation is
// needed to delete the last item of a scope, more than half of it, or many.
//
// Retries do not change the result: an allowed deletion is not judged again in the session and counts once in the
// window.
func (g *deletionGuard) onAbsent(r *replica, lost []*replicaItem) {
	if untrusted, rest := split(lost, r.untrusted); len(untrusted) > 0 {
		g.hold(r, untrusted, CauseStore)
		lost = rest
	}
	if len(lost) == 0 {
		return
	}
	if cause := g.judge(r, lost); cause != "" {
		g.hold(r, lost, cause)
		return
	}
	g.count(r, lost)
	for _, it := range lost {
		it.want = Version{}
		r.setState(it, removable)
		r.clearProblem(it)
		r.remove(it, true, "")
	}
}

// split returns the items that match, and the others.
func split(items []*replicaItem, match func(*replicaItem) bool) (matching, others []*replicaItem) {
	for _, it := range items {
		if match(it) {
			matching = append(matching, it)
		} else {
			others = append(others, it)
		}
	}
	return matching, others
}

// judge returns why items may not be deleted now, or "" if they may.
func (g *deletionGuard) judge(r *replica, lost []*replicaItem) Cause {
	if r.cfg.NoBudget {
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

// exceeded returns which budget rule is exceeded if items are deleted together with what is held, or "".
func (g *deletionGuard) exceeded(r *replica, lost []*replicaItem) Cause {
	g.window(r)
	// What is held, or was deleted recently, belongs to the same loss: a set must not be emptied a few items at a time.
	going := map[KeyHash]bool{}
	for h := range g.held {
		going[h] = true
	}
	for _, it := range lost {
		going[it.hash] = true
	}
	left := 0
	for h, it := range r.items {
		leaving := going[h] || it.mayRemove() || it.write != applying && it.want.IsZero() && it.seq != 0
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

// window starts a new budget window if nothing was deleted by absence for a while. What could not be deleted yet still
// counts.
func (g *deletionGuard) window(r *replica) {
	if r.peer.now < g.budgetResetAt {
		return
	}
	g.base = r.owned
	maps.DeleteFunc(g.removed, func(h KeyHash, _ bool) bool {
		it := r.items[h]
		return it == nil || !it.mayRemove() || !it.exists || !it.owned
	})
}

// count records items that are deleted by absence without a user's confirmation.
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

// budgetWindow is how long deletions by absence count against the budget.
const budgetWindow = 600 * Second

// hold keeps items from being deleted. A cause that needs a user's confirmation stays until nothing is held and covers
// whatever else is held then.
func (g *deletionGuard) hold(r *replica, items []*replicaItem, cause Cause) {
	if len(g.held) == 0 || g.cause == CauseFleet || cause == CauseStore {
		g.cause = cause
	}
	for _, it := range items {
		it.want, g.changed = Version{}, true
		r.setState(it, itemHeld)
		r.clearProblem(it) // nothing is left to reject
		r.update(it)
	}
}

// confirm deletes what is held, if id still identifies what the user was shown.
func (g *deletionGuard) confirm(r *replica, id string) bool {
	if len(g.held) == 0 || id != g.id {
		return false
	}
	if g.cause == CauseFleet { // no user was asked, so it counts against the budget
		if cause := g.exceeded(r, nil); cause != "" {
			// Users deleted other items since the hold began. What is held now exceeds what the hub alone may confirm.
			g.cause, g.changed = cause, true
			return true
		}
		g.count(r, slices.Collect(maps.Values(g.held)))
	}
	for _, h := range sortedHashes(g.held) {
		it := g.held[h]
		r.setState(it, removable)
		if it.ticket == 0 {
			r.remove(it, true, "")
		}
		r.update(it)
	}
	return true
}

// report returns a change of what is held, and the previous ID. It returns nil if nothing changed.
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

// reason describes the rule that holds the items, and the action.
func (g *deletionGuard) reason(r *replica) string {
	const advice = ". If that is intended, confirm. Otherwise correct what selects the items (label selector, allowed namespaces, namespace of the Agent) or restore them"
	switch g.cause {
	case CauseStore:
		return "the owner's API server was restored from a backup or replaced"
	case CauseSource:
		return "the owner lacks the object that these came from and deletes another one of that name. To delete these too, confirm"
	case CauseLast:
		return "the deletion exceeds the deletion budget: the owner lacks all remaining items of this scope" + advice
	case CauseHalf:
		return "the deletion exceeds the deletion budget: the owner lacks more than half of this scope" + advice
	case CauseMany:
		return fmt.Sprintf("the deletion exceeds the deletion budget: the owner lacks more than %d items and more than %d %% of this scope", r.tune.DeletionBudgetItems, r.tune.DeletionBudgetPercent) + advice
	case CauseFleet:
		return "the owner lacks these items, and the hub checks whether many agents lose items at once. No action is needed unless argocd-agentctl pending asks for a confirmation"
	}
	return ""
}

// maxSample bounds the keys in Held.
const maxSample = 10

// fingerprint identifies exactly the set of held keys, so that a confirmation cannot cover more than the user was
// shown.
func (g *deletionGuard) fingerprint(r *replica) string {
	if len(g.held) == 0 {
		return ""
	}
	sum := sha256.New()
	sum.Write([]byte(r.cfg.Name))
	if g.cause == CauseFleet { // the hub's confirmation is not a user's confirmation of the same items
		sum.Write([]byte(CauseFleet))
	}
	var b [8]byte
	for _, h := range sortedHashes(g.held) {
		binary.BigEndian.PutUint64(b[:], uint64(h))
		sum.Write(b[:])
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// release ends the hold of all items. They are judged again.
func (g *deletionGuard) release(r *replica) {
	for _, h := range sortedHashes(g.held) {
		it := g.held[h]
		r.setState(it, tracked)
		r.update(it)
	}
}
