package engine

// Status is the state of a Peer, for users and metrics.
type Status struct {
	Connected          bool
	Epoch              Epoch
	Protocol           int
	Projection         int
	StoreHoldID        string      // ID to confirm; empty if the other side's store is trusted
	Other              Store       // the other side's, as far as seen and trusted
	Mark               HistoryMark // the latest of this side's store that this session knows
	Unmarked           uint64      // newest revision of this side's objects if a history mark for it can be recorded; 0 if none is needed
	RemoteHolds        []Held      // hub: what the agent holds
	WriteOutage        string      // hub: why the agent's API server does not accept writes; empty: it does
	UnexpectedMessages uint64      // messages for an unknown scope or role
	Scopes             []ScopeStatus
}

// ScopeStatus describes one scope.
type ScopeStatus struct {
	Name      string
	Role      Role
	Complete  bool
	Unread    string // why this side has not read all of its own objects; empty if it has or that is not known
	Items     int
	Dirty     int  // owner: not delivered
	InFlight  int  // owner: sent, not acknowledged
	Deletions int  // owner: deletions among those; a rejected deletion counts too
	Bytes     int  // owner: in flight
	OldestAt  Time // owner: when the oldest unacknowledged item was sent; 0 if none
	Rejected  int  // by the replica
	Held      int  // replica: deletions that wait for a confirmation
	HeldID    string
	InSyncAt  Time   // when the scope was last in sync, in this session or, while disconnected, in the last one; 0 if never
	Diverged  int    // replica: objects known to differ
	Limit     string // replica: limit because of which items are not stored; empty if none
	Unshared  bool   // the other side does not know the scope, so nothing of it is sent
	Lossy     int    // replica: objects that count as equal although they are not stored as the owner has them
}

func (p *Peer) Status() Status {
	s := Status{Connected: p.isOpen(), Epoch: p.epoch, Protocol: p.protocol, Projection: p.projection,
		Other: p.other, Mark: p.own.Mark, Unmarked: p.unmarked(), UnexpectedMessages: p.unexpected}
	if p.cfg.Hub {
		s.WriteOutage = p.writeOutage
	}
	s.StoreHoldID = p.storeHold().ID
	for _, scope := range p.remoteHoldScopes() {
		s.RemoteHolds = append(s.RemoteHolds, p.remoteHolds[scope])
	}
	for _, cfg := range p.cfg.Scopes {
		if o := p.owners[cfg.Name]; o != nil {
			s.Scopes = append(s.Scopes, o.status())
		} else {
			s.Scopes = append(s.Scopes, p.replicas[cfg.Name].status())
		}
	}
	return s
}

// Other returns the other side's store, as far as seen and trusted, and whether it is untrusted now.
func (p *Peer) Other() (store Store, untrusted bool) { return p.other, p.storeUntrusted }

// DeletionHeld reports whether the deletion of an item waits for a confirmation.
func (p *Peer) DeletionHeld(scope string, key Key) bool {
	r := p.replicas[scope]
	if r == nil {
		return false
	}
	it := r.get(key)
	return it != nil && it.state == itemHeld
}

func (o *owner) status() ScopeStatus {
	s := ScopeStatus{Name: o.cfg.Name, Role: Owner, Complete: o.complete, Unread: o.reason, Items: len(o.items) - o.tombstones + len(o.unreported),
		Dirty: o.lists[queued].len + o.lists[blocked].len, InFlight: o.lists[inFlight].len, Bytes: o.inFlight,
		Rejected: o.rejected, Unshared: o.unshared}
	s.Deletions = min(o.tombstones, s.Dirty+s.InFlight)
	if it := o.lists[inFlight].head; it != nil {
		s.OldestAt = it.since
	}
	if o.inSync && o.peer.phase != awaitingBegin {
		s.InSyncAt = o.inSyncAt
	}
	return s
}

func (r *replica) status() ScopeStatus {
	s := ScopeStatus{Name: r.cfg.Name, Role: Replica, Complete: r.complete, Unread: r.reason, Items: r.owned,
		Rejected: r.rejected, Held: len(r.guard.held), HeldID: r.guard.id, Diverged: len(r.diverged), Limit: r.limitReached(), Lossy: r.lossy(), Unshared: r.unshared}
	if r.inSync && r.peer.phase != awaitingBegin {
		s.InSyncAt = r.inSyncAt
	}
	return s
}
