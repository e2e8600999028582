package engine

// This file is the part of a replica that corrects drift.

// assumeOwnerVersion sets what the owner has if it has not mentioned the item in this session: when both sides were in
// sync, it was what this side had.
func (r *replica) assumeOwnerVersion(it *replicaItem) {
	if r.inSync && it.want.IsZero() && it.ticket == 0 && it.lastRound < r.inSyncRound {
		if v, ok := r.counted(it); ok {
			it.want = v
		}
	}
}

// recheckAll checks every item for drift. It runs when the view is complete again.
func (r *replica) recheckAll() {
	for _, h := range sortedHashes(r.items) {
		r.drift(r.items[h])
	}
	r.startRound()
}

// drift requests an item whose local object differs from what the owner has. If something restores the same content
// after it was replaced twice, that content is accepted for a while and reported.
func (r *replica) drift(it *replicaItem) {
	if !r.peer.isOpen() || !r.complete || it.ticket != 0 || it.want.IsZero() || it.notAccepted() || it.state == itemHeld {
		return
	}
	if it.exists && it.owned && it.effective() == it.want {
		delete(r.diverged, it.hash)
		return
	}
	if it.exists && it.owned && it.stored == it.replaced && it.overwrites >= 2 {
		r.acceptContested(it)
		return
	}
	r.requestAgain(it)
}

// requestAgain requests an item at once the first time, then with growing delays while it keeps changing.
func (r *replica) requestAgain(it *replicaItem) {
	now := r.peer.now
	if now-it.requestedAt > 2*r.tune.MaxRetryDelay {
		it.requests = 0
	}
	due := now
	if it.requests > 0 {
		due = it.requestedAt + backoff(r.tune.MinRetryDelay, r.tune.MaxRetryDelay, int(it.requests)-1)
	}
	if due > now {
		r.diverged[it.hash] = due
		r.wakeBy(due)
		return
	}
	if it.requests < 250 {
		it.requests++
	}
	it.requestedAt = now
	due = now + backoff(r.tune.MinRetryDelay, r.tune.MaxRetryDelay, int(it.requests)) // if the request has no effect
	r.diverged[it.hash] = due
	r.wakeBy(due)
	r.askFor(it)
}

func (r *replica) askFor(it *replicaItem) { r.wants = append(r.wants, it.hash) }

func (r *replica) wakeBy(t Time) {
	if r.wake == 0 || t < r.wake {
		r.wake = t
	}
}
