package engine

import "slices"

// round is one comparison of a replica with its owner, from the root down. It
// is complete when every prefix that was asked for has been answered; only then
// absence means anything.
type round struct {
	id        uint64 // grows forever; an item touched in this round is not absent
	active    bool
	startedAt Time // or last answered
	asked     map[Prefix]bool
	pending   []Prefix // taken from the end, so that it stays short however deep the tree
	branches  int      // answered
	absent    []KeyHash
	view      uint64 // how far the owner knew its own store, at the least; 0: not told
}

func (r *round) stop() { *r = round{id: r.id} }

// rootReceived compares the owner's root with our own.
func (r *replica) rootReceived(root Root) bool {
	if r.cfg.Style == OneShot || !r.complete {
		return false
	}
	if root.Sum == r.digest.Sum() && root.Count == uint64(r.digest.Len()) {
		r.prove()
		r.peer.fact(Event{Event: InSync, Scope: r.cfg.Name})
		return true
	}
	r.startRound()
	return false
}

// stillSame reports whether the answer that is owed is true by now, some time after
// the root came. If not, the owner hears of that by what is asked for.
func (r *replica) stillSame() bool { return r.complete && r.owed == r.digest.Sum() }

// prove notes that the owner has what we count, and nothing else.
func (r *replica) prove() {
	r.round = round{id: r.round.id + 1}
	r.inSync, r.inSyncAt, r.provenID = true, r.peer.now, r.round.id
	for _, h := range sortedHashes(r.redo) {
		if it := r.items[h]; !it.exists && !it.refused && it.ticket == 0 {
			it.want = Version{} // asked for in vain: the owner has lost it too
			r.update(it)
		}
	}
	r.cureEarlier()
}

func (r *replica) startRound() {
	if r.round.active || r.cfg.Style == OneShot || !r.complete || !r.peer.isOpen() {
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

// answered takes the owner's answer to an Ask.
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
			r.round.stop() // no set that we would take has so many branches
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
		if s.Sum != own[s.Child] {
			r.round.pending = append(r.round.pending, b.Prefix.Child(s.Child))
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
			if len(r.items) < r.tune.MaxItems { // else it would be sent in vain every time
				r.wants = append(r.wants, theirs.Hash)
			}
			continue
		}
		if v, ok := r.counted(it); !ok || v != theirs.Version {
			r.differs(it)
		}
	}
	for _, own := range r.digest.Items(b.Prefix) {
		if !listed[own.Hash] {
			r.round.absent = append(r.round.absent, own.Hash)
		}
	}
}

// differs deals with an item that the owner has, and has otherwise.
func (r *replica) differs(it *replicaItem) {
	_, waits := r.redo[it.hash]
	switch {
	case it.touched == r.round.id:
		// The owner has spoken of it since the round began.
	case it.ticket != 0:
		it.again = true
	case waits && !it.leaving:
		// It will be asked for in its time: rounds do not hurry a race of writers.
	default:
		r.guard.drop(it)
		it.loose, it.removalConfirmed, it.leaving = false, false, false
		delete(r.redo, it.hash)
		r.askFor(it)
		r.update(it)
	}
}

// finishRound removes what the owner lacks, as far as the guard lets it.
func (r *replica) finishRound() {
	r.rounds++
	var lost []*replicaItem
	removes := false
	for _, h := range r.round.absent {
		it := r.items[h]
		if it == nil || it.ticket != 0 || it.touched == r.round.id || r.newerThan(it, r.round.view) {
			continue
		}
		r.setRefused(it, false)
		switch {
		case !it.exists || !it.owned: // refused, and withdrawn since
			it.want = Version{}
			r.cured(it)
		case r.cfg.Style == Attached:
			it.loose, it.want = true, Version{}
			r.cured(it)
			r.peer.fact(Event{Event: Unattached, Scope: r.cfg.Name, Key: it.key})
		case it.removalConfirmed:
			removes = true
			r.remove(it, true, false) // it failed before; nobody needs to be asked again
		default:
			lost = append(lost, it)
		}
		r.update(it)
	}
	if removes || len(lost) > 0 {
		r.peer.sawRevision(r, r.round.view) // as of then they are known to be gone
	}
	r.round.stop()
	r.guard.onAbsent(r, lost)
}
