package engine

import "slices"

// This file is the part of an owner that handles the replica's messages.

func (o *owner) acked(in AckItem) {
	h := in.Key.Hash()
	it := o.items[h]
	if it == nil || it.key != in.Key || it.state != inFlight || it.seq != in.Seq {
		return
	}
	o.setState(it, clean)
	defer o.unblockDependents(h)
	switch {
	case it.stale:
		it.stale = false
		if in.Code == OK {
			o.clearReject(it)
		}
		o.dirty(it)
	case in.Code != OK:
		switch {
		case it.gone && in.Code == OnHold:
			o.digest.Delete(h) // the replica does not count it either
		case it.gone && !in.Version.IsZero():
			// The replica still has it, in this version, which may be older than the one that was withdrawn. An older
			// release sends no version.
			o.digest.Set(h, in.Version)
		}
		o.rejectItem(it, in)
	case it.gone:
		o.forget(it)
	default:
		o.clearReject(it)
		it.extraPending = false
		if o.cfg.Style == OneShot {
			o.peer.emit(Event{Type: Delivered, Scope: o.cfg.Name, Key: it.key})
		}
	}
}

func (o *owner) rejectItem(it *ownedItem, in AckItem) {
	r := it.reject
	if r == nil {
		r = &reject{}
		it.reject = r
		o.rejected++
	}
	// An event is emitted once per session. For commands, each version is a new one.
	known := r.code == in.Code && r.message == in.Message && r.session == o.peer.session && (o.cfg.Style != OneShot || r.version == it.version)
	confirmed := in.Code == OnHold && len(o.peer.remoteHolds) == 0 // the replica has reported that since
	if r.version != it.version || r.gone != it.gone || confirmed {
		r.attempts = 0
	}
	r.code, r.message, r.version, r.gone, r.session = in.Code, in.Message, it.version, it.gone, o.peer.session
	pause := backoff(o.tune.MinRetryDelay, o.tune.MaxRetryDelay, r.attempts)
	switch {
	case in.Code == Invalid: // a webhook or a policy can change without the item
		pause = jitter(min(pause, o.tune.MaxInvalidDelay), it.hash)
	case in.Code == Unavailable: // independent of the item
		pause = jitter(min(pause, o.tune.MaxUnavailableDelay), it.hash)
	case !in.Code.Retryable():
		pause = o.tune.MaxRetryDelay
	}
	if after := Time(in.RetryAfterMillis); after > pause {
		pause = min(after, o.tune.MaxRetryDelay)
	}
	r.attempts++
	r.retryAt = o.peer.now + pause
	o.setState(it, rejected)
	if !known {
		o.peer.emit(Event{Type: Rejected, Scope: o.cfg.Name, Key: it.key, Code: in.Code, Message: in.Message})
	}
}

// wanted marks what the replica requests. Items in flight will be acknowledged anyway.
func (o *owner) wanted(hashes []KeyHash) {
	o.recheckLater()
	for _, h := range hashes {
		it := o.items[h]
		if it == nil || it.gone || it.state == inFlight {
			continue
		}
		if it.ended {
			it.ended = false
			o.digest.Set(h, it.version)
		}
		o.dirty(it)
	}
}

// finished records that the replica no longer has an item that the owner keeps until then.
func (o *owner) finished(key Key, version Version) {
	h := key.Hash()
	it := o.items[h]
	if it == nil || it.key != key || it.gone || it.version != version {
		return
	}
	if !it.ended {
		it.ended = true
		o.digest.Delete(h)
	}
	o.peer.emit(Event{Type: Finalized, Scope: o.cfg.Name, Key: key})
}

// maxAsk bounds the prefixes that are answered per Ask, so that a small request cannot cause an answer of any size.
const maxAsk = 256

// answer sends what is below the requested prefixes.
func (o *owner) answer(in Ask) {
	if o.cfg.Style == OneShot || !o.complete {
		return
	}
	o.recheckLater()
	if slices.Contains(in.Prefixes, Prefix{}) && o.delivered() {
		o.rounds++
	}
	out := Answer{Scope: o.cfg.Name, Round: in.Round}
	if o.cfg.Style == Mirror {
		out.View, _ = o.peer.source.View(o.cfg.Name)
	}
	size := 0
	asked := map[Prefix]bool{}
	for _, p := range in.Prefixes[:min(len(in.Prefixes), maxAsk)] {
		if !p.Valid() || asked[p] {
			continue
		}
		asked[p] = true
		b := o.digest.Branch(p)
		out.Branches = append(out.Branches, b)
		size += 32 + 20*len(b.Sums) + 28*len(b.Items)
		if size > o.tune.DeltaBytes {
			o.peer.send(out)
			out.Branches, size = nil, 0
		}
	}
	if len(out.Branches) > 0 {
		o.peer.send(out)
	}
}

func (o *owner) root() (Root, bool) {
	if o.cfg.Style == OneShot || !o.complete || o.unshared {
		return Root{}, false
	}
	o.lastSentRoot = o.digest.Sum()
	return Root{Scope: o.cfg.Name, Count: uint64(o.digest.Len()), Sum: o.lastSentRoot, Revision: o.peer.source.Revision(o.cfg.Name)}, true
}

// same records that the replica is in sync. Rejections from earlier sessions that were not repeated in this one are
// cleared.
func (o *owner) same(sum Sum) {
	if sum == o.lastSentRoot { // what has changed since is in flight
		o.wasInSync, o.recheckAt, o.recheck = true, 0, absenceDelay
	}
	if sum != o.digest.Sum() {
		return
	}
	if o.rejected > o.lists[rejected].len {
		for _, h := range sortedHashes(o.items) {
			if it := o.items[h]; it.state == clean {
				o.clearReject(it)
			}
		}
	}
	o.inSync, o.inSyncAt = true, o.peer.now
	o.peer.emit(Event{Type: InSync, Scope: o.cfg.Name})
}

// retryHeld sends again what was only waiting for a confirmation.
func (o *owner) retryHeld() {
	for it := o.lists[rejected].head; it != nil; {
		next := it.next
		if it.reject.code == OnHold {
			o.dirty(it)
		}
		it = next
	}
}

// recheckLater schedules roots for when the replica has everything that it requested, so that both sides know soon that
// the difference is gone. If a difference stays, the delay doubles up to the beacon interval.
func (o *owner) recheckLater() { o.recheckAt = o.peer.now + o.recheck }

// recheckDue reports whether it is time to send the roots that recheckLater scheduled.
func (o *owner) recheckDue() bool {
	if o.recheckAt == 0 || o.peer.now < o.recheckAt || !o.delivered() {
		return false
	}
	o.recheckAt, o.recheck = 0, min(2*o.recheck, o.tune.Beacon)
	return true
}

// delivered reports whether nothing is in flight or waits to be sent.
func (o *owner) delivered() bool {
	return o.lists[queued].len+o.lists[blocked].len+o.lists[inFlight].len == 0
}
