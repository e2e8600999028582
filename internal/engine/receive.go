package engine

import "fmt"

// This file is the part of a replica that handles items from the owner.

// delta handles an item from the owner. The owner knows its own store up to view.
func (r *replica) delta(in DeltaItem, view uint64) {
	if !r.complete {
		r.ack(in, Unavailable, r.reason, 0)
		return
	}
	if !in.Gone && in.Version != VersionOf(in.Content) {
		r.ack(in, Invalid, "the content does not match its version", 0)
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
			// It may be of a key that was deleted since, and must not restore it. If it is only out of order, it will
			// be sent again.
			return
		case len(r.items) >= r.tune.MaxItems:
			r.ack(in, TooLarge, fmt.Sprintf("scope %s has the %d items that are stored for one agent", r.cfg.Name, r.tune.MaxItems), 0)
			return
		}
	}
	it = r.add(in.Key)
	view = max(view, in.Revision)
	switch {
	case it == nil:
		r.ack(in, NameTaken, "its key hash collides with that of another item; rename one of the two", 0)
	case in.Seq <= it.seq:
		// Late or duplicate.
	case r.newerThan(it, view):
		r.refuseStale(in)
	case r.load > 0 && (r.load+windowCost(in) > maxQueuedWindows*r.tune.Window || r.storedBytes+r.load+windowCost(in) > r.tune.MaxBytes):
		r.ack(in, Overloaded, "too many items are queued on this side", r.tune.MinRetryDelay)
		r.update(it)
	case it.ticket != 0:
		it.seq = in.Seq
		r.setNext(it, &nextItem{in, view})
	default:
		it.seq = in.Seq
		r.processItem(it, in, view)
	}
}

// maxQueuedWindows is how many windows of items a replica queues for a peer that ignores flow control.
const maxQueuedWindows = 16

// windowCost returns what an item counts against a window.
func windowCost(in DeltaItem) int {
	return len(in.Content) + len(in.Extra) + len(in.Key.Namespace) + len(in.Key.Name) + 64
}

// processItem handles an item of an owner that knows its own store up to view.
func (r *replica) processItem(it *replicaItem, in DeltaItem, view uint64) {
	it.lastRound = r.round.id
	r.setState(it, tracked)
	if in.Gone {
		r.processGone(it, in)
		return
	}
	if it.want != in.Version {
		it.want, it.replaced, it.overwrites = in.Version, Version{}, 0
		delete(r.contested, it.hash)
	}
	it.recompare = false
	delete(r.diverged, it.hash)
	switch {
	case r.cfg.Style == Attached && !it.exists:
		r.reject(it, in, NoObject, "the object does not exist on this side", 0)
	case r.cfg.Style == OneShot && r.peer.storeUntrusted:
		r.reject(it, in, OnHold, "the hub's API server was restored from a backup or replaced; commands wait for a confirmation", 0)
	case r.heldUpdate(it, in):
		r.reject(it, in, OnHold, "the owner's API server was restored from a backup or replaced; updates wait for a confirmation", 0)
	case r.cfg.Style != OneShot && it.effective() != in.Version && r.exceeds(it, in):
		r.reject(it, in, TooLarge, r.exceededText(), 0)
	case len(in.Extra) == 0 && r.cfg.Style != OneShot && it.exists && it.owned && it.effective() == in.Version:
		r.clearProblem(it)
		r.ack(in, OK, "", 0)
		r.update(it)
	default:
		it.ticket, it.write, it.size = r.peer.ticket(), applying, int32(windowCost(in))
		r.load += int(it.size)
		r.update(it)
		r.peer.emit(Apply{Scope: r.cfg.Name, Key: it.key, Ticket: it.ticket, Version: in.Version,
			Content: in.Content, Extra: in.Extra, SourceRevision: in.Revision, View: view, StoreUntrusted: r.untrusted(it), SourceGeneration: r.peer.sourceGeneration()})
	}
}

// heldUpdate reports whether an item waits until the owner's store is trusted again: one that would replace the content
// of an object that we own. It may be older than that content, and with automated sync and prune an old spec deletes
// resources.
//
// Its revision does not prove that it is newer. The status of an Application is part of the same object, so a status
// update raises the revision and the spec stays old. New objects replace nothing and are written.
func (r *replica) heldUpdate(it *replicaItem, in DeltaItem) bool {
	return r.untrusted(it) && r.cfg.Style == Mirror && it.exists && it.owned && it.effective() != in.Version
}

// askForRejected requests what this side has rejected, because the reason may be gone.
func (r *replica) askForRejected() {
	for _, h := range sortedHashes(r.items) {
		if it := r.items[h]; it.notAccepted() && r.cfg.Style == Mirror && it.ticket == 0 {
			r.askFor(it)
		}
	}
}

// processGone deletes an item that the owner saw go.
func (r *replica) processGone(it *replicaItem, in DeltaItem) {
	it.want, it.replaced, it.recompare = Version{}, Version{}, false
	delete(r.diverged, it.hash)
	r.clearProblem(it)
	switch {
	case !it.exists || !it.owned || r.cfg.Style != Mirror:
		r.ack(in, OK, "", 0)
	case r.untrusted(it):
		r.guard.hold(r, []*replicaItem{it}, CauseStore)
		r.ack(in, OnHold, "the owner's API server was restored from a backup or replaced; deletions wait for a confirmation", 0)
	default:
		r.remove(it, false, in.DeletedUID)
	}
	r.update(it)
}

// remove deletes the local object. If absent, a round found that the owner lacks it. If deletedUID is set, a user deleted
// the owner's object with that UID.
func (r *replica) remove(it *replicaItem, absent bool, deletedUID string) {
	it.ticket, it.write, it.size = r.peer.ticket(), removing, 0
	if absent {
		it.write = removingAbsent
	}
	r.peer.emit(Remove{Scope: r.cfg.Name, Key: it.key, Ticket: it.ticket, DeletedUID: deletedUID})
}

// applied handles the result of a write.
func (r *replica) applied(in Applied) {
	it := r.get(in.Key)
	if it == nil || it.ticket != in.Ticket {
		return
	}
	r.load -= int(it.size)
	it.ticket, it.size = 0, 0
	withdrawn := !r.peer.isOpen() && it.next != nil && it.next.Gone
	if !r.peer.isOpen() {
		r.setNext(it, nil) // of a closed session
	}
	if it.write != applying {
		r.removed(it, in)
	} else {
		r.written(it, in)
	}
	if withdrawn { // the session ended before the object could be deleted
		it.want, it.write = Version{}, removing
	}
	if next := it.next; next != nil {
		r.setNext(it, nil)
		if !r.newerThan(it, next.view) {
			r.processItem(it, next.DeltaItem, next.view)
			return
		}
		r.refuseStale(next.DeltaItem) // the object was written by another process since the item arrived
	}
	if it.recompare {
		it.recompare = false
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
	} else if in.Code == InUse && it.mayRemove() && it.next == nil {
		r.setState(it, itemInUse)
		r.diverged[it.hash] = r.peer.now + r.tune.Beacon
		r.wakeBy(r.diverged[it.hash])
	}
	if asked := it.write == removing && it.seq != 0; asked && it.next == nil { // Seq 0: from an earlier session
		answer := DeltaItem{Seq: it.seq, Key: it.key}
		if in.Code != OK {
			// It stays and counts: the owner must know its version.
			answer.Version, _ = r.counted(it)
		}
		r.ack(answer, in.Code, in.Message, in.RetryAfter)
	}
}

// retryRemoval compares again some time after an absent item could not be deleted because it was in use. The item
// counts again, so that a new round decides: only what the owner still lacks is deleted.
func (r *replica) retryRemoval(it *replicaItem) {
	if it.state == itemInUse {
		r.setState(it, removable)
		r.update(it)
		r.startRound()
	}
}

func (r *replica) written(it *replicaItem, in Applied) {
	answer := DeltaItem{Seq: it.seq, Key: it.key, Version: it.want}
	if it.want.IsZero() {
		// From an earlier session. This session compares.
		if in.Code == OK {
			r.recordStored(it, in)
		}
		r.startRound()
		return
	}
	if in.Code != OK {
		if it.next == nil {
			r.reject(it, answer, in.Code, in.Message, in.RetryAfter)
		}
		return
	}
	r.clearProblem(it)
	r.recordStored(it, in)
	if in.Gone {
		if r.peer.isOpen() {
			r.peer.send(Finished{Scope: r.cfg.Name, Key: it.key, Version: it.want})
		}
		it.want = Version{}
		if it.exists && it.owned {
			// This object came from another source object of that name, which the owner lacks. No user asked for its
			// deletion.
			r.guard.hold(r, []*replicaItem{it}, CauseSource)
		}
	}
	if in.LeftUnchanged {
		r.acceptUnchanged(it)
	} else if it.stored == it.want {
		r.setAlias(it, Alias{}, false) // of an earlier version
	}
	if in.Deleting {
		in.Lost, in.Written = nil, false
		it.requests = 0 // the owner waits for its end, which is requested at once
	}
	// The write may have replaced an object from which something else removed the recorded alias.
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

func (r *replica) recordStored(it *replicaItem, in Applied) {
	if r.cfg.Style == OneShot {
		return
	}
	r.setExists(it, !in.Stored.IsZero(), !in.Stored.IsZero())
	r.setStored(it, in.Size)
	it.stored = in.Stored
	r.setSourceRevision(it, in.SourceRevision, in.SourceGeneration)
	switch {
	case !in.Written || in.Replaced == in.Stored || in.Replaced.IsZero():
	case in.Replaced != it.replaced:
		it.replaced, it.overwrites = in.Replaced, 1
	case it.overwrites < 250:
		it.overwrites++
		r.contested[it.hash] = in.Contested
	}
}

// reject reports to the owner why an item is not accepted. It remembers that for the rest of the session, so that
// rounds do not request the item again.
func (r *replica) reject(it *replicaItem, in DeltaItem, code Code, message string, after Time) {
	why := newProblem(code, message, it.exists, r.peer.session)
	known := it.problem != nil && it.problem.why == why.why && it.problem.session == why.session
	if r.cfg.Style == OneShot {
		it.want = Version{}
	} else {
		r.setState(it, itemRejected)
		if it.problem == nil {
			r.problems++
		}
		it.problem = why
	}
	r.update(it)
	r.ack(in, code, message, after)
	if known {
		return // already reported
	}
	r.peer.emit(Event{Type: Rejected, Scope: r.cfg.Name, Key: in.Key, Code: code, Message: message})
}

func (r *replica) ack(in DeltaItem, code Code, message string, after Time) {
	r.acks = append(r.acks, AckItem{Seq: in.Seq, Key: in.Key, Version: in.Version, Code: code,
		Message: message, RetryAfterMillis: int64(after)})
}
