package engine

import (
	"cmp"
	"slices"
)

// This file keeps a scope of the hub in a compact form while another principal replica has the session of its agent.
//
// A compact owner knows the hashes and versions of the items that it publishes, and has its tombstones. So a deletion is still
// known as a deletion in the next session. Everything else about items is known again when the caller reports them. Until the
// view is complete then, an item that was not reported again still counts as published (owner.unreported).
//
// A compact replica of an Attached scope has no items. Such a replica neither creates nor deletes.

// itemSet has items ordered by hash.
type itemSet []Listed

// setCompact makes a scope compact, or ends that. While a session is open, no scope can be made compact.
func (p *Peer) setCompact(in SetCompact) {
	o, r := p.owners[in.Scope], p.replicas[in.Scope]
	switch {
	case in.Compact && p.phase != closed:
	case o != nil && o.cfg.Style == Mirror && o.compact != in.Compact:
		o.setCompact(in.Compact)
	case r != nil && r.cfg.Style == Attached:
		r.setCompact(in.Compact)
	}
}

func (o *owner) setCompact(compact bool) {
	o.compact, o.complete = compact, false // until the caller reports a view
	if !compact {
		return
	}
	items, digest := map[KeyHash]*ownedItem{}, Digest{} // the old ones do not shrink
	for h, it := range o.items {
		v, ok := o.digest.Get(h)
		if it.gone {
			if items[h] = it; ok {
				digest.Set(h, v)
			}
			continue
		}
		if ok {
			o.unreported = append(o.unreported, Listed{h, v})
		}
		o.setState(it, clean)
		if it.reject != nil {
			o.rejected--
		}
	}
	o.items, o.digest = items, digest
	slices.SortFunc(o.unreported, func(a, b Listed) int { return cmp.Compare(a.Hash, b.Hash) })
	o.unreported = slices.Clone(o.unreported) // without spare room
}

// publishCompact is publish of a compact owner.
func (o *owner) publishCompact(in Publish) {
	h := in.Key.Hash()
	if it := o.items[h]; it != nil { // a tombstone, and the item is there again
		if it.key != in.Key {
			return // unless the hashes collide: publish reports that later
		}
		o.setState(it, clean)
		if it.reject != nil {
			o.rejected--
		}
		o.tombstones--
		o.digest.Delete(h)
		delete(o.items, h)
	}
	o.unreported.set(h, in.Version)
}

// withdrawUnreported handles the withdrawal of an item that is published and was not reported since the owner was compact. Its
// tombstone stays in the digest with the last version of the item, like every tombstone.
func (o *owner) withdrawUnreported(in Withdraw) {
	h := in.Key.Hash()
	was, ok := o.unreported.remove(h)
	if !ok || !in.Seen {
		return
	}
	o.makeRoom()
	it := &ownedItem{hash: h, key: in.Key, gone: true, deletedUID: in.DeletedUID, since: o.peer.now}
	o.items[h] = it
	o.digest.Set(h, was)
	o.tombstones++
	o.dirty(it)
}

func (r *replica) setCompact(compact bool) {
	r.complete = false
	if !compact {
		return
	}
	items, digest := map[KeyHash]*replicaItem{}, Digest{} // the old ones do not shrink
	for h, it := range r.items {
		if it.ticket != 0 || it.next != nil { // its write still runs
			items[h] = it
			if v, ok := r.counted(it); ok {
				digest.Set(h, v)
			}
			continue
		}
		r.setExists(it, false, false)
		r.setStored(it, 0)
		r.setState(it, tracked)
		if it.problem != nil {
			r.problems--
		}
		delete(r.diverged, h)
		delete(r.aliasEnds, h)
		delete(r.contested, h)
	}
	r.items, r.digest = items, digest
}

func (s itemSet) find(h KeyHash) (int, bool) {
	return slices.BinarySearchFunc(s, h, func(l Listed, h KeyHash) int { return cmp.Compare(l.Hash, h) })
}

func (s itemSet) has(h KeyHash) bool {
	_, ok := s.find(h)
	return ok
}

func (s *itemSet) set(h KeyHash, v Version) {
	if i, ok := s.find(h); ok {
		(*s)[i].Version = v
	} else {
		*s = slices.Insert(*s, i, Listed{h, v})
	}
}

// remove removes an item and returns its version. It returns false if there is none.
func (s *itemSet) remove(h KeyHash) (Version, bool) {
	i, ok := s.find(h)
	if !ok {
		return Version{}, false
	}
	was := (*s)[i].Version
	*s = slices.Delete(*s, i, i+1)
	return was, true
}
