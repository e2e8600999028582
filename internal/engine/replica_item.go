package engine

// replicaItem is an item on the replica side: what the local object contains, what the owner has, and the state between
// the two. exists and owned are observed facts. They do not depend on the state.
type replicaItem struct {
	hash             KeyHash
	key              Key
	stored           Version // hash of the object's content
	want             Version // what the owner has; zero if unknown in this session
	alias            Alias
	replaced         Version  // what our last write of want replaced
	problem          *problem // why it was rejected, as reported; nil if nothing was reported or the item is accepted since
	next             *nextItem
	seq              uint64
	lastRound        uint64 // round in which it became known or the owner last mentioned it
	sourceRevision   uint64 // revision of the owner's objects that it came from, as recorded on it; 0 if unknown
	ticket           uint64 // of the write that is running; 0 if none
	requestedAt      Time
	size             int32  // of the item that ticket applies
	storedBytes      int32  // its part of replica.storedBytes
	sourceGeneration uint32 // of the hub that it came from, as recorded on it; 0 is the first
	requests         uint8
	overwrites       uint8 // how often writes of want have replaced the same content
	checks           uint8 // how often in a row the same alias was recorded
	state            replicaState
	write            writeKind // of ticket, or of the last one
	aliasState       aliasState
	exists           bool
	owned            bool
	suspect          bool // it may be newer than what a promoted hub has received
	recompare        bool // a round found a difference while a write was running
}

// nextItem is an item that waits until the running write ends.
type nextItem struct {
	DeltaItem
	view uint64 // revision up to which the owner knew its own store
}

// replicaState is the state of an item on the replica side. Only setState changes it.
//
//	┌──► tracked ─┬──► rejected, orphaned ──────┐
//	│             ├──► unattached ──────────────┤
//	│             ├──► held ──► removable ◄─► inUse
//	│             └───────────────┘             │
//	└───────────────────────────────────────────┘
//
// The states:
//
//   - tracked: the object counts as it is, if it exists and is owned.
//   - rejected: the owner knows why the item is not accepted. It counts as accepted.
//   - orphaned: as rejected, but the owner will lose the item too: its object in an attached scope is gone.
//   - unattached: the owner has no item for the object of an attached scope. It does not count.
//   - held: the owner lacks the item, or deleted it while its store is untrusted. The deletion waits for a
//     confirmation, and the item does not count.
//   - removable: the owner lacks the item, and its deletion is within the budget or confirmed. If the deletion fails,
//     each round that finds the item absent tries again without another confirmation.
//   - inUse: as removable, but the deletion failed because the object is in use. It does not count until the next try.
//
// An item returns to tracked
//
//   - from every state when the owner sends it,
//   - from every state but unattached when a session begins,
//   - from every state but rejected and orphaned when a round lists it in another version,
//   - from removable when a round or equal roots show that the owner has it again,
//   - from rejected and orphaned when its object appears, or when a round finds it absent,
//   - from rejected (mirror), held and unattached when its object is gone, from held also when it is no longer owned.
type replicaState uint8

const (
	tracked replicaState = iota
	itemRejected
	itemOrphaned
	itemHeld
	removable
	itemInUse
	unattached
)

// setState moves an item to a state, and updates what is counted and held by state.
func (r *replica) setState(it *replicaItem, s replicaState) {
	if it.state == s {
		return
	}
	switch it.state {
	case itemRejected:
		r.rejected--
	case removable:
		r.removable--
	case itemHeld:
		delete(r.guard.held, it.hash)
		r.guard.changed = true
	}
	switch s {
	case itemRejected:
		r.rejected++
	case removable:
		r.removable++
	case itemHeld:
		if r.guard.held == nil {
			r.guard.held = map[KeyHash]*replicaItem{}
		}
		r.guard.held[it.hash] = it
		r.guard.changed = true
	}
	it.state = s
}

// notAccepted reports whether the owner knows, or will notice, that the item is not accepted.
func (it *replicaItem) notAccepted() bool {
	return it.state == itemRejected || it.state == itemOrphaned
}

// mayRemove reports whether the item may be deleted without another confirmation.
func (it *replicaItem) mayRemove() bool { return it.state == removable || it.state == itemInUse }

// writeKind is what a write of an item does.
type writeKind uint8

const (
	applying       writeKind = iota
	removing                 // the owner requested it with an item
	removingAbsent           // a round found that the owner lacks the item
)

// aliasState is the state of an item's alias.
type aliasState uint8

const (
	aliasHarmless aliasState = iota
	aliasLossy               // it hides that something is not stored as it was written
	aliasEnded               // it no longer counts and is only remembered
)
