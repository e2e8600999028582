package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// This file decides which hub an agent follows if several hubs have one identity: an active hub and its standby.
//
// A promotion increases the generation. An agent does not follow a hub with a lower generation than it has seen. So at most
// one hub at a time writes to it. A process of the agent that has not seen the newer generation does not overwrite what
// another process wrote for it: each object records the generation that it came from.
//
// Two hubs with one identity and generation, and different stores, are not a promotion: for example a hub that was restored
// into a new cluster while the former one still runs. An agent with several addresses stays with the hub that it follows. An
// agent with one address follows the new hub, whose store is untrusted until a user confirms it.
//
// An agent that gets a hub of another identity remembers the generation of the former one. A new hub that takes the place of a
// lost one needs it, because it must have a later generation: see reconcile.ReplicaPage.
//
// A promoted hub has another store than the one before, and names it: its predecessor, and the revision up to which it has
// received everything of it. If the agent knows the predecessor, it trusts the new store, except for items that came from a
// later revision. The new hub may have an older state of these, or may lack them. Their updates and deletions are held, and
// commands, until a user confirms.

// HubGeneration is the generation of a hub.
type HubGeneration struct {
	Hub    string // identity: PrincipalUID
	Number uint64 // 1 before the first promotion; 0 if unknown

	// Since is the generation from which on the agent has followed the store of the hub without another store in between: a
	// hub that is demoted and promoted again keeps its store. If 0, it is Number.
	Since uint64

	Store string // UID of its store; empty if unknown
}

// isOtherStore reports whether a hub has the same identity and generation, and another store. Then two hubs claim to be active,
// because a promotion increases the generation. The trusted store, if any, is none of another hub: a user can have accepted it
// while an older release ran, which does not record the store of a generation.
func (g HubGeneration) isOtherStore(m Welcome, trusted string) bool {
	return g.Store != "" && g.is(m.Generation()) && g.Store != m.Store.UID && (trusted == "" || trusted != m.Store.UID)
}

// since returns the first generation of the store.
func (g HubGeneration) since() uint64 { return generation(min(cmp.Or(g.Since, g.Number), g.Number)) }

// is reports whether both are one generation.
func (g HubGeneration) is(other HubGeneration) bool {
	return g.Hub == other.Hub && g.Number == other.Number
}

// Follow returns the generation of a hub for an agent that knows another generation and a store.
func (g HubGeneration) Follow(m Welcome, known Store) HubGeneration {
	next := m.Generation()
	if next.Hub == g.Hub && m.Store.UID == known.UID && g.since() < next.Number {
		next.Since = g.since()
	}
	return next
}

// Newer returns the later of two generations, or the other one if it is of another hub.
func (g HubGeneration) Newer(other HubGeneration) HubGeneration {
	switch {
	case other.Hub == "" || other.Hub == g.Hub && other.Number < g.Number:
		return g
	case other.is(g) && (g.Store == "" || other.Store == "" || g.Store == other.Store):
		g.Since, g.Store = cmp.Or(other.Since, g.Since), cmp.Or(other.Store, g.Store)
		return g
	}
	return other
}

// maxFormerHubs bounds the hubs that an agent has followed before the present one and remembers.
const maxFormerHubs = 8

// MergeGenerations returns the latest known generation of the current hub, and the latest of each other hub. The hub that was
// named last is last. If there are too many, the first ones are left out.
func MergeGenerations(current HubGeneration, known ...HubGeneration) (HubGeneration, []HubGeneration) {
	var former []HubGeneration
	for _, g := range known {
		switch g.Hub {
		case "":
			continue
		case current.Hub:
			current = current.Newer(g)
			continue
		}
		if i := slices.IndexFunc(former, func(f HubGeneration) bool { return f.Hub == g.Hub }); i >= 0 {
			g = g.Newer(former[i])
			former = slices.Delete(former, i, i+1)
		}
		g.Store = ""
		former = append(former, g)
	}
	return current, former[max(0, len(former)-maxFormerHubs):]
}

// Generation returns the generation of the hub. A hub of an older release has none and was never promoted.
func (m Welcome) Generation() HubGeneration {
	return HubGeneration{Hub: m.PrincipalUID, Number: max(1, m.HubGeneration), Store: m.Store.UID}
}

// successor is a store that continues one that the agent knew.
type successor struct {
	store Store
	until uint64 // revision of the predecessor up to which the store is complete
	from  uint64 // generation of the predecessor
	since uint64 // its first generation
	begun bool   // the items have been checked
}

// IsOtherHub reports whether a hub is another one than that of this generation. An agent with several addresses does not
// follow it. trusted is the UID of the store that the agent trusts, if any.
func (g HubGeneration) IsOtherHub(m Welcome, trusted string) bool {
	return g.Hub != "" && g.Hub != m.PrincipalUID || g.isOtherStore(m, trusted)
}

// wrongHub returns why the agent does not follow a hub, or OK.
func (p *Peer) wrongHub(m Welcome) (Code, string) {
	known, now, trusted := p.generation, m.Generation(), p.other.UID
	if p.storeUntrusted {
		trusted = ""
	}
	switch {
	case p.cfg.OneHub && known.isOtherStore(m, trusted):
		return WrongHub, fmt.Sprintf("two hubs claim to be active with generation %d: this agent follows the one with store %s, and this address leads to store %.64q; the hub that should be active needs the next generation: demote both with `argocd-agentctl hub demote`, and promote that one with `argocd-agentctl hub promote --accept-loss`", now.Number, known.Store, m.Store.UID)
	case known.Hub != "" && known.Hub != now.Hub && p.cfg.OneHub:
		return WrongHub, fmt.Sprintf("this agent belongs to hub %s, and this address leads to hub %.64q; remove the address from --server-address, or set only this one to change the hub", known.Hub, now.Hub)
	case now.Number < p.LatestGeneration(now.Hub):
		return HubSuperseded, fmt.Sprintf("this hub has generation %d, and a hub of generation %d has taken over", now.Number, p.LatestGeneration(now.Hub))
	}
	return OK, ""
}

// setGeneration records the generation of the hub of a session, and whether its store continues the known one. It must
// precede checkStore.
func (p *Peer) setGeneration(m Welcome) {
	known := p.generation
	now := known.Follow(m, p.other)
	_, p.former = MergeGenerations(now, append(p.FormerGenerations(), known)...)
	p.generation = now
	switch {
	case !p.storeUntrusted && now.Hub == known.Hub && now.Number > known.Number && m.Store.UID != p.other.UID &&
		m.Predecessor.UID == p.other.UID:
		p.successor = successor{store: m.Store, until: m.Predecessor.Revision, from: known.Number, since: known.since()}
	case p.storeUntrusted && now.is(known) && m.Store.UID == p.successor.store.UID && m.Store.Revision >= p.successor.store.Revision:
		p.successor.store = m.Store
	default:
		p.successor = successor{}
	}
}

// continueStore accepts the store of a promoted hub, unless it may lack changes that this side has.
func (p *Peer) continueStore() {
	if !p.storeUntrusted || p.successor.until == 0 || p.successor.begun {
		return
	}
	p.successor.begun = true
	for _, r := range p.orderedReplicas {
		if r.cfg.Style != Mirror {
			continue
		}
		for _, it := range r.items {
			it.suspect = r.outlives(it)
		}
	}
	if p.readAll() && p.suspects() == 0 && p.unreceivedRemovals() == 0 {
		p.trustStore()
		p.emit(Event{Type: StoreContinued, Store: p.other})
	}
}

// readAll reports whether this side has read all objects that the other side owns.
func (p *Peer) readAll() bool {
	return !slices.ContainsFunc(p.orderedReplicas, func(r *replica) bool { return r.cfg.Style == Mirror && !r.complete && !r.unshared })
}

// outlives reports whether an object may be newer than what a promoted hub has received.
func (r *replica) outlives(it *replicaItem) bool {
	s := &r.peer.successor
	return it.exists && it.owned && (it.sourceRevision == 0 || r.peer.invented[generation(it.sourceGeneration)] || s.isFrom(generation(it.sourceGeneration)) && it.sourceRevision > s.until)
}

// isFrom reports whether a generation was one of the predecessor, so that its revisions can be compared.
func (s *successor) isFrom(generation uint64) bool {
	return generation >= s.since && generation <= s.from
}

func (p *Peer) suspects() int {
	n := 0
	for _, r := range p.orderedReplicas {
		for _, it := range r.items {
			if it.suspect {
				n++
			}
		}
	}
	return n
}

// LaterGenerations returns the generations on replicas that are later than the one that the agent follows.
func (p *Peer) LaterGenerations() []uint64 {
	found := map[uint64]bool{}
	for _, r := range p.orderedReplicas {
		for _, it := range r.items {
			if from := generation(it.sourceGeneration); it.exists && it.owned && from > generation(p.generation.Number) {
				found[from] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// setInvented records which later generations no hub had: they were on replicas before the record of the agent was read, and
// the record has an earlier one. A process of the agent stores a generation before it writes a replica of it.
func (p *Peer) setInvented(in Remembered) {
	p.invented = nil
	if in.Generation.Hub == "" || in.Generation.Hub != p.generation.Hub {
		return
	}
	for _, from := range in.LaterGenerations {
		if from > generation(p.generation.Number) {
			if p.invented == nil {
				p.invented = map[uint64]bool{}
			}
			p.invented[from] = true
		}
	}
}

// untrusted reports whether the owner's store is untrusted for an item.
func (r *replica) untrusted(it *replicaItem) bool {
	return r.peer.storeUntrusted && (!r.peer.successor.begun || it.suspect)
}

// generation returns the generation that a recorded one means: objects of the first have none.
func generation[T uint32 | uint64](recorded T) uint64 { return max(1, uint64(recorded)) }

// sourceGeneration returns what is recorded on objects of this session: nothing before the first promotion.
func (p *Peer) sourceGeneration() uint64 {
	if p.generation.Number <= 1 {
		return 0
	}
	return p.generation.Number
}

// Generation returns the latest generation of the hub that the agent has seen.
func (p *Peer) Generation() HubGeneration { return p.generation }

// FormerGenerations returns the latest generations of other hubs that the agent followed before.
func (p *Peer) FormerGenerations() []HubGeneration { return slices.Clone(p.former) }

// LatestGeneration returns the latest generation of a hub that the agent has seen, or 0 if it has not followed this hub.
func (p *Peer) LatestGeneration(hub string) uint64 {
	latest, _ := MergeGenerations(HubGeneration{Hub: hub}, append(p.FormerGenerations(), p.generation)...)
	return latest.Number
}
