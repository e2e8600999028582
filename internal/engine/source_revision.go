package engine

import "math"

// This file keeps a process with a stale view from undoing what another process wrote from a newer view. Such a process
// is a principal replica that lags, or an agent process that was suspended while a second one replaced it. Each object
// records the revision of the owner's store that it came from, which shows which process is newer.

// newerThan reports whether an item came from a later state of the owner's store than view, or from a hub that was promoted
// since. If view is 0, it is unknown.
func (r *replica) newerThan(it *replicaItem, view uint64) bool {
	return it.exists && it.owned && r.later(uint64(it.sourceGeneration), it.sourceRevision, view)
}

// later reports whether a source revision is later than view and in the same history of the owner's store, or of a later
// generation.
func (r *replica) later(sourceGeneration, sourceRevision, view uint64) bool {
	if from, now := generation(sourceGeneration), generation(r.peer.generation.Number); from != now {
		return from > now && !r.peer.invented[from]
	}
	if view == 0 || sourceRevision <= view {
		return false
	}
	return sourceRevision <= r.peer.current.Revision || sourceRevision > r.horizon
}

// IsLater reports whether the source revision of an owned object is later than the View of an Apply. Then another
// process has written the object since, from a state that the owner of this session had not read.
func (p *Peer) IsLater(scope string, sourceGeneration, sourceRevision, view uint64) bool {
	return p.replicas[scope].later(sourceGeneration, sourceRevision, view)
}

// refuseStale asks the owner to send an item again when it has read more.
func (r *replica) refuseStale(in DeltaItem) {
	r.ack(in, Unavailable, StaleView, r.tune.MinRetryDelay)
}

// StaleView is the message of an item that is not applied because of newerThan.
const StaleView = "the owner process has not read the latest state that was written here"

// setHorizon records the newest source revision of all items. If it is later than the owner's store at the start of a
// session, that store regressed or was replaced, and such source revisions mean nothing in it.
func (r *replica) setHorizon() {
	r.horizon = 0
	for _, it := range r.items {
		if r.ofThisGeneration(it) {
			r.horizon = max(r.horizon, it.sourceRevision)
		}
	}
}

// ofThisGeneration reports whether the source revision of an item is one of the store of the known hub.
func (r *replica) ofThisGeneration(it *replicaItem) bool {
	return generation(it.sourceGeneration) == generation(r.peer.generation.Number)
}

func (r *replica) setSourceRevision(it *replicaItem, born, sourceGeneration uint64) {
	it.sourceRevision, it.sourceGeneration = born, uint32(min(sourceGeneration, math.MaxUint32))
	if !r.peer.storeUntrusted && r.ofThisGeneration(it) {
		r.seen = max(r.seen, born)
	}
}
