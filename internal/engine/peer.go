package engine

// Peer is one end of the relation between the hub and one agent: its session
// and its scopes. It belongs to one goroutine.
type Peer struct {
	cfg      Config
	tune     Tuning
	source   Source
	owners   map[string]*owner
	replicas map[string]*replica

	now      Time
	effects  []Effect
	tickets  uint64
	beaconAt Time
	beaconed Time // when the last was sent
	remindAt Time // agent: when to say again what is held back

	phase        phase
	lastReceived Time // when the other side last said anything in this session
	session      uint64
	epoch        Epoch
	own          Store  // this side's, as of the session's start
	other        Store  // the other side's, as far as seen and believed
	recorded     Store  // likewise, as it was last read from where all replicas of this side record it
	current      Store  // the other side's, as it says in this session
	floor        uint64 // how far the other side's was seen before this process started
	protocol     int
	projection   int

	storeUntrusted  bool // the other side's store is not believed
	recordedSuspect bool // likewise, as recorded says
	suspectID       string
	fleetHold       bool            // agent: the hub checks removals by absence across its agents
	remoteHeld      map[string]Held // hub: what the agent holds back, by scope
	heldTold        map[string]bool // agent: scopes of which the hub was told so, or that it is over
	early           []Message       // agent: came between Welcome and Begin
	earlyBytes      int
	unexpected      uint64 // messages that did not fit
	compared        bool   // in this session every scope was found equal once, and people were told
}

type phase uint8

const (
	closed phase = iota
	greeting
	opening // greeted; Begin is awaited
	opened
)

// NewPeer makes one end. It is silent until it is connected.
func NewPeer(cfg Config, source Source) *Peer {
	p := &Peer{cfg: cfg, tune: cfg.Tuning.withDefaults(), source: source,
		owners: map[string]*owner{}, replicas: map[string]*replica{}, remoteHeld: map[string]Held{},
		other: cfg.KnownStore, recorded: cfg.KnownStore, recordedSuspect: cfg.StoreUntrusted, floor: cfg.KnownStore.Revision}
	for _, s := range cfg.Scopes {
		if s.Role == Owner {
			p.owners[s.Name] = newOwner(p, s)
		} else {
			p.replicas[s.Name] = newReplica(p, s)
		}
	}
	for _, s := range cfg.KnownSeen {
		if r := p.replicas[s.Scope]; r != nil {
			r.seen = s.Revision
		}
	}
	if cfg.StoreUntrusted {
		p.markStoreUntrusted()
	}
	return p
}

// Step takes one input and returns what is to be done about it, in order. The
// effects are valid until the next Step.
func (p *Peer) Step(now Time, in Input) []Effect {
	p.now = max(p.now, now)
	if clear(p.effects); cap(p.effects) > keepEffects {
		p.effects = nil // of a beginning; most of the time there is little to do
	}
	p.effects = p.effects[:0]
	switch in := in.(type) {
	case Connected:
		p.connected(in)
	case Disconnected:
		if in.Session == p.session {
			p.close(Unavailable, "connection lost")
		}
	case Received:
		p.received(in)
	case Begin:
		p.begin()
	case Tick:
	case Publish:
		if o := p.owners[in.Scope]; o != nil {
			o.publish(in)
		}
	case Withdraw:
		if o := p.owners[in.Scope]; o != nil {
			o.withdraw(in)
		}
	case Observe:
		if r := p.replicas[in.Scope]; r != nil {
			r.observe(in)
		}
	case ObjectGone:
		if r := p.replicas[in.Scope]; r != nil {
			r.vanish(in.Key)
		}
	case View:
		p.view(in)
	case Applied:
		if r := p.replicas[in.Scope]; r != nil {
			r.applied(in)
		}
	case Recheck:
		if r := p.replicas[in.Scope]; r != nil {
			r.recheck(in)
		}
	case Retry:
		if o := p.owners[in.Scope]; o != nil {
			o.retry(in.Key)
		}
	case Confirmed:
		p.confirmed(in.ID)
	case Known:
		p.known(in)
	}
	p.tick()
	p.flush()
	return p.effects
}

// keepEffects is how much room for effects is kept from one Step to the next.
const keepEffects = 8

// NextWake tells when the Peer wants a Tick; false: not by itself.
func (p *Peer) NextWake() (Time, bool) {
	if !p.isOpen() {
		return 0, false
	}
	next := p.beaconAt
	for _, o := range p.owners {
		if o.wake != 0 {
			next = min(next, o.wake)
		}
		if o.recheckAt > p.now { // later it waits for an answer, not for time
			next = min(next, o.recheckAt)
		}
	}
	for _, r := range p.replicas {
		if r.wake != 0 {
			next = min(next, r.wake)
		}
	}
	return next, true
}

// Publishes reports whether this side has told the Peer of an item that it owns, or
// has yet to be told by the replica that it is gone.
func (p *Peer) Publishes(scope string, h KeyHash) bool {
	o := p.owners[scope]
	return o != nil && o.items[h] != nil
}

func (p *Peer) isOpen() bool { return p.phase == opened }

func (p *Peer) emit(e Effect) { p.effects = append(p.effects, e) }

func (p *Peer) fact(f Event) { p.emit(f) }

func (p *Peer) send(m Message) { p.emit(Send{Session: p.session, Message: m}) }

func (p *Peer) ticket() uint64 {
	p.tickets++
	return p.tickets
}

func (p *Peer) beaconSoon() { p.beaconAt = p.now }

// absenceDelay is how long the owner waits before it tells that items are missing:
// they rarely go alone, and the replica should see them as one loss.
const absenceDelay = Second

func (p *Peer) beaconSettled() { p.beaconAt = min(p.beaconAt, p.now+absenceDelay) }

// tick does what time alone brings about.
func (p *Peer) tick() {
	if !p.isOpen() {
		return
	}
	if p.unresponsive() {
		p.closeUnresponsive()
		return
	}
	for _, cfg := range p.cfg.Scopes {
		if o := p.owners[cfg.Name]; o != nil {
			o.tick()
		} else {
			p.replicas[cfg.Name].tick()
		}
	}
}

// flush sends what one input has brought together: answers first, then the
// kinds in the order of their dependence, deletions of what depends before what
// it depends on by the replica's own guard.
func (p *Peer) flush() {
	for _, cfg := range p.cfg.Scopes {
		if r := p.replicas[cfg.Name]; r != nil {
			r.flush()
			if held, was := r.guard.report(r); held != nil {
				p.tellHeld(*held, was)
			}
		}
	}
	for _, o := range p.owners {
		if p.isOpen() && o.recheckDue() {
			p.beaconSoon()
		}
	}
	if p.isOpen() && p.now >= p.beaconAt {
		p.beacon() // before the items that would make it out of date
	}
	for _, cfg := range p.cfg.Scopes {
		if o := p.owners[cfg.Name]; o != nil {
			o.sendDirty()
		}
	}
	if p.isOpen() && !p.compared && p.allScopesInSync() {
		p.compared = true
		p.fact(Event{Event: InitialSyncDone})
	}
}

// allScopesInSync reports whether every scope that can be compared was found equal in
// this session, at first or after the difference was made good. Something may
// never be: a project that is still in use, or what others keep changing. What
// differs in a second comparison, after everything was delivered, is of that kind.
func (p *Peer) allScopesInSync() bool {
	for _, cfg := range p.cfg.Scopes {
		if cfg.Style == OneShot {
			continue
		}
		if o := p.owners[cfg.Name]; o != nil && !o.compared && o.rounds < 2 {
			return false
		}
		if r := p.replicas[cfg.Name]; r != nil && !r.inSync && r.rounds < 2 {
			return false
		}
	}
	return true
}

// answerBeacon has the hub's beacon follow the agent's. At rest that is all that
// goes over a connection: one message in each direction, each of which also
// answers the one before it. The hub's own timer is for agents without beacons.
func (p *Peer) answerBeacon() {
	if p.cfg.Hub && p.now-p.beaconed >= p.tune.Beacon/2 {
		p.beaconSoon()
	}
}

// beacon sends the roots of all that this side owns.
func (p *Peer) beacon() {
	p.beaconed, p.beaconAt = p.now, p.now+p.tune.Beacon
	if p.cfg.Hub {
		p.beaconAt += p.tune.Beacon / 2
	}
	var out Roots
	for _, cfg := range p.cfg.Scopes {
		if o := p.owners[cfg.Name]; o != nil {
			if root, ok := o.root(); ok {
				out.Items = append(out.Items, root)
			}
		} else if r := p.replicas[cfg.Name]; r.owes {
			r.owes = false
			if r.stillSame() {
				out.Same = append(out.Same, Root{Scope: cfg.Name, Sum: r.owed})
			}
		}
	}
	if len(out.Items)+len(out.Same) > 0 {
		p.send(out)
	}
	if !p.cfg.Hub && p.now >= p.remindAt {
		p.remindHeld()
	}
}

// view notes whether this side has seen all of its own objects of a scope.
func (p *Peer) view(in View) {
	if o := p.owners[in.Scope]; o != nil {
		if in.Complete && !o.complete && p.isOpen() {
			p.beaconSoon()
		}
		o.complete = in.Complete
	}
	if r := p.replicas[in.Scope]; r != nil {
		newly := in.Complete && !r.complete
		r.complete, r.reason = in.Complete, in.Reason
		if newly {
			r.recheckAll()
		}
		if !r.complete {
			r.round.stop() // its share of what we have cannot be judged
		}
	}
}
