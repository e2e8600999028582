package engine

import "fmt"

// This file is the part of a replica that deals with items from the owner.

// delta takes an item from the owner, who knows its own store up to view.
func (r *replica) delta(in DeltaItem, view uint64) {
	if !r.complete {
		r.ack(in, Unavailable, r.reason, 0)
		return
	}
	if !in.Gone && in.Version != VersionOf(in.Content) {
		r.ack(in, Invalid, "its content does not have the version that it came with", 0)
		return
	}
	it := r.items[in.Key.Hash()]
	if it == nil {
		switch {
		case in.Gone:
			r.floor = max(r.floor, in.Seq)
			r.ack(in, OK, "", 0)
			return
		case in.Seq <= r.floor:
			// It may be of a key that has been removed since, and must not bring
			// that back. If it is merely out of order, it will be sent again.
			return
		case len(r.items) >= r.tune.MaxItems:
			r.ack(in, TooLarge, "more items than this side accepts in one scope", 0)
			return
		}
	}
	it = r.add(in.Key)
	switch {
	case it == nil:
		r.ack(in, NameTaken, "its key hash collides with that of another item; rename one of the two", 0)
	case in.Seq <= it.seq:
		// Late or doubled; the later one speaks for both.
	case r.newerThan(it, max(view, in.Revision)):
		r.ack(in, Unavailable, "this process of the owner has not seen yet what was written here last", r.tune.MinRetryDelay)
	case r.load > 0 && (r.load+windowCost(in) > maxQueuedWindows*r.tune.Window || r.storedBytes+r.load+windowCost(in) > r.tune.MaxBytes):
		r.ack(in, Overloaded, "more is under way than this side can hold", r.tune.MinRetryDelay)
		r.update(it)
	case it.ticket != 0:
		it.seq = in.Seq
		r.setNext(it, &in)
	default:
		it.seq = in.Seq
		r.take(it, in)
	}
}

// maxQueuedWindows is how many windows of items a replica holds for a peer that sends
// regardless of answers. A peer that keeps to its own window never gets there.
const maxQueuedWindows = 16

// windowCost is what an item counts against a window.
func windowCost(in DeltaItem) int {
	return len(in.Content) + len(in.Extra) + len(in.Key.Namespace) + len(in.Key.Name) + 64
}

func (r *replica) take(it *replicaItem, in DeltaItem) {
	it.touched = r.round.id
	it.loose, it.removalConfirmed, it.leaving = false, false, false
	if in.Gone {
		r.takeGone(it, in)
		return
	}
	if it.want != in.Version {
		it.want, it.replaced, it.overwrites = in.Version, Version{}, 0
		delete(r.contested, it.hash)
	}
	it.again = false
	delete(r.redo, it.hash)
	r.setRefused(it, false)
	r.guard.drop(it)
	switch {
	case r.cfg.Style == Attached && !it.exists:
		r.refuse(it, in, NoObject, "there is no such object on this side", 0)
	case r.cfg.Style == OneShot && r.peer.storeUntrusted:
		r.refuse(it, in, HeldBack, "the hub's store went back in time; commands wait until that is confirmed", 0)
	case r.heldUpdate(it, in):
		r.refuse(it, in, HeldBack, "the owner's store went back in time or is another one; updates wait until that is confirmed", 0)
	case r.cfg.Style != OneShot && it.effective() != in.Version && r.exceeds(it, in):
		r.refuse(it, in, TooLarge, fmt.Sprintf("it would be more than the %d bytes of kind %s that are stored for one agent", r.tune.MaxBytes, r.cfg.Name), 0)
	case len(in.Extra) == 0 && r.cfg.Style != OneShot && it.exists && it.owned && it.effective() == in.Version:
		r.cured(it)
		r.ack(in, OK, "", 0)
		r.update(it)
	default:
		it.ticket, it.removing, it.size = r.peer.ticket(), false, int32(windowCost(in))
		r.load += int(it.size)
		r.update(it)
		r.peer.emit(Apply{Scope: r.cfg.Name, Key: it.key, Ticket: it.ticket, Version: in.Version,
			Content: in.Content, Extra: in.Extra, SourceRevision: in.Revision, Suspect: r.peer.storeUntrusted})
	}
}

// heldUpdate reports whether an item waits until the owner's store is trusted
// again: one that would replace what an object of ours contains. It may be older
// than that, and with automated sync and prune an old spec deletes resources. Its
// revision does not prove that it is newer: the status of an Application is part
// of the same object, so a report moves the revision and the spec stays old. New
// objects replace nothing and are written.
func (r *replica) heldUpdate(it *replicaItem, in DeltaItem) bool {
	return r.peer.storeUntrusted && r.cfg.Style == Mirror && it.exists && it.owned && it.effective() != in.Version
}

// askForHeldUpdates asks for what heldUpdate has refused: the owner's store is
// trusted now.
func (r *replica) askForHeldUpdates() {
	for _, h := range sortedHashes(r.items) {
		if it := r.items[h]; it.refused && r.cfg.Style == Mirror && it.ticket == 0 {
			r.askFor(it)
		}
	}
}

// takeGone removes an item that the owner was seen to lose.
func (r *replica) takeGone(it *replicaItem, in DeltaItem) {
	it.want, it.replaced, it.again = Version{}, Version{}, false
	delete(r.redo, it.hash)
	r.setRefused(it, false)
	r.cured(it)
	switch {
	case !it.exists || !it.owned || r.cfg.Style != Mirror:
		r.ack(in, OK, "", 0)
	case r.peer.storeUntrusted:
		r.guard.hold(r, []*replicaItem{it}, CauseStore)
		r.ack(in, HeldBack, "the owner's store went back in time; deletions wait until that is confirmed", 0)
	default:
		r.guard.drop(it)
		r.remove(it, false, in.Deleted)
	}
	r.update(it)
}

// remove deletes the local object. Absent: the owner did not ask for it by an
// item. Deleted: a user deleted the owner's object.
func (r *replica) remove(it *replicaItem, absent, deleted bool) {
	it.ticket, it.removing, it.absent, it.size = r.peer.ticket(), true, absent, 0
	r.peer.emit(Remove{Scope: r.cfg.Name, Key: it.key, Ticket: it.ticket, Deleted: deleted})
}

// applied takes the caller's word on a write.
func (r *replica) applied(in Applied) {
	it := r.get(in.Key)
	if it == nil || it.ticket != in.Ticket {
		return
	}
	r.load -= int(it.size)
	it.ticket, it.size = 0, 0
	if !r.peer.isOpen() {
		r.setNext(it, nil) // of a session that is over
	}
	if it.removing {
		r.removed(it, in)
	} else {
		r.written(it, in)
	}
	if next := it.next; next != nil {
		r.setNext(it, nil)
		r.take(it, *next)
		return
	}
	if it.again {
		it.again = false
		if it.want.IsZero() {
			r.askFor(it)
		}
	}
	r.update(it)
	r.drift(it)
}

func (r *replica) removed(it *replicaItem, in Applied) {
	if in.Code == OK {
		r.setExists(it, false, false)
		r.setStored(it, 0)
		it.stored = Version{}
		r.setAlias(it, Alias{}, false)
	} else if in.Code == InUse && it.absent && it.next == nil {
		it.leaving = true
		r.redo[it.hash] = r.peer.now + r.tune.Beacon
		r.wakeBy(r.redo[it.hash])
	}
	if asked := !it.absent && it.seq != 0; asked && it.next == nil { // Seq 0: by an earlier session
		answer := DeltaItem{Seq: it.seq, Key: it.key}
		if in.Code != OK {
			// It stays, and counts: the owner has to know as what.
			answer.Version, _ = r.counted(it)
		}
		r.ack(answer, in.Code, in.Message, in.RetryAfter)
	}
}

// retryRemoval compares again some time after an absent item could not be removed
// because it was in use. The item counts again, so that the removal is decided by
// a new round: only what the owner still lacks is removed.
func (r *replica) retryRemoval(it *replicaItem) {
	if it.leaving {
		it.leaving = false
		r.update(it)
		r.startRound()
	}
}

func (r *replica) written(it *replicaItem, in Applied) {
	answer := DeltaItem{Seq: it.seq, Key: it.key, Version: it.want}
	if it.want.IsZero() {
		// Of an earlier session; this one finds out by comparing.
		if in.Code == OK {
			r.noteHeld(it, in)
		}
		r.startRound()
		return
	}
	if in.Code != OK {
		if it.next == nil {
			r.refuse(it, answer, in.Code, in.Message, in.RetryAfter)
		}
		return
	}
	r.cured(it)
	r.noteHeld(it, in)
	if in.Gone {
		if r.peer.isOpen() {
			r.peer.send(Finished{Scope: r.cfg.Name, Key: it.key, Version: it.want})
		}
		it.want = Version{}
		if it.exists && it.owned {
			// What is here came from another object of that name, which the
			// owner lacks. Nobody has asked for its removal.
			r.guard.hold(r, []*replicaItem{it}, CauseSource)
		}
	}
	if in.Left {
		r.leave(it)
	} else if it.stored == it.want {
		r.setAlias(it, Alias{}, false) // of an earlier version
	}
	if in.Deleting {
		in.Lost, in.Written = nil, false
	}
	// A write may have replaced an object from which something else took the
	// record of an alias that is known here.
	unrecorded := in.Written && len(in.Lost) > 0
	if it.exists && !it.want.IsZero() && it.owned && (it.effective() != it.want || unrecorded) && r.cfg.Style != OneShot {
		r.recordAlias(it, in.Lost, in.Written)
	}
	if it.next == nil {
		r.ack(answer, OK, "", 0)
	}
	if r.cfg.Style == OneShot {
		it.want = Version{}
	}
}

func (r *replica) noteHeld(it *replicaItem, in Applied) {
	if r.cfg.Style == OneShot {
		return
	}
	r.setExists(it, !in.Stored.IsZero(), !in.Stored.IsZero())
	r.setStored(it, in.Size)
	it.stored = in.Stored
	r.setBorn(it, in.SourceRevision)
	switch {
	case !in.Written || in.Replaced == in.Stored || in.Replaced.IsZero():
	case in.Replaced != it.replaced:
		it.replaced, it.overwrites = in.Replaced, 1
	case it.overwrites < 250:
		it.overwrites++
		r.contested[it.hash] = in.Contested
	}
}

// refuse tells the owner why an item cannot be had, and remembers that for the
// rest of the session so that rounds do not ask for it again and again.
func (r *replica) refuse(it *replicaItem, in DeltaItem, code Code, message string, after Time) {
	why := newProblem(code, message, it.exists, r.peer.session)
	known := it.problem != nil && it.problem.why == why.why && it.problem.session == why.session
	if r.cfg.Style == OneShot {
		it.want = Version{}
	} else {
		r.setRefused(it, true)
		if it.problem == nil {
			r.problems++
		}
		it.problem = why
	}
	r.update(it)
	r.ack(in, code, message, after)
	if known {
		return // people have been told
	}
	r.peer.fact(Event{Event: Rejected, Scope: r.cfg.Name, Key: in.Key, Code: code, Message: message})
}

func (r *replica) ack(in DeltaItem, code Code, message string, after Time) {
	r.acks = append(r.acks, AckItem{Seq: in.Seq, Key: in.Key, Version: in.Version, Code: code,
		Message: message, RetryAfterMillis: int64(after)})
}
