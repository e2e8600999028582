package engine

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

// setState moves an item to another state and list.
func (o *owner) setState(it *ownedItem, s itemState) {
	if it.state == inFlight {
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
	if s == inFlight {
		o.inFlight += int(it.size)
	}
	if t := o.due(it); t != 0 && (o.wake == 0 || t < o.wake) {
		o.wake = t
	}
}

// due returns when time alone changes an item's state, or 0 for never.
func (o *owner) due(it *ownedItem) Time {
	switch it.state {
	case inFlight:
		return it.since + o.tune.Resend
	case blocked:
		return it.since + o.tune.DependencyTimeout
	case rejected:
		return it.reject.retryAt
	}
	return 0
}

// tick queues what is due: retries of rejected items, unacknowledged items, and items whose dependency took too long.
func (o *owner) tick() {
	if !o.peer.isOpen() || o.wake == 0 || o.peer.now < o.wake {
		return
	}
	o.wake = 0
	for _, s := range []itemState{inFlight, blocked, rejected} {
		for it := o.lists[s].head; it != nil; {
			next := it.next
			t := o.due(it)
			switch {
			case t <= o.peer.now:
				o.setState(it, queued)
			case o.wake == 0 || t < o.wake:
				o.wake = t
			}
			if t > o.peer.now && s == inFlight {
				break // the rest was sent later
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

// jitter shortens a pause by up to a half, depending on the item, so that many items that were rejected together are
// not retried together.
func jitter(pause Time, h KeyHash) Time { return pause - pause/2*Time(h%1024)/1024 }
