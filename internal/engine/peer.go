package engine

// Peer is one end of the connection between the hub and one agent: its session and its scopes. It is not safe for
// concurrent use.
type Peer struct {
	cfg      Config
	tune     *Tuning // of cfg
	source   Source
	owners   map[string]*owner
	replicas map[string]*replica

	// The same in the order of the scopes.
	orderedOwners   []*owner
	orderedReplicas []*replica

	now           Time
	effects       []Effect
	tickets       uint64
	beaconAt      Time
	lastBeacon    Time
	lastAnswer    Time // of the last beacon that followed the agent's
	shortBeacons  bool // agent: the hub answers Equal
	shortSent     bool // agent: the last beacon was Equal, and everything was not found equal since
	resendHoldsAt Time // agent: when to send the holds again

	phase        phase
	lastReceived Time // time of the last message in this session
	session      uint64
	epoch        Epoch
	own          Store  // this side's, as of the session's start
	ownRead      bool   // own is known
	other        Store  // the other side's, as far as seen and trusted
	recorded     Store  // the other side's, as last read from the shared record of all principal replicas
	current      Store  // the other side's, as reported in this session
	floor        uint64 // the other side's revision, as known before this process started
	protocol     int
	projection   int

	storeUntrusted    bool            // the other side's store is untrusted
	generation        HubGeneration   // agent: the latest that was seen
	former            []HubGeneration // agent: the latest of other hubs that it followed before, the last one last
	successor         successor       // agent: store of a promoted hub
	invented          map[uint64]bool // agent: generations on replicas that no hub had
	removals          []Removal       // agent: replicas that were deleted for the hub, the oldest first
	predecessor       Store           // agent: of a hub with another store than the known one
	recordedUntrusted bool            // the same, as in recorded
	historyLost       bool            // the other side knows a later history mark than this side's store has
	markedRevision    uint64          // newest revision of this side's objects that a mark of this session covers
	storeHoldID       string
	fleetHold         bool            // agent: the hub checks deletions by absence across its agents
	remoteHolds       map[string]Held // hub: what the agent holds, by scope
	holdReported      map[string]bool // agent: scopes whose hold, or the end of it, was reported to the hub
	equalRoots        []Root          // of the other side, found equal in this step
	writeOutage       string          // of the agent's API server; empty: it accepts writes
	outageReported    bool            // agent: the hub was sent an outage, or must be sent its end
	early             []Message       // agent: received between Welcome and Begin
	earlyBytes        int
	unexpected        uint64 // messages for an unknown scope or role
	initialSyncDone   bool   // InitialSyncDone was emitted in this session
}

type phase uint8

const (
	closed phase = iota
	helloSent
	awaitingBegin // Hello or Welcome accepted
	opened
)

// NewPeer returns one end. It is silent until it is connected.
func NewPeer(cfg Config, source Source) *Peer {
	cfg.Tuning = cfg.Tuning.withDefaults()
	if !cfg.Hub && cfg.Hello == nil {
		cfg.Hello = &Hello{}
	}
	p := &Peer{cfg: cfg, source: source,
		owners: map[string]*owner{}, replicas: map[string]*replica{}, remoteHolds: map[string]Held{},
		other: cfg.KnownStore, generation: cfg.KnownGeneration, removals: MergeRemovals(cfg.KnownRemovals), former: cfg.FormerGenerations, recorded: cfg.KnownStore, recordedUntrusted: cfg.StoreUntrusted, floor: cfg.KnownStore.Revision}
	p.tune = &p.cfg.Tuning
	for _, s := range cfg.Scopes {
		if s.Role == Owner {
			p.owners[s.Name] = newOwner(p, s)
			p.orderedOwners = append(p.orderedOwners, p.owners[s.Name])
		} else {
			p.replicas[s.Name] = newReplica(p, s)
			p.orderedReplicas = append(p.orderedReplicas, p.replicas[s.Name])
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

// Step handles one input and returns the effects in order. They are valid until the next Step.
func (p *Peer) Step(now Time, in Input) []Effect {
	p.now = max(p.now, now)
	if clear(p.effects); cap(p.effects) > keepEffects {
		p.effects = nil // the start of a session needs many, the rest of it few
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
	case SetCompact:
		p.setCompact(in)
	case Observe:
		if r := p.replicas[in.Scope]; r != nil {
			r.observe(in)
		}
	case ObjectGone:
		if r := p.replicas[in.Scope]; r != nil {
			r.objectGone(in.Key)
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
	case Reconsider:
		if r := p.replicas[in.Scope]; r != nil {
			r.askForRejected()
		}
	case Confirmed:
		p.confirmed(in.ID)
	case Known:
		p.known(in)
	case Remembered:
		p.remembered(in)
	case Marked:
		p.marked(in)
	case Removing:
		p.removing(in)
	case SetWriteOutage:
		p.setWriteOutage(in.Reason)
	}
	p.tick()
	p.flush()
	return p.effects
}

// keepEffects bounds the capacity that is kept from one Step to the next.
const keepEffects = 8

// NextWake returns when the Peer needs a Tick. It returns false if it needs none.
func (p *Peer) NextWake() (Time, bool) {
	if !p.isOpen() {
		return 0, false
	}
	next := p.beaconAt
	for _, o := range p.owners {
		if o.wake != 0 {
			next = min(next, o.wake)
		}
		if o.recheckAt > p.now { // later it waits for an acknowledgment, not for time
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

// Publishes reports whether this side owns an item, or owned it and the replica has not acknowledged its deletion.
func (p *Peer) Publishes(scope string, h KeyHash) bool {
	o := p.owners[scope]
	return o != nil && (o.items[h] != nil || o.unreported.has(h))
}

func (p *Peer) isOpen() bool { return p.phase == opened }

func (p *Peer) emit(e Effect) { p.effects = append(p.effects, e) }

func (p *Peer) send(m Message) { p.emit(Send{Session: p.session, Message: m}) }

func (p *Peer) ticket() uint64 {
	p.tickets++
	return p.tickets
}

func (p *Peer) beaconNow() { p.beaconAt = p.now }

// absenceDelay is how long the owner waits before it sends roots after items went missing: several usually go together,
// and the replica should see them as one loss.
const absenceDelay = Second

func (p *Peer) beaconAfterAbsence() { p.beaconAt = min(p.beaconAt, p.now+absenceDelay) }

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

// flush sends what one input has caused: acknowledgments first, then the scopes in the order of their dependence.
func (p *Peer) flush() {
	for _, r := range p.orderedReplicas {
		r.sendAcks()
		if held, was := r.guard.report(r); held != nil {
			p.reportHold(*held, was)
		}
	}
	if p.isOpen() {
		p.sendRoots() // before the items that would make them stale
	}
	p.equalRoots = nil
	for _, r := range p.orderedReplicas {
		r.sendWants()
	}
	for _, o := range p.orderedOwners {
		o.sendDirty()
	}
	if p.isOpen() && !p.initialSyncDone && p.allScopesInSync() {
		p.initialSyncDone = true
		p.emit(Event{Type: InitialSyncDone})
	}
}

// allScopesInSync reports whether every comparable scope was in sync once in this session. Some items never are: a
// project that is still in use, or one that others keep changing. A scope that still differs in a second round, after
// everything was delivered, counts as in sync.
func (p *Peer) allScopesInSync() bool {
	for _, o := range p.orderedOwners {
		if o.cfg.Style != OneShot && !o.unshared && !o.wasInSync && o.rounds < 2 {
			return false
		}
	}
	for _, r := range p.orderedReplicas {
		if r.cfg.Style != OneShot && !r.unshared && !r.inSync && r.rounds < 2 {
			return false
		}
	}
	return true
}

// sendRoots sends a beacon if it is due, and acknowledges the other side's: in the same message if possible.
func (p *Peer) sendRoots() {
	for _, o := range p.owners {
		if o.recheckDue() {
			p.beaconNow()
		}
	}
	if p.now >= p.beaconAt {
		p.beacon()
	} else if len(p.equalRoots) > 0 {
		p.send(Same{Items: p.equalRoots})
	}
}

// answerBeacon makes the hub's beacon follow the agent's. Without short beacons, an idle connection then carries three
// messages per interval: the agent's beacon, the hub's with its acknowledgment, and the agent's acknowledgment. A beacon that follows the last
// answered one too soon is not answered; then the hub's next one is due one interval after its last. Beyond that, the
// hub's own timer is for agents without beacons. On the agent, roots that follow a short beacon mean that something
// differs: it sends its own.
func (p *Peer) answerBeacon() {
	switch {
	case !p.cfg.Hub:
		if p.shortSent {
			p.beaconNow()
		}
	case p.now-p.lastAnswer >= p.tune.Beacon/2:
		p.lastAnswer = p.now
		p.beaconNow()
	default:
		p.beaconAt = min(p.beaconAt, p.lastBeacon+p.tune.Beacon)
	}
}

// scheduleBeacon sets the time of the next beacon.
func (p *Peer) scheduleBeacon() {
	p.lastBeacon, p.beaconAt = p.now, p.now+p.tune.Beacon
	if p.cfg.Hub {
		p.beaconAt += p.tune.Beacon / 2
	}
}

// beacon sends the roots of the scopes that this side owns, or only that everything is equal.
func (p *Peer) beacon() {
	last := p.lastBeacon
	p.scheduleBeacon()
	if !p.sendShortBeacon(last) {
		p.sendFullBeacon()
	}
	if !p.cfg.Hub && p.now >= p.resendHoldsAt {
		p.resendHolds()
	}
}

func (p *Peer) sendFullBeacon() {
	p.shortSent = false
	out := Roots{Same: p.equalRoots, Mark: p.own.Mark.Number}
	for _, o := range p.orderedOwners {
		if root, ok := o.root(); ok {
			out.Items = append(out.Items, root)
			o.sentRevision = root.Revision
		}
	}
	if len(out.Items)+len(out.Same) > 0 {
		p.send(out)
	}
}

func (p *Peer) view(in View) {
	if o := p.owners[in.Scope]; o != nil {
		if in.Complete && !o.complete && p.isOpen() {
			p.beaconNow()
		}
		o.complete, o.reason = in.Complete, in.Reason
		if o.complete && !o.compact {
			o.unreported = nil
		}
	}
	if r := p.replicas[in.Scope]; r != nil {
		newly := in.Complete && !r.complete
		r.complete, r.reason = in.Complete, in.Reason
		if newly {
			r.recheckAll()
		}
		if !r.complete {
			r.round.stop() // absence cannot be judged
		}
	}
}
