package engine

// This file keeps a process with a stale view from undoing what another process wrote from a newer view. Such a process
// is a principal replica that lags, or an agent process that was suspended while a second one replaced it. Each object
// records the revision of the owner's store that it came from, which shows which process is newer.

// newerThan reports whether an item came from a later state of the owner's store than view. If view is 0, it is
// unknown.
func (r *replica) newerThan(it *replicaItem, view uint64) bool {
	if view == 0 || !it.exists || !it.owned || it.sourceRevision <= view {
		return false
	}
	return it.sourceRevision <= r.peer.current.Revision || it.sourceRevision > r.horizon
}

// setHorizon records the newest source revision of all items. If it is later than the owner's store at the start of a
// session, that store regressed or was replaced, and such source revisions mean nothing in it.
func (r *replica) setHorizon() {
	r.horizon = 0
	for _, it := range r.items {
		r.horizon = max(r.horizon, it.sourceRevision)
	}
}

func (r *replica) setSourceRevision(it *replicaItem, born uint64) {
	it.sourceRevision = born
	if !r.peer.storeUntrusted {
		r.seen = max(r.seen, born)
	}
}
