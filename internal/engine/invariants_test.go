package engine

// checkInvariants looks into a Peer after a step: what its comments promise must hold, whatever came in.
func checkInvariants(t reporter, p *Peer) {
	t.Helper()
	for _, cfg := range p.cfg.Scopes {
		if o := p.owners[cfg.Name]; o != nil {
			checkOwner(t, o)
		} else {
			checkReplica(t, p.replicas[cfg.Name])
		}
	}
	if p.phase != awaitingBegin && len(p.early) > 0 {
		t.Errorf("%d early messages are kept although Begin is not awaited", len(p.early))
	}
}

func checkOwner(t reporter, o *owner) {
	t.Helper()
	inLists, flyingBytes := 0, 0
	for s := queued; s <= inFlight; s++ {
		n := 0
		var prev *ownedItem
		for it := o.lists[s].head; it != nil; it = it.next {
			n++
			if it.state != s {
				t.Errorf("%s %s: in list %d, but its state is %d", o.cfg.Name, it.key, s, it.state)
			}
			if it.prev != prev {
				t.Errorf("%s %s: the list is broken before it", o.cfg.Name, it.key)
			}
			if o.items[it.hash] != it {
				t.Errorf("%s %s: in a list, but forgotten", o.cfg.Name, it.key)
			}
			if s == inFlight {
				flyingBytes += int(it.size)
			}
			if s == rejected && it.reject == nil {
				t.Errorf("%s %s: refused without a reason", o.cfg.Name, it.key)
			}
			if due := o.due(it); due != 0 && o.peer.isOpen() && (o.wake == 0 || o.wake > due) {
				t.Errorf("%s %s: due at %d, but the next wake is at %d", o.cfg.Name, it.key, due, o.wake)
			}
			prev = it
		}
		if o.lists[s].tail != prev || o.lists[s].len != n {
			t.Errorf("%s: list %d has length %d, says %d", o.cfg.Name, s, n, o.lists[s].len)
		}
		inLists += n
	}
	if flyingBytes != o.inFlight {
		t.Errorf("%s: %d bytes are in flight, the account says %d", o.cfg.Name, flyingBytes, o.inFlight)
	}
	tombstones, rejected, notClean := 0, 0, 0
	for h, it := range o.items {
		if it.hash != h || it.key.Hash() != h {
			t.Errorf("%s %s: under a wrong hash", o.cfg.Name, it.key)
		}
		if it.gone {
			tombstones++
		}
		if it.reject != nil {
			rejected++
		}
		if it.state != clean {
			notClean++
		}
		v, ok := o.digest.Get(h)
		if want := o.cfg.Style != OneShot && !it.ended; !it.gone && (ok != want || ok && v != it.version) {
			t.Errorf("%s %s: version %v, in the digest %v (%v)", o.cfg.Name, it.key, it.version, v, ok)
		}
	}
	if tombstones != o.tombstones || rejected != o.rejected || notClean != inLists {
		t.Errorf("%s: %d tombstones, %d rejected, %d not clean; the accounts say %d, %d, %d", o.cfg.Name,
			tombstones, rejected, notClean, o.tombstones, o.rejected, inLists)
	}
	if o.digest.Len() > len(o.items) {
		t.Errorf("%s: %d in the digest, but only %d items", o.cfg.Name, o.digest.Len(), len(o.items))
	}
	for i, l := range o.unreported {
		if o.items[l.Hash] != nil || o.complete && !o.compact || i > 0 && o.unreported[i-1].Hash >= l.Hash {
			t.Errorf("%s: %v was reported or deleted, and counts as not reported, or is out of order", o.cfg.Name, l.Hash)
		}
	}
	if live := len(o.items) - o.tombstones; o.compact && (live > 0 || o.peer.phase == opened) {
		t.Errorf("%s: compact, with %d items in full, in phase %d", o.cfg.Name, live, o.peer.phase)
	}
	checkDigest(t, &o.digest)
}

func checkReplica(t reporter, r *replica) {
	t.Helper()
	owned, refusing, held, load, counted, stored, problems, removing := 0, 0, 0, 0, 0, 0, 0, 0
	for h, it := range r.items {
		if it.hash != h || it.key.Hash() != h {
			t.Errorf("%s %s: under a wrong hash", r.cfg.Name, it.key)
		}
		if it.exists && it.owned {
			owned++
		}
		if it.state == itemRejected {
			refusing++
		}
		if it.problem != nil {
			problems++
		}
		stored += int(it.storedBytes)
		if it.storedBytes != 0 && (!it.exists || !it.owned) {
			t.Errorf("%s %s: counts %d bytes of an object that is not ours", r.cfg.Name, it.key, it.stored)
		}
		if it.state == itemOrphaned && it.exists {
			t.Errorf("%s %s: an orphan has an object", r.cfg.Name, it.key)
		}
		if it.notAccepted() && it.want.IsZero() || it.state == itemHeld && !it.want.IsZero() {
			t.Errorf("%s %s: state %d and want %v", r.cfg.Name, it.key, it.state, it.want)
		}
		if attached := r.cfg.Style == Attached; (it.state == itemOrphaned || it.state == unattached) && !attached || (it.state == itemHeld || it.mayRemove()) && r.cfg.Style != Mirror {
			t.Errorf("%s %s: state %d in a scope of style %d", r.cfg.Name, it.key, it.state, r.cfg.Style)
		}
		if it.state == removable {
			removing++
		}
		if it.state == itemHeld {
			held++
			if r.guard.held[h] != it || !it.exists || !it.owned {
				t.Errorf("%s %s: held, but not by the guard", r.cfg.Name, it.key)
			}
		}
		if it.ticket != 0 && it.write == applying {
			load += int(it.size)
		}
		if it.next != nil {
			load += windowCost(it.next.DeltaItem)
			if it.ticket == 0 {
				t.Errorf("%s %s: an item waits for no write", r.cfg.Name, it.key)
			}
		}
		v, ok := r.digest.Get(h)
		want, wants := r.counted(it)
		if ok != wants || ok && v != want {
			t.Errorf("%s %s: counts as %v (%v), in the digest %v (%v)", r.cfg.Name, it.key, want, wants, v, ok)
		}
		if wants {
			counted++
		}
		if !it.exists && it.want.IsZero() && it.ticket == 0 {
			t.Errorf("%s %s: kept for nothing", r.cfg.Name, it.key)
		}
	}
	if owned != r.owned || refusing != r.rejected || held != len(r.guard.held) || load != r.load || counted != r.digest.Len() {
		t.Errorf("%s: %d owned, %d refused, %d held, load %d, %d counted; the accounts say %d, %d, %d, %d, %d", r.cfg.Name,
			owned, refusing, held, load, counted, r.owned, r.rejected, len(r.guard.held), r.load, r.digest.Len())
	}
	if stored != r.storedBytes || problems != r.problems || removing != r.removable {
		t.Errorf("%s: %d bytes are stored, %d items have a problem, %d are removable; the accounts say %d, %d, %d", r.cfg.Name,
			stored, problems, removing, r.storedBytes, r.problems, r.removable)
	}
	for h := range r.diverged {
		if r.items[h] == nil {
			t.Errorf("%s: waits for an item that is forgotten", r.cfg.Name)
		}
	}
	for h := range r.aliasEnds {
		if it := r.items[h]; it == nil || it.alias == (Alias{}) || it.aliasState == aliasEnded {
			t.Errorf("%s: an alias ends that is none", r.cfg.Name)
		}
	}
	for h := range r.contested {
		if it := r.items[h]; it == nil || it.overwrites < 2 && it.aliasState != aliasEnded {
			t.Errorf("%s: remembers fields that are no longer contested", r.cfg.Name)
		}
	}
	if len(r.wants) > 0 || len(r.acks) > 0 || r.guard.changed {
		t.Errorf("%s: a step ended without saying everything", r.cfg.Name)
	}
	if r.round.active && len(r.round.asked) == 0 {
		t.Errorf("%s: a round waits for nothing", r.cfg.Name)
	}
	checkDigest(t, &r.digest)
}

// checkDigest recomputes every node of the tree.
func checkDigest(t reporter, d *Digest) {
	t.Helper()
	var walk func(b *bucket, p Prefix) (Sum, int)
	walk = func(b *bucket, p Prefix) (sum Sum, count int) {
		for _, it := range b.items {
			if !p.Covers(it.Hash) || b.kids != nil {
				t.Errorf("digest: item %x in a wrong place", it.Hash)
			}
			sum, count = sum.add(itemSum(it.Hash, it.Version)), count+1
		}
		if b.kids != nil {
			for i, kid := range b.kids {
				if kid != nil {
					s, n := walk(kid, p.Child(uint8(i)))
					sum, count = sum.add(s), count+n
				}
			}
			if b.count < foldBelow {
				t.Errorf("digest: %d items, but not folded", b.count)
			}
		} else if len(b.items) > splitAbove && p.Len < maxDepth {
			t.Errorf("digest: %d items, but not split", len(b.items))
		}
		if sum != b.sum || count != b.count || (count == 0 && p.Len > 0) {
			t.Errorf("digest: node at %x/%d has %d items, says %d (sums agree: %v)", p.Bits, p.Len, count, b.count, sum == b.sum)
		}
		return sum, count
	}
	walk(&d.root, Prefix{})
}
