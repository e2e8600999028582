package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
)

// guard stands between a suspicious deletion and the objects. What it holds
// stays as it is until the owner speaks of it again or a person confirms.
type guard struct {
	held    map[KeyHash]*heldItem
	recent  int    // removed by absence, until it has been quiet for a while
	quietAt Time   // when that is
	id      string // of what is held, as last reported
	changed bool   // since then
}

// absent decides on items that a complete round found missing at the owner.
func (g *guard) absent(r *replica, lost []*heldItem) {
	if len(lost) == 0 {
		return
	}
	// What is held already, or went a moment ago, belongs to the same accident:
	// a set must not empty itself a few items at a time.
	if r.peer.now >= g.quietAt {
		g.recent = 0
	}
	n := len(lost) + len(g.held) + g.recent
	if r.peer.suspect || (n > r.tune.HeldCount && n*100 > r.tune.HeldPercent*(r.owned+g.recent)) {
		g.hold(r, lost)
		return
	}
	g.recent += len(lost)
	g.quietAt = r.peer.now + quiet
	for _, it := range lost {
		it.want = Version{}
		r.cured(it)
		r.remove(it, true, false)
	}
}

// quiet is how long removals by absence count against the budget.
const quiet = 600 * Second

func (g *guard) hold(r *replica, items []*heldItem) {
	if g.held == nil {
		g.held = map[KeyHash]*heldItem{}
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
func (g *guard) drop(it *heldItem) {
	if it.heldBack {
		it.heldBack, g.changed = false, true
		delete(g.held, it.hash)
	}
}

// confirm carries out what is held, if it is still what the person looked at.
func (g *guard) confirm(r *replica, id string) bool {
	if len(g.held) == 0 || id != g.id {
		return false
	}
	for _, h := range sortedHashes(g.held) {
		it := g.held[h]
		g.drop(it)
		it.sure = true
		if it.ticket == 0 {
			r.remove(it, true, false)
		}
		r.update(it)
	}
	return true
}

// report tells of a change in what is held, and what its ID was before; nil: no
// change.
func (g *guard) report(r *replica) (held *Held, was string) {
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
func (g *guard) describe(r *replica) *Held {
	out := &Held{Scope: r.cfg.Name, ID: g.id, Count: uint64(len(g.held)), Of: uint64(r.owned)}
	if g.id == "" {
		return out
	}
	out.Reason = "the owner lacks more items than an ordinary change removes"
	if r.peer.suspect {
		out.Reason = "the owner's store went back in time or is another one"
	}
	for _, h := range sortedHashes(g.held) {
		out.Sample = append(out.Sample, g.held[h].key)
	}
	slices.SortFunc(out.Sample, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	out.Sample = out.Sample[:min(len(out.Sample), maxSample)]
	return out
}

// maxSample is how many held keys are named to people.
const maxSample = 10

// fingerprint identifies exactly the set of keys that is held, so that a
// confirmation can not cover more than the person was shown.
func (g *guard) fingerprint(r *replica) string {
	if len(g.held) == 0 {
		return ""
	}
	sum := sha256.New()
	sum.Write([]byte(r.cfg.Name))
	var b [8]byte
	for _, h := range sortedHashes(g.held) {
		binary.BigEndian.PutUint64(b[:], uint64(h))
		sum.Write(b[:])
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// release lets go of everything that is held, to be looked at anew.
func (g *guard) release(r *replica) {
	for _, h := range sortedHashes(g.held) {
		it := g.held[h]
		g.drop(it)
		r.update(it)
	}
}
