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
	Scope      string  // empty: it stands for all of the store that are no longer remembered
	Key        KeyHash // of the item
	Source     string  // UID of the hub's object; empty if unknown
	Store      string  // UID of the hub's store; empty: any
	Generation uint64  // of the hub
	Revision   uint64  // of its store, as far as seen at the time of the deletion
	ByUser     bool    // a user deleted the hub's object, without its resources
}

// MaxRemovals bounds the removals that are remembered. Of older ones, the latest revision in each store is, for up to
// maxForgottenStores.
const (
	MaxRemovals        = 256
	maxForgottenStores = 8
)

func (d Removal) compare(other Removal) int {
	return cmp.Or(cmp.Compare(generation(d.Generation), generation(other.Generation)), cmp.Compare(d.Store, other.Store), cmp.Compare(d.Revision, other.Revision),
		cmp.Compare(d.Scope, other.Scope), cmp.Compare(d.Key, other.Key), cmp.Compare(d.Source, other.Source), strings.Compare(d.suffix(), other.suffix()))
}

// MergeRemovals returns the latest removal of each item in each store, the oldest first. If there are too many, one of each
// store stands for the oldest ones. If there are too many stores, one stands for the first of them.
func MergeRemovals(lists ...[]Removal) []Removal {
	type item struct {
		scope  string
		key    KeyHash
		source string
		store  string
	}
	latest := map[item]Removal{}
	add := func(d Removal) {
		i := item{d.Scope, d.Key, d.Source, d.Store}
		if was, ok := latest[i]; !ok || was.compare(d) < 0 {
			latest[i] = d
		}
	}
	for _, d := range slices.Concat(lists...) {
		add(d)
	}
	scoped := slices.SortedFunc(maps.Values(latest), Removal.compare)
	scoped = slices.DeleteFunc(scoped, func(d Removal) bool { return d.Scope == "" })
	excess := max(0, len(scoped)-MaxRemovals)
	for _, d := range scoped[:excess] {
		add(Removal{Store: d.Store, Generation: d.Generation, Revision: d.Revision})
	}
	var forgotten []Removal
	for _, d := range latest {
		if d.Scope == "" {
			forgotten = append(forgotten, d)
		}
	}
	slices.SortFunc(forgotten, Removal.compare)
	if stores := len(forgotten) - maxForgottenStores; stores > 0 {
		forgotten = append([]Removal{{}}, forgotten[stores:]...)
	}
	return append(forgotten, scoped[excess:]...)
}

// KnownRemovals returns the removals that a later hub may not have received: while a store is trusted, those of other stores
// before it do not count.
func KnownRemovals(all []Removal, of HubGeneration, store Store, untrusted bool) []Removal {
	if untrusted || store.UID == "" || store.UID != of.Store {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(d Removal) bool {
		return d.Store != store.UID && d.Store != "" && generation(d.Generation) <= generation(of.Number)
	})
}

// Removals returns the replicas that were deleted here for the hub, the oldest first.
func (p *Peer) Removals() []Removal { return slices.Clone(p.removals) }

// RemovedByUser reports whether a replica was deleted here because a user deleted its object on the hub, without its resources.
func (p *Peer) RemovedByUser(scope string, key Key, source string) bool {
	h := key.Hash()
	return slices.ContainsFunc(p.removals, func(d Removal) bool {
		return d.ByUser && d.Scope == scope && d.Key == h && d.Source == source
	})
}

// removing records a deletion that is about to be done.
func (p *Peer) removing(in Removing) {
	if p.cfg.Hub || p.replicas[in.Scope] == nil {
		return
	}
	seen := p.other
	if p.storeUntrusted {
		seen = Store{UID: p.current.UID, Revision: max(p.current.Revision, p.successor.store.Revision)}
	}
	p.removals = MergeRemovals(p.removals, []Removal{{Scope: in.Scope, Key: in.Key.Hash(), Source: recordedUID(in.Source), Store: recordedUID(seen.UID), Generation: p.sourceGeneration(), Revision: seen.Revision, ByUser: in.ByUser}})
}

// recordedUID returns a UID, or "" if the text cannot be one: users of the workload cluster can write it on a replica.
func recordedUID(uid string) string {
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
	if p.predecessor.UID == "" {
		return d.Scope != "" // a restored store may bring back what was deleted long ago, as before
	}
	return d.Store != p.current.UID && (d.Store != p.predecessor.UID || d.Revision == 0 || d.Revision > p.predecessor.Revision)
}

// acceptRemovals is called when the hub's store is trusted. It forgets the removals that a user has accepted as lost. What the hub
// has received or ordered itself stays, as one of its own store: a hub that is promoted after it may not have received that.
func (p *Peer) acceptRemovals() {
	var kept []Removal
	store := recordedUID(p.current.UID)
	for _, d := range p.removals {
		switch {
		case p.predecessor.UID == "" || p.unreceived(d):
			continue
		case d.Store != store:
			d.Store, d.Generation, d.Revision = store, p.sourceGeneration(), max(1, p.current.Revision)
		}
		kept = append(kept, d)
	}
	p.removals = MergeRemovals(kept)
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

// FormatRemovals returns removals as text: @STORE/GENERATION before those of a store, and SCOPE/KEY/SOURCE/REVISION or
// SCOPE/KEY/SOURCE/REVISION/user for each, separated by spaces.
func FormatRemovals(removals []Removal) string {
	var parts []string
	of := ""
	for _, d := range removals {
		if now := fmt.Sprintf("@%s/%d", d.Store, d.Generation); now != of {
			parts, of = append(parts, now), now
		}
		parts = append(parts, fmt.Sprintf("%s/%x/%s/%d%s", d.Scope, uint64(d.Key), d.Source, d.Revision, d.suffix()))
	}
	return strings.Join(parts, " ")
}

// suffix is what the text of a removal ends with.
func (d Removal) suffix() string {
	if d.ByUser {
		return "/user"
	}
	return ""
}

// ParseRemovals parses what FormatRemovals returns. It ignores what it cannot parse.
func ParseRemovals(text string) []Removal {
	var out []Removal
	var of Removal // store and generation
	for part := range strings.FieldsSeq(text) {
		f := strings.Split(part, "/")
		if store, ok := strings.CutPrefix(f[0], "@"); ok {
			of = Removal{}
			if number, err := strconv.ParseUint(f[len(f)-1], 10, 64); err == nil && len(f) == 2 {
				of = Removal{Store: store, Generation: number}
			}
			continue
		}
		if len(f) == 5 && f[4] != "user" || len(f) != 4 && len(f) != 5 {
			continue
		}
		key, err1 := strconv.ParseUint(f[1], 16, 64)
		revision, err2 := strconv.ParseUint(f[3], 10, 64)
		if err1 == nil && err2 == nil {
			out = append(out, Removal{Scope: f[0], Key: KeyHash(key), Source: f[2], Store: of.Store, Generation: of.Generation, Revision: revision, ByUser: len(f) == 5})
		}
	}
	return MergeRemovals(out)
}
