package engine

import (
	"cmp"
	"slices"
)

// owner is the publishing half of a scope.
//
// Every item that is not clean is in exactly one of four lists, by its state:
// queued (dirty, to be sent), blocked (dirty, but the project that it needs is
// still on its way), refused (rejected; waits for its retry) and flying (sent,
// not answered). Only enter moves an item.
type owner struct {
	cfg   ScopeConfig
	tune  *Tuning
	peer  *Peer
	items map[KeyHash]*ownedItem
	lists [inFlight + 1]itemList

	digest           Digest
	complete         bool
	inFlight         int // bytes
	tombstones       int
	rejected         int // items with a reject, whatever their state
	seq              uint64
	wake             Time // not later than the next thing that time brings about; 0: nothing
	inSync           bool // in this session the replica called a root the same
	inSyncAt         Time
	lastSentRoot     Sum  // the root as last sent
	rootAcknowledged bool // in this session the replica called it the same, and has asked for nothing since
	compared         bool // in this session the replica called the root of its time the same
	rounds           int  // in this session the replica has begun, with everything delivered that it had asked for
	recheckAt        Time // the replica found a difference: when to send roots again, if all is delivered by then; 0: no need
	recheck          Time // the pause before that
}

type ownedItem struct {
	hash         KeyHash
	key          Key
	version      Version
	needs        KeyHash // 0: none
	prev, next   *ownedItem
	reject       *reject
	seq          uint64
	since        Time // it became known or dirty, was sent, or (clean) was last answered
	size         int32
	state        itemState
	gone         bool // tombstone: the owner lost it, the replica has not confirmed
	deleted      bool // ... because a user deleted the object
	ended        bool // the replica has none any more although we still do
	stale        bool // changed while in flight
	extraPending bool // an urgent Extra is not delivered; no comparison would show it
	readFailed   bool // its content could not be read when its turn came
}

type itemState uint8

const (
	clean itemState = iota
	queued
	blocked
	rejected
	inFlight
)

type reject struct {
	code     Code
	message  string
	version  Version
	session  uint64 // in which it was given
	gone     bool
	attempts int
	retryAt  Time
}

func newOwner(p *Peer, cfg ScopeConfig) *owner {
	return &owner{cfg: cfg, tune: &p.tune, peer: p, items: map[KeyHash]*ownedItem{}}
}

func (o *owner) publish(in Publish) {
	h := in.Key.Hash()
	it := o.items[h]
	if it != nil && it.key != in.Key {
		o.peer.fact(Event{Event: Rejected, Scope: o.cfg.Name, Key: in.Key, Code: NameTaken,
			Message: collision(it.key)})
		return
	}
	if it == nil {
		it = &ownedItem{hash: h, key: in.Key, since: o.peer.now}
		o.items[h] = it
	}
	if in.DependsOn != (Key{}) {
		it.needs = in.DependsOn.Hash()
	} else {
		it.needs = 0
	}
	if it.version == in.Version && !it.gone && !it.readFailed {
		if in.Touch && !it.ended {
			o.touch(it, in.Urgent)
		}
		return
	}
	if it.gone {
		it.gone, it.deleted = false, false
		o.tombstones--
	}
	it.version, it.ended, it.readFailed = in.Version, false, false
	if o.cfg.Style != OneShot {
		o.digest.Set(h, in.Version)
	}
	o.dirty(it)
}

// touch sends an item for its Extra alone. What the replica has refused is not
// sent before its time: the retry reads the Extra anyway.
func (o *owner) touch(it *ownedItem, urgent bool) {
	it.extraPending = it.extraPending || urgent
	if it.state != rejected && (urgent || o.peer.now-it.since >= o.tune.ExtraInterval) {
		o.dirty(it)
	}
}

func (o *owner) withdraw(in Withdraw) {
	key, seen := in.Key, in.Seen
	h := key.Hash()
	it := o.items[h]
	if it == nil || it.key != key || it.gone {
		return
	}
	o.clearReject(it)
	if o.cfg.Style != Mirror || !seen || it.ended || o.tombstones >= o.tune.MaxTombstones {
		// Nothing to say, not sure enough to say it, or too much to remember:
		// then the next round tells by absence.
		o.forget(it)
		if o.cfg.Style == Mirror && !it.ended {
			o.peer.beaconSettled()
		}
		return
	}
	// It stays in the digest until the replica has answered: a round must not
	// take for a suspicious absence what is told item by item.
	it.gone, it.deleted, it.version, it.extraPending = true, in.Deleted, Version{}, false
	o.tombstones++
	o.dirty(it)
}

// dirty makes sure that the item is sent, as it is when its turn comes. While
// nobody listens there is nothing to do: start finds out what differs.
func (o *owner) dirty(it *ownedItem) {
	switch it.state {
	case inFlight:
		it.stale = true
	case clean, rejected, blocked: // what it waits for may be another by now
		if o.peer.isOpen() {
			o.setState(it, queued)
		}
	}
}

func (o *owner) forget(it *ownedItem) {
	o.setState(it, clean)
	if it.gone {
		o.tombstones--
	}
	o.clearReject(it)
	o.digest.Delete(it.hash)
	delete(o.items, it.hash)
	o.unblockDependents(it.hash)
}

func (o *owner) clearReject(it *ownedItem) {
	if it.reject == nil {
		return
	}
	if it.state == rejected {
		o.setState(it, clean) // no item is refused without a reason
	}
	it.reject = nil
	o.rejected--
	o.peer.fact(Event{Event: Accepted, Scope: o.cfg.Name, Key: it.key})
}

// start begins a session: nothing is in flight, and what differs is found out
// by comparing. Only tombstones, pending commands and what is not hashed cannot
// be found that way.
func (o *owner) start() {
	o.seq, o.inSync, o.rootAcknowledged, o.compared, o.rounds, o.recheckAt, o.recheck = 0, false, false, false, 0, 0, absenceDelay
	for s := queued; s <= inFlight; s++ {
		for o.lists[s].head != nil {
			o.lists[s].head.stale = false
			o.setState(o.lists[s].head, clean)
		}
	}
	var again []*ownedItem
	for _, it := range o.items {
		it.seq = 0
		if it.gone || it.extraPending || o.cfg.Style == OneShot {
			again = append(again, it)
		}
	}
	slices.SortFunc(again, func(a, b *ownedItem) int { return cmp.Compare(a.hash, b.hash) })
	for _, it := range again {
		o.dirty(it)
	}
}
