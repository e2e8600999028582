package engine

import "fmt"

// replica is the copying half of a scope. The caller reports what every local object contains. The replica keeps no
// content and no record that must survive a restart.
type replica struct {
	cfg   ScopeConfig
	tune  *Tuning
	peer  *Peer
	items map[KeyHash]*replicaItem

	digest      Digest // of what counted returns
	complete    bool
	unshared    bool   // the other side does not know the scope
	reason      string // why the view is not complete
	seen        uint64 // newest known revision of the owner's objects
	rootSeen    uint64 // revision of the owner's last root in this session
	horizon     uint64 // source revisions up to here that are later than the owner's store belong to another history of it
	owned       int    // objects that exist and have our ownership annotation
	rejected    int    // items rejected in this session
	problems    int    // items with a problem
	removable   int    // items in that state
	floor       uint64 // highest Seq of a dropped item: an unknown item with an older Seq is late
	load        int    // bytes that wait to be applied, which flow control limits
	storedBytes int    // bytes of the objects that we own
	wants       []KeyHash
	diverged    map[KeyHash]Time // items known to differ, and when to request them (again)
	aliasEnds   map[KeyHash]Time // when aliases end; others do not end by time

	contested   map[KeyHash][]string // fields of items that were changed back repeatedly
	wake        Time                 // not later than the next due item; 0 if none
	acks        []AckItem
	round       round
	guard       deletionGuard
	inSync      bool
	inSyncAt    Time
	rounds      int    // completed in this session
	inSyncRound uint64 // the round that the last equal root replaced
}

func newReplica(p *Peer, cfg ScopeConfig) *replica {
	return &replica{cfg: cfg, tune: p.tune, peer: p, items: map[KeyHash]*replicaItem{}, diverged: map[KeyHash]Time{}, aliasEnds: map[KeyHash]Time{}, contested: map[KeyHash][]string{}}
}

// counted returns an item's version in the digest. A rejected item counts as accepted, because both sides know about
// it. An item does not count if its deletion is held, if it is in use, or if the owner does not know it.
func (r *replica) counted(it *replicaItem) (Version, bool) {
	switch {
	case it.notAccepted() && !it.want.IsZero():
		return it.want, true
	case !it.exists || !it.owned || it.state == itemHeld || it.state == unattached || it.state == itemInUse:
		return Version{}, false
	}
	return it.effective(), true
}

// effective returns the owner's version of what the object contains.
func (it *replicaItem) effective() Version {
	if it.aliasActive() {
		return it.alias.Written
	}
	return it.stored
}

// update updates the digest for an item, and drops an empty item.
func (r *replica) update(it *replicaItem) {
	if v, ok := r.counted(it); ok {
		r.digest.Set(it.hash, v)
	} else {
		r.digest.Delete(it.hash)
	}
	if !it.exists && it.want.IsZero() && it.ticket == 0 && it.next == nil {
		r.clearProblem(it)
		r.setState(it, tracked)
		r.floor = max(r.floor, it.seq)
		delete(r.items, it.hash)
		delete(r.diverged, it.hash)
		delete(r.aliasEnds, it.hash)
		delete(r.contested, it.hash)
	}
}

// clearProblem reports that an item is no longer rejected.
func (r *replica) clearProblem(it *replicaItem) {
	if it.problem != nil {
		it.problem = nil
		r.problems--
		r.peer.emit(Event{Type: Accepted, Scope: r.cfg.Name, Key: it.key})
	}
}

func (r *replica) get(key Key) *replicaItem {
	it := r.items[key.Hash()]
	if it == nil || it.key != key {
		return nil
	}
	return it
}

// add returns the item of a key. It returns nil if the key's hash collides.
func (r *replica) add(key Key) *replicaItem {
	h := key.Hash()
	if it := r.items[h]; it != nil {
		if it.key != key {
			return nil
		}
		return it
	}
	it := &replicaItem{hash: h, key: key, lastRound: r.round.id}
	r.items[h] = it
	return it
}

func (r *replica) setExists(it *replicaItem, exists, owned bool) {
	was, is := it.exists && it.owned, exists && owned
	it.exists, it.owned = exists, owned
	if is && !was {
		r.owned++
	} else if was && !is {
		r.owned--
	}
}

// setStored sets how many bytes an object has. The caller must call setExists first.
func (r *replica) setStored(it *replicaItem, size int) {
	if !it.exists || !it.owned {
		size = 0
	}
	r.storedBytes += size - int(it.storedBytes)
	it.storedBytes = int32(size)
}

// exceeds reports whether an item would exceed what this side stores for the peer. What gets smaller can always be
// stored.
func (r *replica) exceeds(it *replicaItem, in DeltaItem) bool {
	more := len(in.Content) - int(it.storedBytes)
	return more > 0 && r.storedBytes+more > r.tune.MaxBytes
}

// exceededText returns why an item is rejected that exceeds the bytes.
func (r *replica) exceededText() string {
	return fmt.Sprintf("it would exceed the %d bytes of scope %s that are stored for one agent", r.tune.MaxBytes, r.cfg.Name)
}

// limitReached returns the limit because of which items of the peer are not stored, or an empty text.
func (r *replica) limitReached() string {
	if r.cfg.Style == Mirror && len(r.items) >= r.tune.MaxItems {
		return fmt.Sprintf("%d items", r.tune.MaxItems)
	}
	if r.rejected > 0 {
		exceeded := newProblem(TooLarge, r.exceededText(), false, 0).why
		for _, it := range r.items {
			if it.state == itemRejected && it.problem != nil && it.problem.why == exceeded {
				return fmt.Sprintf("%d bytes", r.tune.MaxBytes)
			}
		}
	}
	return ""
}

// start begins a session. It forgets what the owner sent in an earlier one, except that an attached object has no
// owner's item. Aliases stay.
func (r *replica) start() {
	r.wants, r.acks, r.inSync, r.rounds, r.rootSeen = nil, nil, false, 0, 0
	r.diverged, r.contested = map[KeyHash]Time{}, map[KeyHash][]string{}
	r.round.stop()
	for _, h := range sortedHashes(r.items) {
		it := r.items[h]
		r.setNext(it, nil)
		it.want, it.seq, it.replaced = Version{}, 0, Version{}
		it.recompare, it.overwrites = false, 0
		if it.state != unattached {
			r.setState(it, tracked)
		}
		r.update(it)
	}
	r.floor = 0 // Seq starts again
	r.setHorizon()
}

// setNext keeps the latest item that arrived while a write is running.
func (r *replica) setNext(it *replicaItem, next *nextItem) {
	if it.next != nil {
		r.load -= windowCost(it.next.DeltaItem)
	}
	it.next = next
	if next != nil {
		r.load += windowCost(next.DeltaItem)
	}
}

func (r *replica) observe(in Observe) {
	it := r.add(in.Key)
	if it == nil {
		return
	}
	r.assumeOwnerVersion(it)
	appeared := !it.exists
	r.setExists(it, true, in.Owned)
	r.setStored(it, in.Size)
	it.stored = in.Stored
	r.setSourceRevision(it, in.SourceRevision, in.SourceGeneration)
	if appeared && r.peer.successor.begun {
		it.suspect = r.outlives(it)
	}
	if !in.Owned && it.state == itemHeld {
		r.setState(it, tracked)
	}
	r.readRecordedAlias(it, in)
	if appeared && it.notAccepted() {
		// This is another object, so the rejection no longer applies. The owner waits for an acknowledgment even if the
		// object is already equal.
		r.setState(it, tracked)
		r.update(it)
		r.askFor(it)
		return
	}
	r.update(it)
	r.drift(it)
}

func (r *replica) objectGone(key Key) {
	it := r.get(key)
	if it == nil || !it.exists {
		return
	}
	r.assumeOwnerVersion(it)
	r.setExists(it, false, false)
	r.setStored(it, 0)
	it.stored, it.suspect = Version{}, false
	r.setAlias(it, Alias{}, false)
	if !it.want.IsZero() {
		// Attached: there is nothing left to fill, and the owner will lose the item too. Mirror: the obstacle of the
		// item may be gone.
		switch {
		case r.cfg.Style == Attached:
			r.setState(it, itemOrphaned)
		case it.notAccepted():
			r.setState(it, tracked)
		}
	}
	r.update(it)
	r.drift(it)
}

// tick requests what is due, and stops a round without answers. The next root starts another.
func (r *replica) tick() {
	now := r.peer.now
	if r.wake == 0 || now < r.wake {
		return
	}
	r.wake = 0
	for _, h := range r.due(r.aliasEnds) {
		switch it := r.items[h]; {
		case it == nil:
		case r.untrusted(it): // no update would be accepted
			r.endBy(it, now+minLossyLifetime)
		default:
			r.endAlias(it)
			r.drift(it)
		}
	}
	for _, h := range r.due(r.diverged) {
		if it := r.items[h]; it != nil {
			r.retryRemoval(it)
			r.drift(it)
		}
	}
	if r.round.active {
		if t := r.round.startedAt + r.tune.RoundTimeout; t > now {
			r.wakeBy(t)
		} else {
			r.round.stop()
		}
	}
}

// maxWants bounds one Want message.
const maxWants = 1024

// sendWants requests what one step found to differ. Call it after sendRoots: an acknowledgment must not follow a
// request for the same scope.
func (r *replica) sendWants() {
	for len(r.wants) > 0 && r.peer.isOpen() {
		n := min(len(r.wants), maxWants)
		r.peer.send(Want{Scope: r.cfg.Name, Hashes: r.wants[:n:n]})
		r.wants = r.wants[n:]
	}
	r.wants = nil
}

// sendAcks answers the items that one step has processed.
func (r *replica) sendAcks() {
	for len(r.acks) > 0 && r.peer.isOpen() {
		n := min(len(r.acks), r.tune.DeltaItems)
		r.peer.send(Ack{Scope: r.cfg.Name, Items: r.acks[:n:n]})
		r.acks = r.acks[n:]
	}
	r.acks = nil
}
