package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// This file keeps a promoted hub from bringing back what the hub before it has deleted. A replica that was deleted or released
// leaves no trace, so that the agent remembers it, with the revision of the hub's store. If a hub of a later generation has not
// received everything up to there, it may still have the item. The agent neither creates nor adopts its object before a user
// confirms the store.
//
// An item that a user has created again on the promoted hub has another UID and is not held. A restored store and one whose
// predecessor is unknown may lack every deletion.

// Removal is a replica that was deleted or released here because the hub ordered it.
type Removal struct {
	Scope      string  // empty: it stands for all that are no longer remembered
	Key        KeyHash // of the item
	Source     string  // UID of the hub's object; empty if unknown
	Generation uint64  // of the hub
	Revision   uint64  // of its store, as far as seen at the time of the deletion
}

// MaxRemovals bounds the removals that are remembered.
const MaxRemovals = 256

func (d Removal) compare(other Removal) int {
	return cmp.Or(cmp.Compare(generation(d.Generation), generation(other.Generation)), cmp.Compare(d.Revision, other.Revision),
		cmp.Compare(d.Scope, other.Scope), cmp.Compare(d.Key, other.Key), cmp.Compare(d.Source, other.Source))
}

// MergeRemovals returns the latest removal of each item, the oldest first. If there are too many, one stands for the oldest
// ones.
func MergeRemovals(lists ...[]Removal) []Removal {
	type item struct {
		scope  string
		key    KeyHash
		source string
	}
	latest := map[item]Removal{}
	for _, d := range slices.Concat(lists...) {
		i := item{d.Scope, d.Key, d.Source}
		if was, ok := latest[i]; !ok || was.compare(d) < 0 {
			latest[i] = d
		}
	}
	forgotten, some := latest[item{}]
	delete(latest, item{})
	out := slices.SortedFunc(maps.Values(latest), Removal.compare)
	if excess := len(out) - MaxRemovals; excess > 0 {
		last := Removal{Generation: out[excess-1].Generation, Revision: out[excess-1].Revision}
		if !some || forgotten.compare(last) < 0 {
			forgotten, some = last, true
		}
		out = out[excess:]
	}
	if some {
		out = append([]Removal{forgotten}, out...)
	}
	return out
}

// KnownRemovals returns the removals that a later hub may not have received: while a store is trusted, those of the hubs
// before it do not count.
func KnownRemovals(all []Removal, of HubGeneration, store Store, untrusted bool) []Removal {
	if untrusted || store.UID == "" || store.UID != of.Store {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(d Removal) bool { return generation(d.Generation) < of.since() })
}

// Removals returns the replicas that were deleted here for the hub, the oldest first.
func (p *Peer) Removals() []Removal { return slices.Clone(p.removals) }

// removing records a deletion that is about to be done.
func (p *Peer) removing(in Removing) {
	if p.cfg.Hub || p.replicas[in.Scope] == nil {
		return
	}
	seen := p.other.Revision
	if p.storeUntrusted {
		seen = max(p.current.Revision, p.successor.store.Revision)
	}
	p.removals = MergeRemovals(p.removals, []Removal{{Scope: in.Scope, Key: in.Key.Hash(), Source: recordedSource(in.Source), Generation: p.sourceGeneration(), Revision: seen}})
}

// recordedSource returns a UID, or "" if the text cannot be one: users of the workload cluster can write it on a replica.
func recordedSource(uid string) string {
	const maxUID = 128
	if len(uid) > maxUID || strings.ContainsFunc(uid, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
		return ""
	}
	return uid
}

// setPredecessor records what a hub has received of the store that the agent knows. It must precede checkStore.
func (p *Peer) setPredecessor(m Welcome) {
	p.predecessor = Store{}
	if m.Store.UID != p.other.UID {
		p.predecessor = m.Predecessor
	}
}

// unreceived reports whether the hub of the session may not know a removal. The store must be untrusted.
func (p *Peer) unreceived(d Removal) bool {
	switch {
	case p.predecessor.UID != "" && p.predecessor.UID == p.other.UID:
		return generation(d.Generation) < generation(p.generation.Number) && (d.Revision == 0 || d.Revision > p.predecessor.Revision)
	case d.Scope == "":
		return p.predecessor.UID != "" // a restored store may bring back what was deleted long ago, as before
	}
	return true
}

// acceptRemovals forgets the removals that a trusted hub has received, or that a user has accepted as lost. What a promoted hub
// has ordered itself stays: the next hub may not have received that.
func (p *Peer) acceptRemovals() {
	p.removals = slices.DeleteFunc(slices.Clone(p.removals), func(d Removal) bool {
		return p.predecessor.UID == "" || generation(d.Generation) < generation(p.generation.Number)
	})
}

// unreceivedRemovals returns how many removals a promoted hub may not know.
func (p *Peer) unreceivedRemovals() int {
	n := 0
	for _, d := range p.removals {
		if p.unreceived(d) {
			n++
		}
	}
	return n
}

// HoldsCreation reports whether an item is not created before a user confirms the hub's store: its replica was deleted here
// for the hub, and the store may be from before that. source is the UID of the hub's object.
func (p *Peer) HoldsCreation(scope string, key Key, source string) bool {
	if !p.storeUntrusted || len(p.removals) == 0 {
		return false
	}
	h := key.Hash()
	return slices.ContainsFunc(p.removals, func(d Removal) bool {
		matches := d.Scope == "" || d.Scope == scope && d.Key == h && (d.Source == source || d.Source == "" || source == "")
		return matches && p.unreceived(d)
	})
}

// FormatRemovals returns removals as text: SCOPE/KEY/SOURCE/GENERATION/REVISION, separated by spaces.
func FormatRemovals(removals []Removal) string {
	parts := make([]string, 0, len(removals))
	for _, d := range removals {
		parts = append(parts, fmt.Sprintf("%s/%x/%s/%d/%d", d.Scope, uint64(d.Key), d.Source, d.Generation, d.Revision))
	}
	return strings.Join(parts, " ")
}

// ParseRemovals parses what FormatRemovals returns. It ignores what it cannot parse.
func ParseRemovals(text string) []Removal {
	var out []Removal
	for part := range strings.FieldsSeq(text) {
		f := strings.Split(part, "/")
		if len(f) != 5 {
			continue
		}
		key, err1 := strconv.ParseUint(f[1], 16, 64)
		number, err2 := strconv.ParseUint(f[3], 10, 64)
		revision, err3 := strconv.ParseUint(f[4], 10, 64)
		if err1 == nil && err2 == nil && err3 == nil {
			out = append(out, Removal{Scope: f[0], Key: KeyHash(key), Source: f[2], Generation: number, Revision: revision})
		}
	}
	return MergeRemovals(out)
}
