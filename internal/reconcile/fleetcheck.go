package reconcile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// fleetCheck keeps one mistake on the hub from deleting items on many clusters.
//
// A managed agent that finds items absent on the hub holds and reports them (engine.FleetHold). The objects are ours,
// but the hub may lack the items by mistake: a wrong label selector, a wrong list of namespaces, an incomplete view. So
// the hub observes how many agents report such holds.
//
//   - If there are few, the hub confirms the holds.
//   - If there are more than fleetAgents and more than fleetPercent of the compared agents, all stay held, and one
//     confirmation by a user covers them. Holds by an agent's own deletion budget count too, but only a user confirms
//     those.
//
// A principal replica knows its own sessions. FleetOthers has the totals of the others, and FleetRecord is a hold that
// all replicas read. A stale view delays a decision or counts too much, never too little. Nothing is confirmed before
// the record and the other replicas were read once, while a replica with other settings runs, or while agents are still
// being compared, for at most fleetMaxWait.
//
// A fleetCheck has one entry per registered managed agent, with one entry per scope.
type fleetCheck struct {
	on         bool
	recordRead bool // the record was read
	othersRead bool // the totals of the other replicas were read
	record     FleetRecord
	others     FleetOthers
	agents     map[string]*fleetAgent

	beganAt     engine.Time // when this process started or settings changed
	newAt       engine.Time // when an agent was last compared for the first time
	idleAt      engine.Time // since when no agent holds anything; 0 if one does
	confirmedAt engine.Time // when the record was first seen as confirmed
	written     FleetTotals // as last recorded
	writtenAt   engine.Time
	nextAt      engine.Time // when to decide; 0 if there is nothing to decide
}

type fleetAgent struct {
	open       bool // has a session here
	openedAt   engine.Time
	compared   bool // in this session
	before     bool // compared in any session
	holds      map[string]fleetHold
	releasedAt engine.Time // when the hub last confirmed a hold of it; 0 if never
}

type fleetHold struct {
	held  engine.Held
	since engine.Time // when the scope's hold began
	at    engine.Time // when the hold got its current ID
}

// Limits. An intended deletion by absence waits for fleetObserve after the last agent was compared for the first time.
const (
	fleetAgents    = 5
	fleetPercent   = 10
	fleetObserve   = 30 * engine.Second
	fleetStartWait = 60 * engine.Second  // after a start, how long all registered agents are awaited
	fleetMaxWait   = 600 * engine.Second // longest wait for agents that are not compared
	fleetWindow    = 600 * engine.Second // how long a confirmed hold counts as part of the same loss
	fleetInterval  = 5 * engine.Second   // between two decisions
)

// FleetRecord is the hold of many agents that all principal replicas share.
type FleetRecord struct {
	ID        string // empty if there is none
	Settings  string // settings when the hold began
	Confirmed bool   // by a user
}

// FleetTotals counts the agents of one principal replica, or of all.
type FleetTotals struct {
	Compared int // with a session and compared, or with held items
	Opening  int // with a session and not compared yet
	Affected int // with items held or confirmed recently
	Items    int // held items
}

// FleetOthers has the totals of the other principal replicas.
type FleetOthers struct {
	FleetTotals
	Differ bool // a replica with other settings runs
}

// FleetStatus is what this principal replica knows.
type FleetStatus struct {
	FleetTotals             // of its own agents
	Record      FleetRecord // has an ID only if it was recorded with these settings
	Settings    string      // identifies the settings that select the items of agents
}

// RecordFleetHold records a hold, or its end, for all replicas.
type RecordFleetHold struct {
	Record FleetRecord
	Over   bool        // the hold has ended
	Totals FleetTotals // of all replicas
	Sample []string
}

func (FleetRecord) input()      {}
func (FleetOthers) input()      {}
func (RecordFleetHold) effect() {}

func (f *fleetCheck) agent(name string) *fleetAgent {
	a := f.agents[name]
	if a == nil {
		a = &fleetAgent{holds: map[string]fleetHold{}}
		f.agents[name] = a
	}
	return a
}

// decideBy schedules a decision.
func (f *fleetCheck) decideBy(at engine.Time) {
	if f.nextAt == 0 || at < f.nextAt {
		f.nextAt = at
	}
}

// handleEvent handles an event of a managed agent's session.
func (f *fleetCheck) handleEvent(name string, e engine.Event, now engine.Time) {
	switch e.Type {
	case engine.Opened:
		a := f.agent(name)
		a.open, a.openedAt, a.compared = true, now, false
		clear(a.holds)
	case engine.Closed:
		a := f.agent(name) // it reports what it still holds
		a.open, a.compared = false, false
		clear(a.holds)
	case engine.InitialSyncDone:
		a := f.agent(name)
		if a.compared = true; !a.before {
			a.before, f.newAt = true, now
		}
	case engine.HoldStarted:
		f.held(f.agent(name), *e.Held, now)
	case engine.HoldEnded:
		delete(f.agent(name).holds, e.Scope)
	}
}

func (f *fleetCheck) held(a *fleetAgent, h engine.Held, now engine.Time) {
	if h.Cause != engine.CauseFleet && !h.Cause.Budget() {
		delete(a.holds, h.Scope)
		return
	}
	was, ok := a.holds[h.Scope]
	if !ok {
		was.since = now
	}
	a.holds[h.Scope] = fleetHold{held: h, since: was.since, at: now}
	f.decideBy(now + fleetInterval)
}

// affected reports whether an agent counts as one that loses items. A hold by its own budget may wait for days, so it
// counts only while it is new.
func (a *fleetAgent) affected(now engine.Time) bool {
	for _, h := range a.holds {
		if h.held.Cause == engine.CauseFleet || now-h.since < fleetWindow {
			return true
		}
	}
	return a.releasedAt != 0 && now-a.releasedAt < fleetWindow
}

// totals counts the agents of this replica.
func (f *fleetCheck) totals(now engine.Time) FleetTotals {
	var t FleetTotals
	for _, a := range f.agents {
		switch {
		case a.open && !a.compared && len(a.holds) == 0:
			t.Opening++
		case a.open:
			t.Compared++
		}
		if a.affected(now) {
			t.Affected++
		}
		for _, h := range a.holds {
			t.Items += int(min(h.held.Count, 1<<20)) // an agent may report any number
		}
	}
	return t
}

func (t FleetTotals) plus(o FleetTotals) FleetTotals {
	return FleetTotals{t.Compared + o.Compared, t.Opening + o.Opening, t.Affected + o.Affected, t.Items + o.Items}
}

// tooMany reports whether more agents lose items than one change may affect.
func (t FleetTotals) tooMany() bool {
	return t.Affected > fleetAgents && t.Affected*100 > fleetPercent*max(t.Compared, t.Affected)
}

// confirmation is a hold of an agent that the hub confirms.
type confirmation struct{ agent, id string }

// decide returns which holds are confirmed, and what to record, or nil. registered is the number of managed agents.
func (f *fleetCheck) decide(now engine.Time, registered int, settings string) (confirmed []confirmation, record *RecordFleetHold) {
	f.nextAt = 0
	own := f.totals(now)
	all := own.plus(f.others.FleetTotals)
	mine := f.record.ID != "" && f.record.Settings == settings
	switch {
	case !f.recordRead || !f.othersRead:
		// The hold of another replica, or of the previous process, is not known yet.
	case f.over(now, all, mine):
		record = &RecordFleetHold{Record: f.record, Over: true}
		f.record, f.idleAt, f.confirmedAt = FleetRecord{}, 0, 0
	case mine && f.record.Confirmed:
		// It covers what the user was shown, and agents that connect later. Later losses of the others are not covered.
		confirmed = f.confirm(now, func(a *fleetAgent, h fleetHold) bool { return h.since <= f.confirmedAt || a.openedAt > f.confirmedAt })
	case mine:
		record = f.update(now, all)
	case own.Items == 0: // or another replica's, or of other settings
	case !f.ready(now, all, registered):
	case all.tooMany():
		f.record, f.confirmedAt = FleetRecord{ID: f.id(now), Settings: settings}, 0
		f.written, f.writtenAt = all, now
		record = &RecordFleetHold{Record: f.record, Totals: all, Sample: f.sample()}
	default:
		confirmed = f.confirm(now, func(_ *fleetAgent, h fleetHold) bool {
			return h.held.Cause == engine.CauseFleet && (now-h.at >= fleetObserve || now-h.since >= fleetMaxWait)
		})
	}
	if own.Items > 0 || f.record.ID != "" {
		f.decideBy(now + fleetInterval)
	}
	return confirmed, record
}

// ready reports whether enough is known to decide.
func (f *fleetCheck) ready(now engine.Time, all FleetTotals, registered int) bool {
	first := now
	for _, a := range f.agents {
		for _, h := range a.holds {
			first = min(first, h.since)
		}
	}
	if now-first >= fleetMaxWait {
		return true
	}
	away := registered - all.Compared - all.Opening
	return !f.others.Differ && all.Opening == 0 && (away <= 0 || now-f.beganAt >= fleetStartWait) && now-max(first, f.newAt) >= fleetObserve
}

// over reports whether the recorded hold has ended: no compared agent holds anything, or it was confirmed and the
// agents had time to reconnect.
func (f *fleetCheck) over(now engine.Time, all FleetTotals, mine bool) bool {
	if f.record.ID == "" {
		return false
	}
	if mine && f.record.Confirmed {
		if f.confirmedAt == 0 {
			f.confirmedAt = now
		}
		return now-f.confirmedAt >= fleetWindow
	}
	f.confirmedAt = 0
	if all.Affected > 0 || all.Items > 0 || all.Opening > 0 || all.Compared == 0 {
		f.idleAt = 0
		return false
	}
	if f.idleAt == 0 {
		f.idleAt = now
	}
	return now-f.idleAt >= fleetObserve
}

// update updates the recorded totals from time to time.
func (f *fleetCheck) update(now engine.Time, all FleetTotals) *RecordFleetHold {
	if all == f.written || all.Items == 0 || now-f.writtenAt < fleetObserve {
		return nil
	}
	f.written, f.writtenAt = all, now
	return &RecordFleetHold{Record: f.record, Totals: all, Sample: f.sample()}
}

// confirm returns the holds of this replica's agents that which selects. A hold that has not ended is returned again at
// the next decision, because a message can be lost.
func (f *fleetCheck) confirm(now engine.Time, which func(*fleetAgent, fleetHold) bool) (out []confirmation) {
	for _, name := range slices.Sorted(maps.Keys(f.agents)) {
		a := f.agents[name]
		for _, scope := range slices.Sorted(maps.Keys(a.holds)) {
			if h := a.holds[scope]; which(a, h) {
				a.releasedAt = now
				out = append(out, confirmation{name, h.held.ID})
			}
		}
	}
	return out
}

// id returns a unique ID for a new hold.
func (f *fleetCheck) id(now engine.Time) string {
	sum := sha256.New()
	fmt.Fprintln(sum, now)
	for _, name := range slices.Sorted(maps.Keys(f.agents)) {
		for _, scope := range slices.Sorted(maps.Keys(f.agents[name].holds)) {
			fmt.Fprintln(sum, name, scope, f.agents[name].holds[scope].held.ID)
		}
	}
	return "fleet-" + hex.EncodeToString(sum.Sum(nil)[:8])
}

// fleetSample bounds the items in RecordFleetHold.
const fleetSample = 10

// sample returns a few items of different agents.
func (f *fleetCheck) sample() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(f.agents)) {
		a := f.agents[name]
		for _, scope := range slices.Sorted(maps.Keys(a.holds)) {
			if keys := a.holds[scope].held.Sample; len(keys) > 0 && len(out) < fleetSample {
				out = append(out, name+": "+scope+" "+keys[0].String())
			}
		}
	}
	return out
}

// settingsID identifies the settings that select the items of all agents.
func (n *Reconciler) settingsID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%+v %+v", n.cfg.Settings, n.argo))
	return hex.EncodeToString(sum[:8])
}

// notifyFleetCheck passes an event to the check. Only what the hub owns can be lost on an agent by the hub's mistake.
func (l *agentSync) notifyFleetCheck(e engine.Event) {
	if !l.reconciler.fleet.on || l.env.Agent.Mode != kind.Managed {
		return
	}
	l.reconciler.fleet.handleEvent(l.name, e, l.reconciler.now)
}

// checkFleet decides on what agents hold, if that is due.
func (n *Reconciler) checkFleet() {
	f := &n.fleet
	if !f.on || f.nextAt == 0 || n.now < f.nextAt {
		return
	}
	registered := 0
	for _, l := range n.sortedSyncs() {
		if l.env.Agent.Mode == kind.Managed {
			registered++
		}
	}
	confirmed, record := f.decide(n.now, registered, n.settingsID())
	if record != nil {
		n.emit(*record)
	}
	for _, c := range confirmed {
		if l := n.syncs[c.agent]; l != nil {
			l.step(engine.Confirmed{ID: c.id})
		}
	}
	n.drain()
}

func (n *Reconciler) fleetRecord(in FleetRecord) {
	f := &n.fleet
	if in.ID != f.record.ID {
		f.idleAt, f.confirmedAt = 0, 0
	}
	f.recordRead, f.record = true, in
	f.decideBy(n.now)
}

func (n *Reconciler) fleetOthers(in FleetOthers) {
	if in.Compared > n.fleet.others.Compared {
		n.fleet.newAt = n.now
	}
	n.fleet.othersRead, n.fleet.others = true, in
	n.fleet.decideBy(n.now + fleetInterval)
}

// Fleet returns the state of the check.
func (n *Reconciler) Fleet() FleetStatus {
	s := FleetStatus{FleetTotals: n.fleet.totals(n.now), Settings: n.settingsID()}
	if n.fleet.record.Settings == s.Settings {
		s.Record = n.fleet.record
	}
	return s
}
