package engine

// This file keeps a process whose view is old from undoing what another one has
// written from a newer view: a replica of the hub that lags, or a process of an
// agent that was suspended while a second one took its place. Who is newer is
// read off the objects: each says from which revision of the owner's store it
// came.

// newerThan tells that an item came from a later state of the owner's store than
// the one that is spoken of; 0: not told.
func (r *replica) newerThan(it *replicaItem, view uint64) bool {
	if view == 0 || !it.exists || !it.owned || it.born <= view {
		return false
	}
	return it.born <= r.peer.current.Revision || it.born > r.horizon
}

// setHorizon notes which items have come from later than the owner's store is at
// the start of a session: that store has gone back, or is another one, and what
// they say of their age means nothing in it.
func (r *replica) setHorizon() {
	r.horizon = 0
	for _, it := range r.items {
		r.horizon = max(r.horizon, it.born)
	}
}

func (r *replica) setBorn(it *replicaItem, born uint64) {
	it.born = born
	if !r.peer.storeUntrusted {
		r.seen = max(r.seen, born)
	}
}
