package engine

import "fmt"

// sendDirty sends what is dirty within the window.
func (o *owner) sendDirty() {
	if !o.peer.isOpen() {
		return
	}
	var out Delta
	bytes := 0
	flush := func() {
		if len(out.Items) > 0 {
			out.Scope, out.Revision = o.cfg.Name, o.peer.source.Revision(o.cfg.Name)
			if o.cfg.Style == Mirror {
				out.View, _ = o.peer.source.View(o.cfg.Name)
			}
			o.peer.send(out)
			out, bytes = Delta{}, 0
		}
	}
	for o.inFlight < o.tune.Window {
		it := o.lists[queued].head
		if it == nil {
			break
		}
		if o.isBlocked(it) {
			o.setState(it, blocked)
			continue
		}
		item, ok := o.load(it)
		if !ok {
			// The object is gone and its withdrawal will follow. If the object returns first with the same content, it
			// must still be sent.
			it.readFailed = true
			o.setState(it, clean)
			o.unblockDependents(it.hash)
			continue
		}
		if len(item.Content) > MaxContent || len(item.Extra) > MaxExtra {
			// The peer would reject the whole message.
			o.rejectItem(it, AckItem{Key: it.key, Version: it.version, Code: TooLarge,
				Message: fmt.Sprintf("it has %d bytes, the limit is %d", len(item.Content)+len(item.Extra), MaxContent)})
			o.unblockDependents(it.hash)
			continue
		}
		size := windowCost(item)
		if bytes+size > o.tune.DeltaBytes || len(out.Items) == o.tune.DeltaItems {
			flush()
		}
		o.seq++
		item.Seq = o.seq
		it.seq, it.size, it.stale = o.seq, int32(size), false
		o.setState(it, inFlight)
		bytes += size
		out.Items = append(out.Items, item)
	}
	flush()
}

// load reads the content of an item. It may be newer than what was published last, so load updates the version.
func (o *owner) load(it *ownedItem) (DeltaItem, bool) {
	item := DeltaItem{Key: it.key, Gone: it.gone, DeletedUID: it.deletedUID}
	if it.gone {
		if o.cfg.Style == Mirror {
			_, item.Revision = o.peer.source.View(o.cfg.Name)
		}
		return item, true
	}
	content, extra, ok := o.peer.source.Content(o.cfg.Name, it.key)
	if !ok {
		return item, false
	}
	if v := VersionOf(content); v != it.version {
		it.version = v
		if o.cfg.Style != OneShot {
			o.digest.Set(it.hash, v)
		}
	}
	item.Version, item.Content, item.Extra = it.version, content, extra
	if o.cfg.Style == Mirror {
		item.Revision = o.peer.source.SourceRevision(o.cfg.Name, it.key)
	}
	return item, true
}

// isBlocked reports whether the item that this one depends on is not delivered yet.
func (o *owner) isBlocked(it *ownedItem) bool {
	needed := o.peer.owners[o.cfg.DependsOn]
	if it.needs == 0 || it.gone || needed == nil || o.peer.now-it.since >= o.tune.DependencyTimeout {
		return false
	}
	n := needed.items[it.needs]
	return n != nil && !n.gone && n.reject == nil && (n.state == queued || n.state == inFlight)
}

// unblockDependents queues the items that waited for an item of this scope.
func (o *owner) unblockDependents(h KeyHash) {
	for _, other := range o.peer.orderedOwners {
		if other.cfg.DependsOn != o.cfg.Name {
			continue
		}
		for it := other.lists[blocked].head; it != nil; {
			next := it.next
			if it.needs == h {
				other.setState(it, queued)
			}
			it = next
		}
	}
}
