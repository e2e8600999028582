package engine

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
	lists [flying + 1]itemList

	digest     Digest
	complete   bool
	inFlight   int // bytes
	tombstones int
	rejected   int // items with a reject, whatever their state
	seq        uint64
	wake       Time // not later than the next thing that time brings about; 0: nothing
	proven     bool // in this session the replica called a root the same
	provenAt   Time
}

type ownedItem struct {
	hash       KeyHash
	key        Key
	version    Version
	needs      KeyHash // 0: none
	prev, next *ownedItem
	reject     *reject
	seq        uint64
	since      Time // it became dirty, was sent, or (clean) was last answered
	size       int32
	state      itemState
	gone       bool // tombstone: the owner lost it, the replica has not confirmed
	ended      bool // the replica has none any more although we still do
	stale      bool // changed while in flight
}

type itemState uint8

const (
	clean itemState = iota
	queued
	blocked
	refused
	flying
)

type reject struct {
	code     Code
	message  string
	version  Version
	gone     bool
	attempts int
	retryAt  Time
}

// itemList is a doubly linked list through the items themselves.
type itemList struct {
	head, tail *ownedItem
	len        int
}

func (l *itemList) push(it *ownedItem) {
	it.prev, it.next = l.tail, nil
	if l.tail == nil {
		l.head = it
	} else {
		l.tail.next = it
	}
	l.tail = it
	l.len++
}

func (l *itemList) remove(it *ownedItem) {
	if it.prev == nil {
		l.head = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next == nil {
		l.tail = it.prev
	} else {
		it.next.prev = it.prev
	}
	it.prev, it.next = nil, nil
	l.len--
}

func newOwner(p *Peer, cfg ScopeConfig) *owner {
	return &owner{cfg: cfg, tune: &p.tune, peer: p, items: map[KeyHash]*ownedItem{}}
}

// enter moves an item into a state, and so from list to list.
func (o *owner) enter(it *ownedItem, s itemState) {
	if it.state == flying {
		o.inFlight -= int(it.size)
	}
	if it.state != clean {
		o.lists[it.state].remove(it)
	}
	if s != clean {
		o.lists[s].push(it)
	}
	if s != blocked && !(it.state == blocked && s == queued) {
		it.since = o.peer.now // a blocked item's time counts from when it became dirty
	}
	it.state = s
	if s == flying {
		o.inFlight += int(it.size)
	}
	if t := o.due(it); t != 0 && (o.wake == 0 || t < o.wake) {
		o.wake = t
	}
}

// due is when time alone moves an item on; 0: never.
func (o *owner) due(it *ownedItem) Time {
	switch it.state {
	case flying:
		return it.since + o.tune.Resend
	case blocked:
		return it.since + o.tune.NeedsMost
	case refused:
		return it.reject.retryAt
	}
	return 0
}

func (o *owner) publish(in Publish) {
	h := in.Key.Hash()
	it := o.items[h]
	if it != nil && it.key != in.Key {
		o.peer.fact(Fact{Event: Rejected, Scope: o.cfg.Name, Key: in.Key, Code: NameTaken,
			Message: "its key hash collides with that of " + it.key.String() + "; rename one of the two"})
		return
	}
	if it == nil {
		it = &ownedItem{hash: h, key: in.Key}
		o.items[h] = it
	}
	if in.Needs != (Key{}) {
		it.needs = in.Needs.Hash()
	} else {
		it.needs = 0
	}
	same := it.version == in.Version && !it.gone
	if it.gone {
		it.gone = false
		o.tombstones--
	}
	if same {
		if in.Touch && !it.ended && (in.Urgent || o.peer.now-it.since >= o.tune.TouchEvery) {
			o.dirty(it)
		}
		return
	}
	it.version, it.ended = in.Version, false
	if o.cfg.Style != Pending {
		o.digest.Set(h, in.Version)
	}
	o.clearReject(it)
	o.dirty(it)
}

func (o *owner) withdraw(key Key, seen bool) {
	h := key.Hash()
	it := o.items[h]
	if it == nil || it.key != key || it.gone {
		return
	}
	o.digest.Delete(h)
	o.clearReject(it)
	if o.cfg.Style != Mirror || !seen || it.ended || o.tombstones >= o.tune.MaxTombstones {
		// Nothing to say, not sure enough to say it, or too much to remember:
		// then the next round tells by absence.
		o.forget(it)
		if o.cfg.Style == Mirror && !it.ended {
			o.peer.beaconSoon()
		}
		return
	}
	it.gone, it.version = true, Version{}
	o.tombstones++
	o.dirty(it)
}

// dirty makes sure that the item is sent, as it is when its turn comes. While
// nobody listens there is nothing to do: start finds out what differs.
func (o *owner) dirty(it *ownedItem) {
	switch it.state {
	case flying:
		it.stale = true
	case clean, refused:
		if o.peer.isOpen() {
			o.enter(it, queued)
		}
	}
}

func (o *owner) forget(it *ownedItem) {
	o.enter(it, clean)
	if it.gone {
		o.tombstones--
	}
	o.clearReject(it)
	delete(o.items, it.hash)
	o.free(it.hash)
}

func (o *owner) clearReject(it *ownedItem) {
	if it.reject == nil {
		return
	}
	it.reject = nil
	o.rejected--
	o.peer.fact(Fact{Event: Cured, Scope: o.cfg.Name, Key: it.key})
}

// start begins a session: nothing is in flight, and what differs is found out
// by comparing. Only tombstones and pending commands can not be found that way.
func (o *owner) start() {
	o.seq, o.proven = 0, false
	for _, h := range sortedHashes(o.items) {
		it := o.items[h]
		o.enter(it, clean)
		it.stale = false
		if it.gone || o.cfg.Style == Pending {
			o.dirty(it)
		}
	}
}

// pump sends what is dirty as far as the window allows.
func (o *owner) pump() {
	if !o.peer.isOpen() {
		return
	}
	var out Delta
	bytes := 0
	flush := func() {
		if len(out.Items) > 0 {
			out.Scope = o.cfg.Name
			o.peer.send(out)
			out, bytes = Delta{}, 0
		}
	}
	for o.inFlight < o.tune.Window {
		it := o.lists[queued].head
		if it == nil {
			break
		}
		if o.mustWait(it) {
			o.enter(it, blocked)
			continue
		}
		item, ok := o.load(it)
		if !ok {
			o.enter(it, clean) // lost since; the withdrawal is on its way to us
			continue
		}
		size := len(item.Content) + len(item.Extra) + len(item.Key.Namespace) + len(item.Key.Name) + 64
		if bytes+size > o.tune.DeltaBytes || len(out.Items) == o.tune.DeltaItems {
			flush()
		}
		o.seq++
		item.Seq = o.seq
		it.seq, it.size, it.stale = o.seq, int32(size), false
		o.enter(it, flying)
		bytes += size
		out.Items = append(out.Items, item)
	}
	flush()
}

// load reads the content to be sent. It may be newer than what was published
// last: the version is that of what is sent.
func (o *owner) load(it *ownedItem) (DeltaItem, bool) {
	item := DeltaItem{Key: it.key, Gone: it.gone}
	if it.gone {
		return item, true
	}
	content, extra, ok := o.peer.source.Content(o.cfg.Name, it.key)
	if !ok {
		return item, false
	}
	if v := VersionOf(content); v != it.version {
		it.version = v
		if o.cfg.Style != Pending {
			o.digest.Set(it.hash, v)
		}
	}
	item.Version, item.Content, item.Extra = it.version, content, extra
	return item, true
}

// mustWait tells that the item which this one needs is still on its way.
func (o *owner) mustWait(it *ownedItem) bool {
	needed := o.peer.owners[o.cfg.Needs]
	if it.needs == 0 || it.gone || needed == nil || o.peer.now-it.since >= o.tune.NeedsMost {
		return false
	}
	n := needed.items[it.needs]
	return n != nil && !n.gone && n.reject == nil && (n.state == queued || n.state == flying)
}

// free lets go what waited for an item of this scope.
func (o *owner) free(h KeyHash) {
	for _, cfg := range o.peer.cfg.Scopes {
		other := o.peer.owners[cfg.Name]
		if other == nil || cfg.Needs != o.cfg.Name {
			continue
		}
		for it := other.lists[blocked].head; it != nil; {
			next := it.next
			if it.needs == h {
				other.enter(it, queued)
			}
			it = next
		}
	}
}

func (o *owner) acked(in AckItem) {
	h := in.Key.Hash()
	it := o.items[h]
	if it == nil || it.key != in.Key || it.state != flying || it.seq != in.Seq {
		return
	}
	o.enter(it, clean)
	defer o.free(h)
	switch {
	case it.stale:
		it.stale = false
		if in.Code == OK {
			o.clearReject(it)
		}
		o.dirty(it)
	case in.Code != OK:
		o.rejectItem(it, in)
	case it.gone:
		o.forget(it)
	default:
		o.clearReject(it)
		if o.cfg.Style == Pending {
			o.peer.fact(Fact{Event: Delivered, Scope: o.cfg.Name, Key: it.key})
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
	known := r.code == in.Code && r.message == in.Message
	if r.version != it.version || r.gone != it.gone {
		r.attempts = 0
	}
	r.code, r.message, r.version, r.gone = in.Code, in.Message, it.version, it.gone
	pause := backoff(o.tune.RetryFirst, o.tune.RetryMost, r.attempts)
	if !in.Code.Retryable() {
		pause = o.tune.RetryMost
	}
	if after := Time(in.RetryAfterMillis); after > pause {
		pause = min(after, o.tune.RetryMost)
	}
	r.attempts++
	r.retryAt = o.peer.now + pause
	o.enter(it, refused)
	if !known {
		o.peer.fact(Fact{Event: Rejected, Scope: o.cfg.Name, Key: it.key, Code: in.Code, Message: in.Message})
	}
}

// wanted marks what the replica asks for. What is in flight will be answered.
func (o *owner) wanted(hashes []KeyHash) {
	for _, h := range hashes {
		it := o.items[h]
		if it == nil || it.gone || it.state == flying {
			continue
		}
		if it.ended {
			it.ended = false
			o.digest.Set(h, it.version)
		}
		o.dirty(it)
	}
}

// retry sends a rejected item again before its time.
func (o *owner) retry(key Key) {
	if it := o.items[key.Hash()]; it != nil && it.state == refused {
		o.dirty(it)
	}
}

// finished notes that the replica has none of this item any more although the
// owner still holds it, waiting for just that.
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
	o.peer.fact(Fact{Event: Ended, Scope: o.cfg.Name, Key: key})
}

// answer tells what is below the prefixes that the replica asked for.
func (o *owner) answer(in Ask) {
	if o.cfg.Style == Pending || !o.complete {
		return
	}
	out := Answer{Scope: o.cfg.Name, Round: in.Round}
	size := 0
	for _, p := range in.Prefixes {
		if !p.Valid() {
			continue
		}
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
	if o.cfg.Style == Pending || !o.complete {
		return Root{}, false
	}
	return Root{Scope: o.cfg.Name, Count: uint64(o.digest.Len()), Sum: o.digest.Sum(), Revision: o.peer.source.Revision(o.cfg.Name)}, true
}

// same notes that the replica proved to be equal. Then whatever it refused in
// an earlier session, and has not refused in this one, is cured.
func (o *owner) same(sum Sum) {
	if sum != o.digest.Sum() {
		return
	}
	if o.rejected > o.lists[refused].len {
		for _, h := range sortedHashes(o.items) {
			if it := o.items[h]; it.state == clean {
				o.clearReject(it)
			}
		}
	}
	o.proven, o.provenAt = true, o.peer.now
	o.peer.fact(Fact{Event: Equal, Scope: o.cfg.Name})
}

// tick moves on what is due: it retries what was refused, sends again what was
// never answered, and lets go what has waited long enough.
func (o *owner) tick() {
	if !o.peer.isOpen() || o.wake == 0 || o.peer.now < o.wake {
		return
	}
	o.wake = 0
	for _, s := range []itemState{flying, blocked, refused} {
		for it := o.lists[s].head; it != nil; {
			next := it.next
			t := o.due(it)
			switch {
			case t <= o.peer.now:
				o.enter(it, queued)
			case o.wake == 0 || t < o.wake:
				o.wake = t
			}
			if t > o.peer.now && s != refused {
				break // the rest is younger
			}
			it = next
		}
	}
}

func backoff(first, most Time, attempts int) Time {
	d := first
	for i := 0; i < attempts && d < most; i++ {
		d *= 2
	}
	return min(d, most)
}

// retryHeld sends again what was only waiting for a confirmation.
func (o *owner) retryHeld() {
	for it := o.lists[refused].head; it != nil; {
		next := it.next
		if it.reject.code == HeldBack {
			o.dirty(it)
		}
		it = next
	}
}
