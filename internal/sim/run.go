package sim

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/node"
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

// Run lets the world of a seed run to its end. Trace, if given, gets the lines
// of the transcript.
func Run(seed Seed, trace func(string)) Result { return run(seed, mutant{}, trace) }

func run(seed Seed, m mutant, trace func(string)) (result Result) {
	rng := seeded(seed.Number, 1)
	w := newWorld(seed.Number, drawShape(rng))
	w.mutant, w.trace = m, trace
	plan := drawPlan(rng)
	defer func() {
		if r := recover(); r != nil {
			w.violate("panic: %v\n%s", r, debug.Stack())
		}
		result = Result{Seed: seed, Steps: w.steps, Checks: w.checks, Actions: len(plan), Messages: w.messages, Bytes: w.bytes,
			Faults: sortedKeys(w.seen), Violations: w.violations}
	}()
	w.play(seed.cut(plan), w.shape)
	return result
}

// play is the life of a world: it begins, things happen, the faults stop, it
// comes to rest, and then it is looked at closely.
func (w *world) play(plan []action, sh shape) {
	w.tracef("world: %s", sh)
	w.faulty = true
	if sh.bus {
		w.seen["message bus"] = true
	}
	w.begin()
	w.populate()
	end := minute
	for _, a := range plan {
		w.after(a.at, func() { w.perform(a) })
		end = max(end, a.at)
	}
	w.run(end + 5*second)
	w.heal()
	w.settle()
	w.epilogue()
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

// heal ends all faults. Whoever is down comes back.
func (w *world) heal() {
	w.tracef("--- the faults stop")
	w.faulty = false
	for _, p := range w.processes() {
		w.run(p.pausedUntil) // nobody is suspended for ever, and nobody is woken
	}
	for _, c := range w.clusters() {
		c.downUntil, c.troubleUntil, c.lagUntil = 0, 0, 0
	}
	for _, s := range w.spokes {
		s.partitionUntil, s.slowUntil = 0, 0
		for _, p := range s.clones {
			p.crash()
		}
		w.after(second, s.process.start)
	}
	for _, p := range w.principals {
		w.after(second, p.start)
	}
}

func (w *world) clusters() []*cluster {
	out := []*cluster{w.hub}
	for _, s := range w.spokes {
		out = append(out, s.cluster)
	}
	return out
}

// patience is how long a world may take to come to rest. It covers the longest
// pause between retries, twice.
const patience = 25 * minute

// settle waits until the two sides are equal, and lets people confirm what is
// held back once everything else is.
func (w *world) settle() {
	limit := w.now + patience
	var found []string
	for w.now < limit && len(w.violations) == 0 {
		w.run(w.now + 30*second)
		if found = w.differences(); len(found) == 0 {
			return
		}
		w.confirmAll()
	}
	if len(w.violations) == 0 {
		w.violate("the two sides do not become equal:\n  %s", strings.Join(found, "\n  "))
	}
}

// confirmAll is a person on the hub who looks at what is held back, and agrees.
func (w *world) confirmAll() {
	if w.now%(2*minute) >= 30*second {
		return
	}
	for _, s := range w.spokes {
		agent := s.agent.Name
		for _, p := range w.principals {
			if !p.up {
				continue
			}
			confirm := func(id string) {
				if id == "" {
					return
				}
				w.tracef("%s: confirms %s for %s", userName, id, agent)
				w.ledger.excused[agent] = true
				p.step(node.Confirm{Agent: agent, ID: id})
			}
			st, ok := p.nd.Status(agent)
			if !ok {
				continue
			}
			confirm(st.Suspect)
			for _, sc := range st.Scopes {
				confirm(sc.HeldID)
			}
			for _, scope := range sortedKeys(w.held[agent]) {
				confirm(w.held[agent][scope].ID)
			}
		}
	}
}

// epilogue looks at the world at rest: what was asked for has happened, nothing
// moves any more, memory is bounded, and a reconnect costs what has changed.
func (w *world) epilogue() {
	if len(w.violations) > 0 {
		return
	}
	w.checkClicks()
	w.checkRest()
	w.checkReconnect()
}

// checkClicks asks after every sync that somebody wanted.
func (w *world) checkClicks() {
	for _, id := range sortedKeys(w.ledger.clicks) {
		k := w.ledger.clicks[id]
		w.checks++
		if k.runs > 0 || k.refused || k.excused {
			continue
		}
		o := w.hub.st.get(k.ref)
		if o == nil || o.UID() != k.uid || o.IsDeleting() || ignoredLabel(o) || w.ledger.hasLeft(k.uid) {
			continue
		}
		if o.Annotation(agentMarkKey) == "" && !slices.ContainsFunc(w.spokes, func(s *spoke) bool { return w.sentTo(s, k.ref, o) }) {
			continue // it is nobody's
		}
		if w.waits(o) {
			continue // visibly, for the Application to be there
		}
		w.violate("click %s on %s has neither run nor been refused", id, short(k.ref))
	}
}

// waits tells whether an Application of the hub can not be on its spoke.
func (w *world) waits(o *kind.Object) bool {
	for _, s := range w.spokes {
		if r := refOf(kind.Applications, o); w.sentTo(s, r, o) {
			twin := s.cluster.st.get(copyOnSpoke(s, r))
			return w.refused(decode(o), twin) || twin != nil && ignoredLabel(twin)
		}
	}
	return false
}

func (l *ledger) hasLeft(uid string) bool {
	for _, s := range l.w.spokes {
		if l.left[uid+"@"+s.agent.Name] {
			return true
		}
	}
	return false
}

// checkRest lets ten minutes pass in which nobody does anything.
func (w *world) checkRest() {
	apps := 0
	for _, s := range w.spokes {
		apps += len(s.cluster.st.list(kind.Applications))
	}
	const rest = 10 * minute
	before := w.writes
	w.run(w.now + rest)
	if len(w.violations) > 0 {
		return
	}
	// What moves with every comparison of Argo CD may cross now and then, and an
	// operation may end.
	limit := 3*apps + 2
	w.check(w.writes-before <= limit, "at rest there are still %d writes in ten minutes, with %d Applications", w.writes-before, apps)
	if found := w.differences(); len(found) > 0 {
		w.violate("the two sides were equal, and are not any more:\n  %s", strings.Join(found, "\n  "))
	}
	for _, p := range w.processes() {
		if p.up {
			w.checkLoad(p)
		}
	}
}

func (w *world) processes() []*process {
	out := slices.Clone(w.principals)
	for _, s := range w.spokes {
		out = append(out, s.process)
	}
	return out
}

// checkLoad compares what a node keeps with what there is.
func (w *world) checkLoad(p *process) {
	load := p.nd.Load()
	for range 100 { // something may be on its way just now
		if load.Jobs == 0 {
			break
		}
		w.run(w.now + second)
		load = p.nd.Load()
	}
	w.check(load.Jobs == 0 && load.Writing == 0, "%s at rest still has %d jobs and %d writes", p.name, load.Jobs, load.Writing)
	total := 0
	for _, r := range node.Resources() {
		total += len(p.cluster.st.list(r))
	}
	w.check(load.Objects <= total, "%s knows %d objects, of %d", p.name, load.Objects, total)
	links := 1
	if p.spoke == nil {
		links = len(w.spokes)
	}
	w.check(load.Notes <= 4*total*links, "%s keeps %d notes on %d objects", p.name, load.Notes, total)
}
