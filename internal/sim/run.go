package sim

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Result is what became of a seed.
type Result struct {
	Seed       Seed
	Steps      int
	Checks     int
	Actions    int
	Messages   int
	Bytes      int
	Faults     []string // kinds that occurred
	Violations []string
}

// Run lets the world of a seed run to its end. Trace, if given, gets the lines of the transcript.
func Run(seed Seed, trace func(string)) Result { return run(seed, mutant{}, trace) }

func run(seed Seed, m mutant, trace func(string)) (result Result) {
	rng := seeded(seed.Number, 1)
	sh := drawShape(rng)
	sh.watchByNamespace = sh.mapping == kind.ByNamespace && seeded(seed.Number, 3).IntN(100) < 30
	sh.elsewhere = seeded(seed.Number, 4).IntN(100) < 50
	sh.pages = seeded(seed.Number, 7).IntN(100) < 50
	from := plannedActions()
	if seed.hasTwoHubs() {
		sh.withTwoHubs()
		from = twoHubActions()
	}
	w := newWorld(seed.Number, sh)
	w.mutant, w.trace = m, trace
	plan := drawPlan(rng, from)
	defer func() {
		if r := recover(); r != nil {
			w.violate("panic: %v\n%s", r, debug.Stack())
		}
		result = Result{Seed: seed, Steps: w.steps, Checks: w.checks, Actions: len(plan), Messages: w.messages, Bytes: w.bytes,
			Faults: sortedKeys(w.seen), Violations: w.violations}
	}()
	w.runPlan(seed.cut(plan), w.shape)
	return result
}

// runPlan is the life of a world: it begins, things happen, the faults stop, it comes to rest, and then it is looked at
// closely.
func (w *world) runPlan(plan []action, sh shape) {
	w.tracef("world: %s", sh)
	w.faulty = true
	if sh.bus {
		w.seen["message bus"] = true
	}
	if sh.hubs {
		w.seen["two hubs"] = true
	}
	if sh.hubLease {
		w.seen["Lease of two hubs"] = true
	}
	if sh.pages {
		w.seen["lists in pages"] = true
	}
	w.begin()
	w.populate()
	if sh.elsewhere {
		w.seen["agents elsewhere"] = true
		w.announceElsewhere()
	}
	end := minute
	for _, a := range plan {
		w.after(a.at, func() { w.perform(a) })
		end = max(end, a.at)
	}
	w.run(end + 5*second)
	w.heal()
	w.settle()
	w.finalChecks()
}

// populate creates what is there to begin with.
func (w *world) populate() {
	for _, s := range w.spokes {
		for i := range w.shape.apps {
			w.after(w.between(0, 20*second), func() {
				c, ns := s.home(uint32(i))
				w.createIn(s, c, ns, fmt.Sprintf("app-%d", i), uint32(i)*7919)
			})
		}
	}
}

// heal ends all faults and starts what is down.
func (w *world) heal() {
	w.tracef("--- the faults stop")
	w.faulty = false
	for _, p := range w.processes() {
		w.run(p.pausedUntil) // no process stays suspended
	}
	for _, c := range w.clusters() {
		c.denials = nil
		c.downUntil, c.faultUntil, c.lagUntil = min(c.downUntil, w.now), min(c.faultUntil, w.now), min(c.lagUntil, w.now)
	}
	for _, s := range w.spokes {
		s.partitionUntil, s.slowUntil = min(s.partitionUntil, w.now), min(s.slowUntil, w.now)
		for _, p := range s.clones {
			p.crash()
			p.retired = true
		}
		w.unretire(s)
		w.rejoin(s)
		w.refuse(s, false)
		w.after(second, s.process.start)
	}
	for _, p := range w.principals {
		w.after(second, p.start)
	}
	for _, p := range w.processes() {
		if p.release == tooNew {
			p.release = current
			p.restartIn(second)
		}
	}
	if w.group != nil {
		w.group.heal()
		return
	}
	w.correctIdentities()
}

// correctIdentities is a user on the hub who corrects a registration with another cluster, which connected first after
// the hub had lost its record.
func (w *world) correctIdentities() {
	for _, s := range w.spokes {
		m := w.hub.recall(w.registrations(), s.agent.Name)
		if m.KnownCluster == "" || m.KnownCluster == s.cluster.st.uid {
			continue
		}
		w.hub.remember(actor{what: userName}, w.registrations(), s.agent.Name, memory{KnownCluster: s.cluster.st.uid})
		for _, p := range w.principals {
			p.restartIn(second)
		}
	}
}

func (w *world) clusters() []*cluster {
	out := w.hubs()
	for _, s := range w.spokes {
		out = append(out, s.cluster)
	}
	return out
}

// patience is how long a world may take to come to rest. It covers the longest pause between retries, twice.
const patience = 25 * minute

// settle waits until the two sides are equal, and lets users confirm holds once everything else is.
func (w *world) settle() {
	limit := w.now + patience
	var found []string
	for w.now < limit && len(w.violations) == 0 {
		w.run(w.now + 30*second)
		if found = w.differences(); len(found) == 0 && !w.hasHolds() && w.now >= limit-patience+w.unseen() {
			return
		}
		w.confirmAll()
	}
	if len(w.violations) == 0 {
		w.violate("the two sides do not become equal:\n  %s", strings.Join(found, "\n  "))
	}
}

// confirmAll is a user on the hub who confirms all holds.
func (w *world) confirmAll() {
	if w.now%(2*minute) >= 30*second {
		return
	}
	w.held(w.confirm)
}

// hold is a hold that a principal shows.
type hold struct {
	at    *process
	agent string
	scope string // empty: everything, because a store regressed
	id    string
	what  *engine.Held // of a scope: what is shown

	elsewhere bool // by the agent, not by the principal itself
}

func (w *world) confirm(h hold) {
	w.tracef("%s: confirms %s for %s", userName, h.id, h.agent)
	w.ledger.confirmed(h)
	h.at.step(reconcile.Confirm{Agent: h.agent, ID: h.id})
}

// hasHolds reports whether anything waits for a confirmation. It may be a command, which no comparison of the two
// sides shows.
func (w *world) hasHolds() bool {
	found := false
	w.held(func(hold) { found = true })
	return found
}

// held returns the holds that principals show for the agents with a session.
func (w *world) held(each func(hold)) {
	agents := w.group.standbys()
	for _, s := range w.spokes {
		agents = append(agents, s.agent.Name)
	}
	for _, agent := range agents {
		for _, p := range w.allPrincipals() {
			if !p.up || p.part == receiver {
				continue
			}
			st, ok := p.reconciler.Status(agent)
			if !ok || !st.Connected {
				continue
			}
			holds := []hold{{id: st.StoreHoldID}}
			for _, sc := range st.Scopes {
				holds = append(holds, hold{scope: sc.Name, id: sc.HeldID, what: w.shown[sc.HeldID]})
			}
			for _, held := range st.RemoteHolds {
				holds = append(holds, hold{scope: held.Scope, id: held.ID, what: &held, elsewhere: true})
			}
			for _, h := range holds {
				if h.id != "" {
					h.at, h.agent = p, agent
					each(h)
				}
			}
		}
	}
}

// finalChecks checks the idle world: what was requested has happened, nothing changes, memory is bounded, and a
// reconnect costs what has changed.
func (w *world) finalChecks() {
	if len(w.violations) > 0 {
		return
	}
	w.checkSyncRequests()
	w.checkWrites()
	w.checkRest()
	w.checkReconnect()
	w.checkElsewhere()
}
