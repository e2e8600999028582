package engine

import "slices"

// round is one comparison of a replica with its owner, from the root down. It is complete when every requested prefix
// is answered. Only then does absence count.
type round struct {
	id        uint64 // never reset; an item with this lastRound is not absent
	active    bool
	startedAt Time // or last answered
	asked     map[Prefix]bool
	pending   []Prefix // taken from the end, so that it stays short
	branches  int      // answered
	absent    []KeyHash
	view      uint64 // revision up to which the owner knows its own store; 0 if unknown
}

func (r *round) stop() { *r = round{id: r.id} }

// rootReceived compares the owner's root with the replica's. It reports whether they are equal.
func (r *replica) rootReceived(root Root) bool {
	r.rootSeen = root.Revision
	if r.cfg.Style == OneShot || !r.complete {
		return false
	}
	if root.Sum == r.digest.Sum() && root.Count == uint64(r.digest.Len()) {
		r.markInSync()
		r.peer.emit(Event{Type: InSync, Scope: r.cfg.Name, Revision: root.Revision})
		return true
	}
	r.startRound()
	return false
}

// markInSync records that the owner has exactly what counts here.
func (r *replica) markInSync() {
	r.round = round{id: r.round.id + 1}
	r.inSync, r.inSyncAt, r.inSyncRound = true, r.peer.now, r.round.id
	r.ownerHas(Prefix{})
	for _, h := range sortedHashes(r.diverged) {
		if it := r.items[h]; !it.exists && !it.notAccepted() && it.ticket == 0 {
			it.want = Version{} // the owner has lost it too
			r.update(it)
		}
	}
	r.clearEarlierProblems()
}

// ownerHas records that the owner has everything that counts below a prefix. What was removable there is no longer
// absent. If it is absent again later, the guard decides again.
func (r *replica) ownerHas(p Prefix) {
	if r.removable == 0 {
		return
	}
	for _, own := range r.digest.Items(p) {
		if it := r.items[own.Hash]; it.state == removable {
			r.setState(it, tracked)
		}
	}
}

func (r *replica) startRound() {
	if r.round.active || r.cfg.Style == OneShot || !r.complete || r.unshared || !r.peer.isOpen() {
		return
	}
	r.round = round{id: r.round.id + 1, active: true, startedAt: r.peer.now, asked: map[Prefix]bool{}}
	r.wakeBy(r.peer.now + r.tune.RoundTimeout)
	r.ask([]Prefix{{}})
}

func (r *replica) ask(prefixes []Prefix) {
	for _, p := range prefixes {
		r.round.asked[p] = true
	}
	r.peer.send(Ask{Scope: r.cfg.Name, Round: r.round.id, Prefixes: prefixes})
}

// answered handles the owner's answer to an Ask.
func (r *replica) answered(in Answer) {
	if !r.round.active || in.Round != r.round.id {
		return
	}
	r.round.startedAt = r.peer.now
	if r.round.view == 0 || in.View < r.round.view {
		r.round.view = in.View
	}
	for _, b := range in.Branches {
		if !r.round.asked[b.Prefix] {
			continue
		}
		delete(r.round.asked, b.Prefix)
		r.round.branches++
		if b.Split && b.Prefix.Len < maxDepth {
			r.compareSums(b)
		} else {
			r.compareItems(b)
		}
	}
	if len(r.round.asked) > 0 {
		return
	}
	rest := len(r.round.pending)
	if n := min(rest, r.tune.AskPrefixes); n > 0 {
		if r.round.branches > 2*r.tune.MaxItems {
			r.round.stop() // no acceptable set has so many branches
			return
		}
		next := slices.Clone(r.round.pending[rest-n:])
		r.round.pending = r.round.pending[:rest-n]
		r.ask(next)
		return
	}
	r.finishRound()
}

func (r *replica) compareSums(b Branch) {
	own := r.digest.childSums(b.Prefix)
	theirs := map[uint8]bool{}
	for _, s := range b.Sums {
		if theirs[s.Child] {
			continue
		}
		theirs[s.Child] = true
		if child := b.Prefix.Child(s.Child); s.Sum != own[s.Child] {
			r.round.pending = append(r.round.pending, child)
		} else {
			r.ownerHas(child)
		}
	}
	for i := range own {
		if c := uint8(i); own[i] != (Sum{}) && !theirs[c] {
			for _, it := range r.digest.Items(b.Prefix.Child(c)) {
				r.round.absent = append(r.round.absent, it.Hash)
			}
		}
	}
}

func (r *replica) compareItems(b Branch) {
	listed := make(map[KeyHash]bool, len(b.Items))
	for _, theirs := range b.Items {
		if !b.Prefix.Covers(theirs.Hash) || listed[theirs.Hash] {
			continue
		}
		listed[theirs.Hash] = true
		it := r.items[theirs.Hash]
		if it == nil {
			if len(r.items) < r.tune.MaxItems { // otherwise it would be sent and rejected every time
				r.wants = append(r.wants, theirs.Hash)
			}
			continue
		}
		if v, ok := r.counted(it); !ok || v != theirs.Version {
			r.differs(it)
		} else if it.state == removable {
			r.setState(it, tracked)
		}
	}
	for _, own := range r.digest.Items(b.Prefix) {
		if !listed[own.Hash] {
			r.round.absent = append(r.round.absent, own.Hash)
		}
	}
}

// differs handles an item that the owner has in another version.
func (r *replica) differs(it *replicaItem) {
	_, waits := r.diverged[it.hash]
	switch {
	case it.lastRound == r.round.id:
		// The owner has sent it since the round began.
	case it.ticket != 0:
		it.recompare = true
	case waits && it.state != itemInUse:
		// It is requested when it is due: rounds do not speed up competing writers.
	default:
		if !it.notAccepted() {
			r.setState(it, tracked)
		}
		delete(r.diverged, it.hash)
		r.askFor(it)
		r.update(it)
	}
}

// finishRound deletes what the owner lacks, unless the guard holds it.
func (r *replica) finishRound() {
	r.rounds++
	var lost []*replicaItem
	removes := false
	for _, h := range r.round.absent {
		it := r.items[h]
		if it == nil || it.ticket != 0 || it.lastRound == r.round.id || r.newerThan(it, r.round.view) {
			continue
		}
		if it.notAccepted() {
			r.setState(it, tracked)
		}
		switch {
		case !it.exists || !it.owned: // rejected, and withdrawn since
			it.want = Version{}
			r.clearProblem(it)
		case r.cfg.Style == Attached:
			r.setState(it, unattached)
			it.want = Version{}
			r.clearProblem(it)
			r.peer.emit(Event{Type: Unattached, Scope: r.cfg.Name, Key: it.key})
		case it.mayRemove():
			removes = true
			r.remove(it, true, "") // it failed before and needs no other confirmation
		default:
			lost = append(lost, it)
		}
		r.update(it)
	}
	if removes || len(lost) > 0 {
		r.peer.sawRevision(r, r.round.view) // their absence is known as of this revision
	}
	r.round.stop()
	r.guard.onAbsent(r, lost)
}
