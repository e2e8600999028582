package engine

// This file is the part of a replica that deals with local objects which are not
// as the owner has them.

// assumeOwnerVersion fills in what the owner has of an item that it has not spoken of in
// this session: when both sides were proven equal, it was what we had.
func (r *replica) assumeOwnerVersion(it *replicaItem) {
	if r.inSync && it.want.IsZero() && it.ticket == 0 && it.touched < r.provenID {
		if v, ok := r.counted(it); ok {
			it.want = v
		}
	}
}

// recheckAll looks at everything again, after a time in which that was impossible.
func (r *replica) recheckAll() {
	for _, h := range sortedHashes(r.items) {
		r.drift(r.items[h])
	}
	r.startRound()
}

// drift asks for an item whose local object is not as the owner has it. Content
// that comes back after it was replaced twice is put there by somebody who will
// not give in at once: then it is tolerated for a while, and people are told.
func (r *replica) drift(it *replicaItem) {
	if !r.peer.isOpen() || !r.complete || it.ticket != 0 || it.want.IsZero() || it.refused || it.heldBack {
		return
	}
	if it.exists && it.owned && it.effective() == it.want {
		delete(r.redo, it.hash)
		return
	}
	if it.exists && it.owned && it.stored == it.replaced && it.overwrites >= 2 {
		r.tolerate(it)
		return
	}
	r.requestAgain(it)
}

// requestAgain asks for an item at once the first time, and then less and less
// often while it keeps changing.
func (r *replica) requestAgain(it *replicaItem) {
	now := r.peer.now
	if now-it.redoneAt > 2*r.tune.MaxRetryDelay {
		it.redos = 0
	}
	due := now
	if it.redos > 0 {
		due = it.redoneAt + backoff(r.tune.MinRetryDelay, r.tune.MaxRetryDelay, int(it.redos)-1)
	}
	if due > now {
		r.redo[it.hash] = due
		r.wakeBy(due)
		return
	}
	if it.redos < 250 {
		it.redos++
	}
	it.redoneAt = now
	due = now + backoff(r.tune.MinRetryDelay, r.tune.MaxRetryDelay, int(it.redos)) // in case nothing comes of it
	r.redo[it.hash] = due
	r.wakeBy(due)
	r.askFor(it)
}

func (r *replica) askFor(it *replicaItem) { r.wants = append(r.wants, it.hash) }

func (r *replica) wakeBy(t Time) {
	if r.wake == 0 || t < r.wake {
		r.wake = t
	}
}
