package engine

// replica is the receiving half of a scope. It knows what the local objects
// hold because it is told of every one of them; it keeps no content and no
// record of its own that would have to survive a restart.
type replica struct {
	cfg   ScopeConfig
	tune  *Tuning
	peer  *Peer
	items map[KeyHash]*heldItem

	digest   Digest // of what counts: see counted
	complete bool
	reason   string // why not complete
	seen     uint64 // the newest of the owner's objects that we know of
	owned    int    // objects that exist and carry our mark
	refusing int    // items refused in this session
	wants    []KeyHash
	redo     map[KeyHash]Time // wants that wait, so that two writers do not race
	wake     Time             // not later than the next thing that time brings about; 0: nothing
	acks     []AckItem
	round    round
	guard    guard
	proven   bool
	provenAt Time
}

type heldItem struct {
	hash     KeyHash
	key      Key
	held     Version // hash of the object's content
	want     Version // what the owner has, as far as this session knows; zero: unknown
	alias    Alias
	replaced Version // what our last write of want replaced
	next     *DeltaItem
	seq      uint64
	touched  uint64 // round in which the owner last spoke of it
	ticket   uint64 // of the write under way
	redoneAt Time
	redos    uint8
	returns  uint8 // how often the replaced content came back
	exists   bool
	owned    bool
	removing bool // ticket is that of a Remove
	absent   bool // ... which the owner did not ask for by an item
	refused  bool // the owner was told why it can not be had
	heldBack bool // its removal waits for a confirmation
	loose    bool // attached: the owner knows nothing of it
}

func newReplica(p *Peer, cfg ScopeConfig) *replica {
	return &replica{cfg: cfg, tune: &p.tune, peer: p, items: map[KeyHash]*heldItem{}, redo: map[KeyHash]Time{}}
}

// counted is an item's part in the digest: the version by which the owner would
// call it. What was refused counts as if it were there, for both sides know of
// it; what is held back or unknown to the owner does not count.
func (r *replica) counted(it *heldItem) (Version, bool) {
	switch {
	case it.refused && !it.want.IsZero():
		return it.want, true
	case !it.exists || !it.owned || it.heldBack || it.loose:
		return Version{}, false
	}
	return it.effective(), true
}

// effective is the owner's name for what the object holds.
func (it *heldItem) effective() Version {
	if it.alias.Stored == it.held && !it.alias.Written.IsZero() {
		return it.alias.Written
	}
	return it.held
}

// update brings the digest in line with an item, and drops an empty one.
func (r *replica) update(it *heldItem) {
	if v, ok := r.counted(it); ok {
		r.digest.Set(it.hash, v)
	} else {
		r.digest.Delete(it.hash)
	}
	if !it.exists && it.want.IsZero() && it.ticket == 0 && it.next == nil {
		delete(r.items, it.hash)
		delete(r.redo, it.hash)
	}
}

func (r *replica) get(key Key) *heldItem {
	it := r.items[key.Hash()]
	if it == nil || it.key != key {
		return nil
	}
	return it
}

// add makes room for a key; nil: the key can not be had.
func (r *replica) add(key Key) *heldItem {
	h := key.Hash()
	if it := r.items[h]; it != nil {
		if it.key != key {
			return nil
		}
		return it
	}
	it := &heldItem{hash: h, key: key}
	r.items[h] = it
	return it
}

func (r *replica) setExists(it *heldItem, exists, owned bool) {
	was, is := it.exists && it.owned, exists && owned
	it.exists, it.owned = exists, owned
	if is && !was {
		r.owned++
	} else if was && !is {
		r.owned--
	}
}

func (r *replica) setRefused(it *heldItem, refused bool) {
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

// start begins a session: what the owner said in an earlier one is forgotten.
func (r *replica) start() {
	r.wants, r.acks, r.proven = nil, nil, false
	r.redo = map[KeyHash]Time{}
	r.round.stop()
	r.guard.reset()
	for _, h := range sortedHashes(r.items) {
		it := r.items[h]
		it.want, it.seq, it.next, it.replaced = Version{}, 0, nil, Version{}
		it.heldBack, it.loose, it.returns = false, false, 0
		r.setRefused(it, false)
		r.update(it)
	}
}

// observe notes what a local object holds now.
func (r *replica) observe(in Observe) {
	it := r.add(in.Key)
	if it == nil {
		return
	}
	appeared := !it.exists
	r.setExists(it, true, in.Owned)
	it.held = in.Held
	if !in.Alias.Written.IsZero() {
		it.alias = in.Alias
	}
	if appeared && it.refused {
		r.setRefused(it, false)
		if r.cfg.Style == Attached {
			r.askFor(it)
		}
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
	r.setExists(it, false, false)
	it.held, it.alias, it.heldBack, it.loose = Version{}, Alias{}, false, false
	if r.cfg.Style == Attached && !it.want.IsZero() {
		r.setRefused(it, true) // nothing left to fill; the owner will lose it too
	}
	r.update(it)
	r.drift(it)
}

// drift asks for an item whose local object is not as the owner has it. Content
// that comes back after it was replaced twice is stored so by somebody who will
// not give in: then it becomes an alias, and people are told.
func (r *replica) drift(it *heldItem) {
	if !r.peer.isOpen() || !r.complete || it.ticket != 0 || it.want.IsZero() || it.refused || it.heldBack {
		return
	}
	if it.exists && it.owned && it.effective() == it.want {
		return
	}
	if it.exists && it.owned && it.held == it.replaced && !it.replaced.IsZero() {
		it.returns++
		if it.returns >= 2 {
			r.learn(it, true)
			return
		}
	}
	r.askAgain(it)
}

// learn records that what the owner calls want is stored as it is.
func (r *replica) learn(it *heldItem, tell bool) {
	it.alias = Alias{Written: it.want, Stored: it.held}
	r.update(it)
	r.peer.emit(KeepAlias{Scope: r.cfg.Name, Key: it.key, Alias: it.alias})
	if tell {
		r.peer.fact(Fact{Event: Aliased, Scope: r.cfg.Name, Key: it.key,
			Message: "something on this side keeps changing it back; both versions are now taken as equal"})
	}
}

// askAgain asks for an item at once the first time, and then less and less
// often while it keeps changing.
func (r *replica) askAgain(it *heldItem) {
	now := r.peer.now
	if now-it.redoneAt > 2*r.tune.RetryMost {
		it.redos = 0
	}
	due := now
	if it.redos > 0 {
		due = it.redoneAt + backoff(r.tune.RetryFirst, r.tune.RetryMost, int(it.redos)-1)
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
	delete(r.redo, it.hash)
	r.askFor(it)
}

func (r *replica) askFor(it *heldItem) { r.wants = append(r.wants, it.hash) }

func (r *replica) wakeBy(t Time) {
	if r.wake == 0 || t < r.wake {
		r.wake = t
	}
}

// tick asks for what has waited long enough and gives up a round that nobody
// answers; the next root starts another.
func (r *replica) tick() {
	now := r.peer.now
	if r.wake == 0 || now < r.wake {
		return
	}
	r.wake = 0
	for _, h := range sortedHashes(r.redo) {
		if t := r.redo[h]; t > now {
			r.wakeBy(t)
			continue
		}
		delete(r.redo, h)
		if it := r.items[h]; it != nil {
			r.drift(it)
		}
	}
	if r.round.active {
		if t := r.round.startedAt + r.tune.RoundMost; t > now {
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
