package sim

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport/route"
)

// process is a principal or an agent: a Reconciler with stand-ins of kube, transport and assembly. It may die
// at any moment and start again with nothing but what its cluster holds.
type process struct {
	w          *world
	name       string
	cluster    *cluster
	spoke      *spoke // of an agent; nil: a principal
	site       *site  // of a hub, if there are two
	part       part   // of a hub, if there are two
	reconciler *reconcile.Reconciler

	release     release
	up          bool
	retired     bool // never starts again
	life        int  // grows with every start; what belongs to an earlier one is dropped
	skew        engine.Time
	pausedUntil engine.Time
	wakeAt      engine.Time // world time of the planned Tick; 0: none
	reflectors  []*reflector
	conns       map[uint64]*end // by session

	incarnation uint64
	known       engine.Store // agent: the hub's store, as this process has trusted it
	attempt     uint64
	failures    int // to connect
	dialling    bool
	persisted   map[string]memory
	met         bool                   // agent: it has met a hub since it started
	opens       int                    // agent: sessions
	online      bool                   // agent: it has a session
	accepted    bool                   // agent: the hub's store was accepted, and the Lease does not say so yet
	peers       map[string]string      // principal: the cluster that an agent last came from
	objects     int                    // that this life has known at a time, at the most
	wrote       map[string]engine.Time // principal: when it wrote an Agent's status
	requested   map[string]bool        // "agent/scope/name": the owner has requested the removal of an item
	asked       map[kind.Ref]bool      // removals that have begun, and that the owner had asked for
	absent      map[string]*absence
	born        hubstate.State    // hub: with which this life began
	route       *route.Route      // agent, with two hubs
	lease       leaseView         // hub, with a Lease of two hubs
	generation  uint64            // agent, with two hubs: the latest of a session of this life
	specs       map[string]uint64 // the owner's turn that this life has come to, by source UID
}

// in runs something in a given life of the process after a while.
func (p *process) in(life int, d engine.Time, run func()) {
	p.w.after(d, func() {
		switch {
		case p.life != life || !p.up:
		case p.w.now < p.pausedUntil:
			p.in(life, p.pausedUntil-p.w.now, run)
		default:
			run()
		}
	})
}

func (p *process) later(d engine.Time, run func()) { p.in(p.life, d, run) }

// clock is the process' own.
func (p *process) clock() engine.Time { return epoch + p.w.now + p.skew }

// step passes an input to the Reconciler and executes its effects.
func (p *process) step(in reconcile.Input) {
	for _, e := range p.reconciler.Step(p.clock(), in) {
		p.guardReduced(e)
		switch e := e.(type) {
		case reconcile.Write:
			p.decides(e)
			p.write(e)
		case reconcile.Read:
			p.read(e)
		case reconcile.ReadApplications:
			p.readApplications(e)
		case reconcile.Relist:
			for _, r := range p.reflectors {
				if r.resource == e.Resource {
					r.list()
				}
			}
		case reconcile.ToPeer:
			p.toPeer(e)
		case reconcile.Report:
			p.report(e)
		}
	}
	p.rearm()
}

// rearm plans the Tick that the Reconciler requests.
func (p *process) rearm() {
	at, ok := p.reconciler.NextWake()
	if !ok {
		p.wakeAt = 0
		return
	}
	due := max(at-epoch-p.skew, p.w.now+1)
	if p.wakeAt != 0 && p.wakeAt <= due && p.wakeAt > p.w.now {
		return // early enough; it looks again then
	}
	p.wakeAt = due
	p.later(due-p.w.now, func() {
		if p.wakeAt != due {
			return
		}
		p.wakeAt = 0
		if at, ok := p.reconciler.NextWake(); ok && at <= p.clock() {
			p.step(reconcile.Tick{})
		} else {
			p.rearm()
		}
	})
}

// start begins a life.
func (p *process) start() {
	if p.up || p.retired || p.site != nil && !p.site.mayStart(p) {
		return
	}
	p.up = true
	p.life++
	p.wakeAt, p.pausedUntil, p.attempt, p.failures, p.dialling = 0, 0, 0, 0, false
	p.objects, p.requested, p.absent, p.wrote = 0, map[string]bool{}, map[string]*absence{}, map[string]engine.Time{}
	p.asked = map[kind.Ref]bool{}
	p.met, p.online, p.generation = false, false, 0
	p.conns, p.persisted, p.specs, p.peers = map[uint64]*end{}, map[string]memory{}, map[string]uint64{}, map[string]string{}
	p.w.tracef("%s: starts", p.name)
	switch {
	case p.spoke != nil:
		p.startAgent()
	case p.part == sender:
		p.startSender()
	case p.part == receiver:
		p.startReceiver()
	default:
		p.startPrincipal()
	}
	p.reflectors = nil
	for _, r := range p.resources() {
		namespaces := []string{""}
		if parts := p.w.applicationNamespaces(); r == kind.Applications && p.spoke == nil && len(parts) > 0 {
			namespaces = parts
		}
		for _, namespace := range namespaces {
			refl := &reflector{p: p, resource: r, namespace: namespace}
			p.reflectors = append(p.reflectors, refl)
			p.later(p.w.between(1, 500), refl.list)
		}
	}
	p.later(p.w.between(1, 500), p.readSchema)
	p.later(minute, p.bookmarks)
	if p.site != nil && p.w.group.lease != nil && p.part != sender {
		p.lease = leaseView{}
		p.later(p.w.between(10, second), p.useLease)
	}
	p.later(10*second, p.checkOften)
	p.later(p.persistEvery(), p.persistOften)
}

// crash ends a life. Its connections may take a while to be missed.
func (p *process) crash() {
	if !p.up {
		return
	}
	p.w.tracef("%s: crashes", p.name)
	p.up = false
	p.life++
	for _, r := range p.reflectors {
		if r.watch != nil {
			r.watch.stop()
		}
	}
	for _, id := range sortedIDs(p.conns) {
		p.conns[id].died()
	}
	p.conns = map[uint64]*end{}
	p.reconciler = nil
}

func (p *process) restartIn(d engine.Time) {
	p.crash()
	p.w.after(d, p.start)
}

func (p *process) bookmarks() {
	for _, r := range p.reflectors {
		r.bookmark()
	}
	p.later(minute, p.bookmarks)
}

func (p *process) checkOften() {
	p.w.checkBusy(p)
	p.later(10*second, p.checkOften)
}

// persistOften writes down now and then how far the other side was seen.
func (p *process) persistOften() {
	p.persist()
	p.later(p.persistEvery(), p.persistOften)
}

// persistEvery is how often: an agent has its Lease written once a minute, a principal looks at the status of each
// Agent every ten seconds.
func (p *process) persistEvery() engine.Time {
	switch {
	case p.spoke != nil:
		return minute
	case p.part == receiver:
		return 5 * second
	}
	return 10 * second
}

func (p *process) persist() {
	if p.part != principal {
		p.persistStandby()
		return
	}
	if p.spoke != nil {
		p.persistLease()
		p.recordMark()
		return
	}
	for _, s := range p.w.spokes {
		p.persistRegistration(s, false)
	}
}

// report records what users are shown.
func (p *process) report(e reconcile.Report) {
	f := e.Event
	if p.w.trace != nil {
		p.w.traceFact(p, e)
	}
	switch f.Type {
	case engine.Opened:
		p.opens++
		p.online = true
		p.w.sessionOpened(p, e.Agent, f)
		p.persistSoon(f, e.Agent)
	case engine.StoreContinued:
		p.known = f.Store
		p.persistSoon(f, e.Agent)
	case engine.StoreAccepted:
		p.known = f.Store
		if p.spoke != nil && p.w.group != nil {
			p.w.group.agreed(p.spoke)
		}
		p.persistSoon(f, e.Agent)
	case engine.HoldStarted, engine.HoldEnded, engine.Closed:
		p.online = p.online && f.Type != engine.Closed
		if f.Type == engine.HoldStarted {
			p.w.shown[f.Held.ID] = f.Held
		}
		p.persistSoon(f, e.Agent)
	}
	p.w.mutant.reported(p, f)
}

// persistSoon is a principal that writes an Agent's status after a report, or an agent that writes its Lease when it
// first meets a hub, or when the trust in a store changes.
func (p *process) persistSoon(f engine.Event, agent string) {
	switch {
	case p.spoke == nil:
		if s := p.w.spokeOf(agent); s != nil {
			p.later(p.w.between(10, second), func() { p.persistRegistration(s, true) })
		}
	case f.Type == engine.HoldStarted && f.Scope == "", f.Type == engine.StoreAccepted, f.Type == engine.StoreContinued, f.Type == engine.Opened && !p.met:
		p.met = true
		p.accepted = p.accepted || f.Type == engine.StoreAccepted
		p.later(p.w.between(10, second), p.persistLease)
	}
}

// startAgent takes the next incarnation from the Lease, and what it says of the hub.
func (p *process) startAgent() {
	s := p.spoke
	m := p.cluster.recall(leases, "agent")
	m.Incarnation = max(m.Incarnation+1, uint64(p.clock()))
	p.incarnation = m.Incarnation
	p.cluster.remember(actor{what: p.name, proc: p}, leases, "agent", m)
	p.persisted[""], p.known = m, m.KnownStore
	m = p.w.mutant.recalled(m)
	cfg := reconcile.Config{Side: kind.Spoke, ArgoNamespace: p.cluster.argo, ClusterUID: p.cluster.st.uid, Version: "sim",
		Kinds: p.kinds(), Settings: s.settings, Policy: p.w.shape.policy, Tuning: p.w.shape.tuning,
		Mode: s.agent.Mode, Mapping: s.agent.Mapping, KnownStore: m.KnownStore, KnownSeen: reconcile.ParseSeen(m.Seen), StoreUntrusted: m.StoreUntrusted, KnownCommands: strings.Fields(m.Commands), KnownHub: m.Hub, KnownRemovals: engine.ParseRemovals(m.Removals)}
	if p.w.group != nil {
		cfg.KnownGeneration, cfg.OneHub = m.generation(), true
		p.generation = max(1, m.generation().Number)
		p.route = route.New(len(p.w.group.sites), p.w.rng.Float64)
	}
	p.reconciler = reconcile.New(cfg)
	p.later(p.w.between(10, 2*second), p.dial)
}

// readLease is an agent that reads, before a session, what another process of it may have recorded.
func (p *process) readLease() {
	if p.accepted {
		return
	}
	in := reconcile.Remembered{LaterGenerations: p.reconciler.LaterGenerations()}
	m := p.w.mutant.recalled(p.cluster.recall(leases, "agent"))
	in.Memory = reconcile.Memory{Store: m.KnownStore, StoreUntrusted: m.StoreUntrusted, Seen: reconcile.ParseSeen(m.Seen), Commands: strings.Fields(m.Commands), Hub: m.Hub, Removals: engine.ParseRemovals(m.Removals)}
	if p.w.group != nil {
		in.Generation = m.generation()
	}
	p.step(in)
}

func (p *process) persistLease() { p.remember(p.reconciler.Memory(), func(*apiError) {}) }

// remember writes the agent's Lease, if it does not say so already.
func (p *process) remember(m reconcile.Memory, done func(*apiError)) {
	now := memory{Incarnation: p.incarnation, KnownStore: m.Store, StoreUntrusted: m.StoreUntrusted, Seen: reconcile.FormatSeen(m.Seen), Commands: strings.Join(m.Commands, " "), Hub: m.Hub, Mark: p.persisted[""].Mark, Removals: engine.FormatRemovals(m.Removals)}
	if p.w.group != nil {
		now.Generation = m.Generation
	}
	exact := p.accepted // earlier knowledge does not count
	if now == p.persisted[""] && !exact {
		done(nil)
		return
	}
	p.ask(func() (*kind.Object, *apiError) {
		said := now
		if there := p.cluster.recall(leases, "agent"); there.Incarnation != p.incarnation && exact {
			said.Incarnation = there.Incarnation
		} else if there.Incarnation != p.incarnation { // another process, which may know more
			both := reconcile.Memory{Store: there.KnownStore, StoreUntrusted: there.StoreUntrusted, Seen: reconcile.ParseSeen(there.Seen), Commands: strings.Fields(there.Commands), Hub: there.Hub, Generation: there.Generation, Removals: engine.ParseRemovals(there.Removals)}.With(m)
			said = memory{Incarnation: there.Incarnation, KnownStore: both.Store, StoreUntrusted: both.StoreUntrusted, Seen: reconcile.FormatSeen(both.Seen), Commands: strings.Join(both.Commands, " "), Hub: both.Hub, Removals: engine.FormatRemovals(both.Removals)}
			if p.w.group != nil {
				said.Generation = both.Generation
			}
		}
		said.Mark = p.cluster.recall(leases, "agent").Mark
		p.cluster.remember(actor{what: p.name, proc: p}, leases, "agent", said)
		return nil, nil
	}, func(_ *kind.Object, err *apiError) {
		if err == nil {
			p.persisted[""] = now
			p.accepted = p.accepted && !exact
		}
		done(err)
	})
}

// startPrincipal knows what is registered.
func (p *process) startPrincipal() {
	cfg := reconcile.Config{Side: kind.Hub, ArgoNamespace: p.cluster.argo, ClusterUID: p.cluster.st.uid, Version: "sim",
		PrincipalUID: principalUID, Kinds: p.kinds(), Settings: p.w.shape.hubSettings, Policy: p.w.shape.policy, Tuning: p.w.shape.tuning, FleetCheck: true,
		ApplicationNamespaces: p.w.applicationNamespaces()}
	if p.site != nil {
		cfg.Generation, cfg.Predecessor = p.born.Generation, p.born.Predecessor
	}
	p.reconciler = reconcile.New(cfg)
	p.step(reconcile.ArgoSettings{InstanceLabel: p.w.instanceLabel})
	for _, s := range p.w.spokes {
		p.register(s)
	}
	if p.w.shape.elsewhere { // before anything is read
		p.announceElsewhere()
	}
	p.step(reconcile.FleetRecord{}) // there are too few agents for a hold of many
	p.step(reconcile.FleetOthers{})
}

// superseded reports whether another principal has a newer session of an agent.
func (p *process) superseded(agent string, epoch engine.Epoch) bool {
	for _, other := range p.w.principalsOf(p.cluster) {
		if other != p && other.up {
			if st, ok := other.reconciler.Status(agent); ok && st.Connected && st.Epoch.Newer(epoch) {
				return true
			}
		}
	}
	return false
}

const principalUID = "principal-1"

func (p *process) register(s *spoke) {
	if s.deleted {
		return
	}
	m := p.cluster.recall(p.w.registrations(), s.agent.Name)
	p.persisted[s.agent.Name] = m
	p.step(reconcile.Register{Agent: p.w.mutant.registered(p.w, s.agent), KnownCluster: m.KnownCluster, KnownStore: m.KnownStore, StoreUntrusted: m.StoreUntrusted})
}

// persistRegistration records what the hub knows of an agent's cluster: its UID, how far an autonomous agent's store
// was seen, and whether it is trusted. How far it was seen is written with something else, or every ten minutes. The
// replica that has the session, or had it last, writes. The others read.
func (p *process) persistRegistration(s *spoke, news bool) {
	name := s.agent.Name
	st, ok := p.reconciler.Status(name)
	if !ok || !st.Connected && (st.StoreHoldID == "" || p.superseded(name, st.Epoch)) {
		return
	}
	was := p.persisted[name]
	now := was
	if now.KnownCluster == "" {
		now.KnownCluster = p.peers[name]
	}
	if !s.managed() {
		now.KnownStore, now.StoreUntrusted = st.Other, st.StoreHoldID != ""
	}
	news = news || now.KnownCluster != was.KnownCluster || now.StoreUntrusted != was.StoreUntrusted || p.w.now-p.wrote[name] >= 10*minute
	due := now != was && news || p.w.now-p.wrote[name] >= minute // what only ages is part of the status, and not of this
	if mark := p.cluster.historyMark(p.w.registrations(), name); due && p.mayMark(st, mark) {
		now.Mark = mark.Number + 1
	}
	if now == was || !due {
		return
	}
	p.wrote[name] = p.w.now
	p.ask(func() (*kind.Object, *apiError) {
		if p.cluster.recall(p.w.registrations(), name) != p.persisted[name] {
			return nil, &apiError{"Conflict", "another principal has written it"}
		}
		p.cluster.remember(actor{what: p.name, proc: p}, p.w.registrations(), name, now)
		if now.Mark != was.Mark {
			p.w.ledger.markRecorded(p.cluster, engine.HistoryMark{Record: st.Mark.Record, Number: now.Mark})
		}
		for _, other := range p.w.principalsOf(p.cluster) {
			if other != p && other.up {
				other.later(other.cluster.watchLag(), func() { other.register(s) })
			}
		}
		return nil, nil
	}, func(_ *kind.Object, err *apiError) {
		switch {
		case err == nil:
			p.persisted[name] = now
			if now.Mark != was.Mark {
				p.marked(name, st, engine.HistoryMark{Record: st.Mark.Record, Number: now.Mark})
			}
		case err.reason == "Conflict":
			p.register(s)
		}
	})
}
