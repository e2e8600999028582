package engine

import (
	"cmp"
	"slices"
)

// owner is the publishing half of a scope.
//
// Every item that is not clean is in exactly one of four lists, by its state:
//
//   - queued: dirty, to be sent
//   - blocked: dirty, but the item that it depends on is not delivered yet
//   - rejected: waits for its retry
//   - inFlight: sent, not acknowledged
//
// Only setState moves an item.
type owner struct {
	cfg   ScopeConfig
	tune  *Tuning
	peer  *Peer
	items map[KeyHash]*ownedItem
	lists [inFlight + 1]itemList

	unreported   itemSet // published, and not reported since the owner was compact
	compact      bool    // see setCompact
	digest       Digest
	complete     bool
	reason       string // why it is not complete, if known
	unshared     bool   // the other side does not know the scope
	inFlight     int    // bytes
	tombstones   int
	rejected     int // items with a reject, in any state
	seq          uint64
	wake         Time // not later than the next due item; 0 if none
	inSync       bool // the replica acknowledged a root in this session
	inSyncAt     Time
	lastSentRoot Sum
	sentRevision uint64 // revision of the scope that was last sent with roots
	wasInSync    bool   // in this session the replica acknowledged the root that was last sent
	rounds       int    // rounds that the replica began in this session with everything delivered
	recheckAt    Time   // when to send roots again after a difference, if all is delivered by then; 0 if not needed
	recheck      Time   // delay before that
}

type ownedItem struct {
	hash         KeyHash
	key          Key
	version      Version
	needs        KeyHash // 0 if none
	prev, next   *ownedItem
	reject       *reject
	seq          uint64
	since        Time // when it became known or dirty, was sent, or (clean) was last acknowledged or withdrawn
	size         int32
	deletedUID   string // gone: of the object, if a user deleted it
	state        itemState
	gone         bool // tombstone: the owner lost it, the replica has not acknowledged that
	ended        bool // the replica no longer has it although the owner does
	stale        bool // changed while in flight
	extraPending bool // an urgent Extra is not delivered; no comparison would show it
	readFailed   bool // its content could not be read when it was to be sent
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
	return &owner{cfg: cfg, tune: p.tune, peer: p, items: map[KeyHash]*ownedItem{}}
}

func (o *owner) publish(in Publish) {
	if o.compact {
		o.publishCompact(in)
		return
	}
	h := in.Key.Hash()
	it := o.items[h]
	if it != nil && it.key != in.Key {
		o.peer.emit(Event{Type: Rejected, Scope: o.cfg.Name, Key: in.Key, Code: NameTaken,
			Message: collision(it.key)})
		return
	}
	o.unreported.remove(h)
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
		if in.SendExtra && !it.ended {
			o.sendExtra(it, in.Urgent)
		}
		return
	}
	if it.gone {
		it.gone, it.deletedUID = false, ""
		o.tombstones--
	}
	it.version, it.ended, it.readFailed = in.Version, false, false
	if o.cfg.Style != OneShot {
		o.digest.Set(h, in.Version)
	}
	o.dirty(it)
}

// sendExtra sends an item because of its Extra alone. A rejected item keeps its retry time: the retry reads the Extra
// anyway.
func (o *owner) sendExtra(it *ownedItem, urgent bool) {
	it.extraPending = it.extraPending || urgent
	if it.state != rejected && (urgent || o.peer.now-it.since >= o.tune.ExtraInterval) {
		o.dirty(it)
	}
}

func (o *owner) withdraw(in Withdraw) {
	key, seen := in.Key, in.Seen
	h := key.Hash()
	it := o.items[h]
	if it == nil {
		o.withdrawUnreported(in)
		return
	}
	if it.key != key || it.gone {
		return
	}
	o.clearReject(it)
	if o.cfg.Style != Mirror || !seen || it.ended {
		// There is nothing to send, or it is not certain: the next round shows the absence.
		o.forget(it)
		if o.cfg.Style == Mirror && !it.ended {
			o.peer.beaconAfterAbsence()
		}
		return
	}
	o.makeRoom()
	// It stays in the digest until the replica has acknowledged it, so that a round does not find it absent.
	it.gone, it.deletedUID, it.version, it.extraPending = true, in.DeletedUID, Version{}, false
	o.tombstones++
	if !o.peer.isOpen() {
		it.since = o.peer.now
	}
	o.dirty(it)
}

// makeRoom forgets the oldest tombstones if there are too many. If the replica still has these items, the next round shows the
// absence. The latest ones stay: while other principal replicas have the sessions of an agent, it learns of deletions there, and
// the tombstones here are never acknowledged. The agent may lack only the last of them. A tenth is forgotten at once, so that
// many deletions do not sort them each time.
func (o *owner) makeRoom() {
	if o.tombstones < o.tune.MaxTombstones {
		return
	}
	all := make([]*ownedItem, 0, o.tombstones)
	for _, it := range o.items {
		if it.gone {
			all = append(all, it)
		}
	}
	slices.SortFunc(all, func(a, b *ownedItem) int { return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.hash, b.hash)) })
	for _, it := range all[:(len(all)+9)/10] {
		o.forget(it)
	}
	o.peer.beaconAfterAbsence()
}

// dirty ensures that the item is sent in its current version. While no session is open there is nothing to do: start
// finds what differs.
func (o *owner) dirty(it *ownedItem) {
	switch it.state {
	case inFlight:
		it.stale = true
	case clean, rejected, blocked: // its dependency may have changed
		if o.peer.isOpen() && !o.unshared {
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
		o.setState(it, clean) // no item is rejected without a reason
	}
	it.reject = nil
	o.rejected--
	o.peer.emit(Event{Type: Accepted, Scope: o.cfg.Name, Key: it.key})
}

// start begins a session. Nothing is in flight, and comparison finds what differs. It cannot find tombstones, pending
// commands and content that is not hashed.
func (o *owner) start() {
	o.seq, o.inSync, o.wasInSync, o.rounds, o.recheckAt, o.recheck, o.sentRevision = 0, false, false, 0, 0, absenceDelay, 0
	for s := queued; s <= inFlight; s++ {
		for o.lists[s].head != nil {
			o.lists[s].head.stale = false
			o.setState(o.lists[s].head, clean)
		}
	}
	if o.unshared {
		for _, h := range sortedHashes(o.items) {
			o.clearReject(o.items[h])
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
