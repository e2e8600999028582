package engine

// Status is what a Peer knows about itself, for people and metrics.
type Status struct {
	Connected          bool
	Epoch              Epoch
	Protocol           int
	Projection         int
	Suspect            string // ID to confirm; empty: the other side's store is believed
	Other              Store  // the other side's, as far as seen and believed
	RemoteHolds        []Held // hub: what the agent holds back
	UnexpectedMessages uint64 // messages for a scope or role that this side does not have
	Scopes             []ScopeStatus
}

// ScopeStatus describes one scope.
type ScopeStatus struct {
	Name      string
	Role      Role
	Complete  bool
	Items     int
	Dirty     int  // owner: known to differ, not delivered
	InFlight  int  // owner: sent, not answered
	Deletions int  // owner: how many of those are deletions; a rejected deletion counts too
	Bytes     int  // owner: in flight
	OldestAt  Time // owner: since when the oldest of those is out; 0: none
	Rejected  int  // refused by the replica
	Held      int  // replica: removals that wait for a confirmation
	HeldID    string
	InSyncAt  Time // when the two sides were last known to be equal, in this session or, while there is none, in the last; 0: not yet
	Divergent int  // replica: objects that are known not to be as the owner has them
	Lossy     int  // replica: objects that count as equal although they are not stored as the owner has them
}

// Status takes stock.
func (p *Peer) Status() Status {
	s := Status{Connected: p.isOpen(), Epoch: p.epoch, Protocol: p.protocol, Projection: p.projection,
		Other: p.other, UnexpectedMessages: p.unexpected}
	if p.storeUntrusted {
		s.Suspect = p.suspectID
	}
	for _, scope := range append([]string{""}, p.scopeNames()...) {
		if h, ok := p.remoteHeld[scope]; ok {
			s.RemoteHolds = append(s.RemoteHolds, h)
		}
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

// Other returns the other side's store, as far as it was seen and believed, and
// whether it is not believed at the moment.
func (p *Peer) Other() (store Store, suspect bool) { return p.other, p.storeUntrusted }

// HeldBack reports whether the removal of an item here waits for a confirmation.
func (p *Peer) HeldBack(scope string, key Key) bool {
	r := p.replicas[scope]
	if r == nil {
		return false
	}
	it := r.get(key)
	return it != nil && it.heldBack
}

func (o *owner) status() ScopeStatus {
	s := ScopeStatus{Name: o.cfg.Name, Role: Owner, Complete: o.complete, Items: len(o.items) - o.tombstones,
		Dirty: o.lists[queued].len + o.lists[blocked].len, InFlight: o.lists[inFlight].len, Bytes: o.inFlight,
		Rejected: o.rejected}
	s.Deletions = min(o.tombstones, s.Dirty+s.InFlight)
	if it := o.lists[inFlight].head; it != nil {
		s.OldestAt = it.since
	}
	if o.inSync && o.peer.phase != opening {
		s.InSyncAt = o.inSyncAt
	}
	return s
}

func (r *replica) status() ScopeStatus {
	s := ScopeStatus{Name: r.cfg.Name, Role: Replica, Complete: r.complete, Items: r.owned,
		Rejected: r.refusing - r.orphans, Held: len(r.guard.held), HeldID: r.guard.id, Divergent: len(r.redo), Lossy: r.lossy()}
	if r.inSync && r.peer.phase != opening {
		s.InSyncAt = r.inSyncAt
	}
	return s
}
