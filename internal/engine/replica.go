package engine

// replica is the receiving half of a scope. It knows what the local objects
// hold because it is told of every one of them; it keeps no content and no
// record of its own that would have to survive a restart.
type replica struct {
	cfg   ScopeConfig
	tune  *Tuning
	peer  *Peer
	items map[KeyHash]*replicaItem

	digest      Digest // of what counts: see counted
	complete    bool
	reason      string // why not complete
	seen        uint64 // the newest of the owner's objects that we know of
	horizon     uint64 // what came from later than the owner's store is, up to here, came from another history of it
	owned       int    // objects that exist and carry our mark
	refusing    int    // items refused in this session
	problems    int    // items with a problem
	orphans     int    // those of them that are orphans
	floor       uint64 // the highest Seq of an item that was dropped: what is unknown and older is late
	load        int    // bytes that wait to be applied, and the peer is held to
	storedBytes int    // bytes that the objects which carry our mark hold
	wants       []KeyHash
	redo        map[KeyHash]Time // items known to differ, and when to ask for them (again)
	ends        map[KeyHash]Time // when aliases end; those that are not in it do not end by time

	contested map[KeyHash][]string // fields of items that were changed back repeatedly
	wake      Time                 // not later than the next thing that time brings about; 0: nothing
	acks      []AckItem
	round     round
	guard     deletionGuard
	inSync    bool
	inSyncAt  Time
	rounds    int    // completed in this session
	provenID  uint64 // of the round that the proof came in place of
	owed      Sum    // a root of the owner that was found the same, of which it is to hear with our next beacon
	owes      bool
}

type replicaItem struct {
	hash             KeyHash
	key              Key
	stored           Version // hash of the object's content
	want             Version // what the owner has, as far as this session knows; zero: unknown
	alias            Alias
	replaced         Version  // what our last write of want replaced
	problem          *problem // why it was refused, as people were told; nil: they were told nothing, or that it is over
	next             *DeltaItem
	seq              uint64
	touched          uint64 // round in which it became known, or the owner last spoke of it
	born             uint64 // revision of the owner's objects that it came from, as recorded on it; 0: unknown
	ticket           uint64 // of the write under way
	redoneAt         Time
	size             int32 // of what ticket is about
	storedBytes      int32 // bytes that it counts for in the replica's stored
	redos            uint8
	overwrites       uint8 // how often writes of want have replaced the same
	exists           bool
	owned            bool
	removing         bool  // ticket is that of a Remove
	absent           bool  // ... which the owner did not ask for by an item
	refused          bool  // the owner was told why it cannot be had
	orphan           bool  // ... or will find out by itself: the object that it was attached to is gone
	again            bool  // a round saw it differ while a write was under way
	heldBack         bool  // its removal waits for a confirmation
	removalConfirmed bool  // its removal was confirmed
	loose            bool  // attached: the owner knows nothing of it
	leaving          bool  // the owner lacks it, but it is in use: does not count, and its removal is tried again
	lossy            bool  // the alias hides that something is not stored as it was written
	ended            bool  // the alias counts no longer, and is only remembered
	checks           uint8 // how often in a row the same alias was learnt
}

func newReplica(p *Peer, cfg ScopeConfig) *replica {
	return &replica{cfg: cfg, tune: &p.tune, peer: p, items: map[KeyHash]*replicaItem{}, redo: map[KeyHash]Time{}, ends: map[KeyHash]Time{}, contested: map[KeyHash][]string{}}
}

// counted is an item's part in the digest: the version by which the owner would
// call it. What was refused counts as if it were there, for both sides know of
// it; what is held back, leaving or unknown to the owner does not count.
func (r *replica) counted(it *replicaItem) (Version, bool) {
	switch {
	case it.refused && !it.want.IsZero():
		return it.want, true
	case !it.exists || !it.owned || it.heldBack || it.loose || it.leaving:
		return Version{}, false
	}
	return it.effective(), true
}

// effective is the owner's name for what the object holds.
func (it *replicaItem) effective() Version {
	if it.inForce() {
		return it.alias.Written
	}
	return it.stored
}

// update brings the digest in line with an item, and drops an empty one.
func (r *replica) update(it *replicaItem) {
	if v, ok := r.counted(it); ok {
		r.digest.Set(it.hash, v)
	} else {
		r.digest.Delete(it.hash)
	}
	if !it.exists && it.want.IsZero() && it.ticket == 0 && it.next == nil {
		r.cured(it)
		r.floor = max(r.floor, it.seq)
		delete(r.items, it.hash)
		delete(r.redo, it.hash)
		delete(r.ends, it.hash)
		delete(r.contested, it.hash)
	}
}

// cured takes back what people were told about an item.
func (r *replica) cured(it *replicaItem) {
	if it.problem != nil {
		it.problem = nil
		r.problems--
		r.peer.fact(Event{Event: Accepted, Scope: r.cfg.Name, Key: it.key})
	}
}

func (r *replica) get(key Key) *replicaItem {
	it := r.items[key.Hash()]
	if it == nil || it.key != key {
		return nil
	}
	return it
}

// add makes room for a key; nil: the key cannot be had.
func (r *replica) add(key Key) *replicaItem {
	h := key.Hash()
	if it := r.items[h]; it != nil {
		if it.key != key {
			return nil
		}
		return it
	}
	it := &replicaItem{hash: h, key: key, touched: r.round.id}
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

// setStored notes how many bytes an object holds. Call it after setExists.
func (r *replica) setStored(it *replicaItem, size int) {
	if !it.exists || !it.owned {
		size = 0
	}
	r.storedBytes += size - int(it.storedBytes)
	it.storedBytes = int32(size)
}

// exceeds reports whether the content of an item, in the place of what its object
// holds, would be more than this side stores for the peer. What gets smaller may
// always be stored.
func (r *replica) exceeds(it *replicaItem, in DeltaItem) bool {
	more := len(in.Content) - int(it.storedBytes)
	return more > 0 && r.storedBytes+more > r.tune.MaxBytes
}

func (r *replica) setRefused(it *replicaItem, refused bool) {
	if it.orphan { // what is said now is about more than a lost object
		it.orphan = false
		r.orphans--
	}
	if it.refused == refused {
		return
	}
	it.refused = refused
	if refused {
		r.refusing++
	} else {
		r.refusing--
	}
}

// start begins a session: what the owner said in an earlier one is forgotten,
// save that it knows nothing of an attached object. Aliases stay, and end when
// they would have.
func (r *replica) start() {
	r.wants, r.acks, r.inSync, r.owes, r.rounds = nil, nil, false, false, 0
	r.redo, r.contested = map[KeyHash]Time{}, map[KeyHash][]string{}
	r.round.stop()
	r.guard.release(r)
	for _, h := range sortedHashes(r.items) {
		it := r.items[h]
		r.setNext(it, nil)
		it.want, it.seq, it.replaced = Version{}, 0, Version{}
		it.removalConfirmed, it.leaving, it.again, it.overwrites = false, false, false, 0
		r.setRefused(it, false)
		r.update(it)
	}
	r.floor = 0 // Seq starts again
	r.setHorizon()
}

// setNext keeps the latest item that came while a write is under way.
func (r *replica) setNext(it *replicaItem, next *DeltaItem) {
	if it.next != nil {
		r.load -= windowCost(*it.next)
	}
	it.next = next
	if next != nil {
		r.load += windowCost(*next)
	}
}

// observe notes what a local object holds now.
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
	r.setBorn(it, in.SourceRevision)
	if !in.Owned {
		r.guard.drop(it)
	}
	r.recorded(it, in)
	if appeared && it.refused {
		// Whatever was wrong before, this is another object. The owner waits
		// for a word even if it already is as it should be.
		r.setRefused(it, false)
		r.update(it)
		r.askFor(it)
		return
	}
	r.update(it)
	r.drift(it)
}

// vanish notes that a local object is gone.
func (r *replica) vanish(key Key) {
	it := r.get(key)
	if it == nil || !it.exists {
		return
	}
	r.assumeOwnerVersion(it)
	r.setExists(it, false, false)
	r.setStored(it, 0)
	r.guard.drop(it)
	it.stored, it.loose = Version{}, false
	r.setAlias(it, Alias{}, false)
	if !it.want.IsZero() {
		// Attached: nothing is left to fill, and the owner will lose it too.
		// Mirror: what stood in the way of the item may just have gone.
		r.setRefused(it, r.cfg.Style == Attached)
		if it.refused {
			it.orphan = true
			r.orphans++
		}
	}
	r.update(it)
	r.drift(it)
}

// tick asks for what has waited long enough and gives up a round that nobody
// answers; the next root starts another.
func (r *replica) tick() {
	now := r.peer.now
	if r.wake == 0 || now < r.wake {
		return
	}
	r.wake = 0
	for _, h := range r.due(r.ends) {
		switch it := r.items[h]; {
		case it == nil:
		case r.peer.storeUntrusted: // no update would be taken
			r.endBy(it, now+lossyFirst)
		default:
			r.endAlias(it)
			r.drift(it)
		}
	}
	for _, h := range r.due(r.redo) {
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

// flush sends what has come together in one step.
func (r *replica) flush() {
	if !r.peer.isOpen() {
		r.wants, r.acks = nil, nil
		return
	}
	for len(r.wants) > 0 {
		n := min(len(r.wants), maxWants)
		r.peer.send(Want{Scope: r.cfg.Name, Hashes: r.wants[:n:n]})
		r.wants = r.wants[n:]
	}
	for len(r.acks) > 0 {
		n := min(len(r.acks), r.tune.DeltaItems)
		r.peer.send(Ack{Scope: r.cfg.Name, Items: r.acks[:n:n]})
		r.acks = r.acks[n:]
	}
	r.wants, r.acks = nil, nil
}
