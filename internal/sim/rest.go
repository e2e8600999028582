package sim

import (
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file checks an idle world.

// checkSyncRequests checks every sync that a user requested.
func (w *world) checkSyncRequests() {
	for _, id := range sortedKeys(w.ledger.syncRequests) {
		k := w.ledger.syncRequests[id]
		w.checks++
		if k.runs > 0 || k.refused || k.excused {
			continue
		}
		o := w.hub.st.get(k.ref)
		if o == nil || w.hub.id(o) != k.uid || o.IsDeleting() || ignoredLabel(o) || w.ledger.gaveUp[k.uid] {
			continue
		}
		if o.Annotation(agentKey) == "" && !slices.ContainsFunc(w.spokes, func(s *spoke) bool { return w.sentTo(s, k.ref, o) }) {
			continue // it belongs to no agent
		}
		if slices.ContainsFunc(w.spokes, func(s *spoke) bool {
			return s.modeChanged && (w.sentTo(s, k.ref, o) || o.Annotation(agentKey) == s.agent.Name)
		}) {
			continue // the other side may have nothing of that name
		}
		if w.waits(o) {
			continue // visibly, for the Application to be there
		}
		w.violate("click %s on %s has neither run nor been refused", id, short(k.ref))
	}
}

// waits reports whether an Application of the hub cannot be on its spoke.
func (w *world) waits(o *kind.Object) bool {
	for _, s := range w.spokes {
		if r := refOf(kind.Applications, o); w.sentTo(s, r, o) {
			replica := s.cluster.st.get(copyOnSpoke(s, r))
			return w.refused(decode(o), replica) || !s.allows(copyOnSpoke(s, r).Namespace) ||
				replica != nil && (ignoredLabel(replica) || replica.IsDeleting() && s.cluster.projectOf(replica) == nil)
		}
	}
	return false
}

// checkRest lets ten minutes pass without actions.
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
	// What moves with every comparison of Argo CD may cross now and then, and an operation may end.
	limit := 3*apps + 2 + 12*w.lossy() // what a spoke does not store is written again now and then
	w.check(w.writes-before <= limit, "at rest there are still %d writes in ten minutes, with %d Applications", w.writes-before, apps)
	if found := w.differences(); len(found) > 0 {
		w.violate("the two sides were equal, and no longer are:\n  %s", strings.Join(found, "\n  "))
	}
	w.checkInSync()
	for _, p := range w.processes() {
		if p.up {
			w.checkLoad(p)
		}
	}
}

// checkInSync asks both ends of each session what they know of each other: what one of them can compare, both have
// found equal a moment ago.
func (w *world) checkInSync() {
	for _, s := range w.spokes {
		here, _ := s.process.reconciler.Status("")
		for _, p := range w.principals {
			there, _ := p.reconciler.Status(s.agent.Name)
			if !s.process.up || !p.up || !here.Connected || !there.Connected || there.Epoch != here.Epoch {
				continue
			}
			for _, scope := range slices.Concat(here.Scopes, there.Scopes) {
				both := slices.ContainsFunc(here.Scopes, func(o engine.ScopeStatus) bool { return o.Name == scope.Name }) &&
					slices.ContainsFunc(there.Scopes, func(o engine.ScopeStatus) bool { return o.Name == scope.Name })
				w.check(scope.Unshared != both, "scope %s of %s counts as unshared: %v", scope.Name, s.agent.Name, scope.Unshared)
			}
			for _, scope := range here.Scopes {
				w.checkScopeInSync(s.process, s, scope)
			}
			for _, scope := range there.Scopes {
				w.checkScopeInSync(p, s, scope)
			}
		}
	}
}

func (w *world) checkScopeInSync(p *process, s *spoke, scope engine.ScopeStatus) {
	if scope.Name == kind.CommandScope || scope.Unshared {
		return
	}
	age, most := p.clock()-scope.InSyncAt, recent
	if w.lossy() > 0 || w.refusals() > 0 {
		most += minute // one comparison may fall into the moment in which an item is written again
	}
	w.check(age <= most, "%s at rest knows of %s of %s only how it was %d s ago", p.name, scope.Name, s.agent.Name, age/second)
}

// recent is how old a proof may be at rest: one beacon, and its way.
const recent = 70 * second

func (w *world) processes() []*process {
	out := slices.Clone(w.principals)
	for _, s := range w.spokes {
		out = append(out, s.process)
	}
	return out
}

// checkLoad compares what a Reconciler keeps with what exists.
func (w *world) checkLoad(p *process) {
	load := p.reconciler.Stats()
	for range 100 { // something may be on its way just now
		if load.Jobs == 0 {
			break
		}
		w.run(w.now + second)
		load = p.reconciler.Stats()
	}
	w.check(load.Jobs == 0 && load.Writing == 0, "%s at rest still has %d jobs and %d writes", p.name, load.Jobs, load.Writing)
	total := 0
	for _, r := range w.resources() {
		total += len(p.cluster.st.list(r))
	}
	w.check(load.Objects <= total, "%s knows %d objects, of %d", p.name, load.Objects, total)
	links := 1
	if p.spoke == nil {
		links = len(w.spokes)
	}
	w.check(load.Notes <= 4*total*links+8, "%s keeps %d notes on %d objects", p.name, load.Notes, total)
}

// checkBusy checks a Reconciler while it is busy: what it keeps is bounded by the objects that there are, or were in
// this life.
func (w *world) checkBusy(p *process) {
	load := p.reconciler.Stats()
	links := 1
	if p.spoke == nil {
		links = len(w.spokes)
	}
	p.objects = max(p.objects, load.Objects)
	known := p.objects + 20
	w.check(load.Jobs <= 5*known*links && load.Writing <= known && load.Notes <= 5*known*links,
		"%s has %d jobs, %d writes and %d notes with %d objects", p.name, load.Jobs, load.Writing, load.Notes, load.Objects)
}

// checkWrites compares what our processes wrote with what others did.
func (w *world) checkWrites() {
	most := 300 + 8*w.foreign
	w.check(w.writes <= most, "there were %d writes of ours, with %d by others", w.writes, w.foreign)
}
