package sim

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is what operators do to two hubs, what breaks between them, and users who use the wrong one.

const operatorName = "operator"

// groupActions occur only in worlds with two hubs.
var groupActions = []actionType{
	{name: "planned switch", weight: 8, fault: true, rare: 60, do: plannedSwitch},
	{name: "forced promotion", weight: 6, fault: true, rare: 40, do: forcedPromotion},
	{name: "demotion and back", weight: 3, fault: true, rare: 20, do: demoteAndBack},
	{name: "old hub follows", weight: 8, fault: true, rare: 70, do: oldHubFollows},
	{name: "user of the wrong hub", weight: 14, fault: true, rare: 60, do: wrongHub},
	{name: "partition between hubs", weight: 6, fault: true, rare: 40, do: partitionHubs},
	{name: "partition from one hub", weight: 8, fault: true, rare: 50, do: partitionFromHub},
	{name: "hub offline", weight: 5, fault: true, rare: 40, do: hubOffline},
	{name: "hub without its Lease", weight: 6, fault: true, rare: 40, do: withoutLease},
	{name: "crash on a hub", weight: 6, fault: true, rare: 40, do: crashOnHub},
}

// activeSite returns the hub that users use.
func (g *group) activeSite() *site {
	for _, s := range g.sites {
		if s.cluster == g.w.hub {
			return s
		}
	}
	panic("users have no hub")
}

// use makes a hub the one that users use.
func (g *group) use(s *site) {
	g.excuse(s)
	g.w.hub, g.w.principals = s.cluster, s.principals
}

// excuse notes which syncs a promoted hub has not received.
func (g *group) excuse(s *site) {
	for id, k := range g.w.ledger.syncRequests {
		o := s.cluster.st.get(k.ref)
		if s.cluster != g.w.hub && (o == nil || infoOf(decode(o)["operation"], requestInfo) != id) {
			k.excused = true
		}
	}
}

func (s *site) by() actor { return actor{what: operatorName} }

// demote is argocd-agentctl hub demote.
func (g *group) demote(s *site) {
	if !s.cluster.down() && s.isActive() {
		s.write(s.by(), hubstate.Demote(s.hub()))
	}
}

// promote is argocd-agentctl hub promote. It can be interrupted between its two writes.
func (g *group) promote(s *site, interrupted bool) {
	other := s.other()
	if s.cluster.down() || other.cluster.down() {
		return
	}
	promoted, demoted, err := hubstate.Promote(s.hub(), other.hub())
	if err != nil {
		g.w.tracef("%s: promote %s: %v", operatorName, s.cluster.name, err)
		return
	}
	if s.lossy = s.lacks(other); !s.lossy {
		promoted = hubstate.Compared(promoted, engine.Store{UID: other.cluster.st.uid, Revision: other.cluster.st.rev})
	}
	other.write(other.by(), demoted)
	if !interrupted {
		s.write(s.by(), promoted)
		g.use(s)
	}
}

// lacks reports whether a standby lacks something of the hub that was demoted, as argocd-agentctl compares them. An operator who
// sees that accepts the loss.
func (s *site) lacks(old *site) bool {
	if !hubstate.MayLack(s.hub(), old.hub()) || s.hub().Predecessor.UID != old.cluster.st.uid {
		return true // they are not compared
	}
	env := func(c *cluster, side kind.Side) *kind.Env {
		return &kind.Env{Side: side, Agent: kind.Agent{Mode: kind.Standby}, HubArgoNamespace: c.argo, SpokeArgoNamespace: c.argo, PrincipalUID: s.hub().Identity}
	}
	active, standby := env(old.cluster, kind.Hub), env(s.cluster, kind.Spoke)
	if before := old.hub().Predecessor; before.UID == s.cluster.st.uid {
		standby.Received = before.Revision
	}
	for _, k := range kind.StandbyKinds() {
		k := k.(kind.StandbyKind)
		sent, held := kind.ComparedItems{}, kind.ComparedItems{}
		for _, o := range old.cluster.st.list(k.Resource()) {
			sent.AddActive(k, o, active)
		}
		for _, o := range s.cluster.st.list(k.Resource()) {
			held.AddStandby(k, o, standby)
		}
		if missing, differ, deleted := held.Lacks(sent); len(missing)+len(differ)+len(deleted) > 0 {
			return true
		}
	}
	return false
}

// promoteWithout is argocd-agentctl hub promote --force. docs/hubs.md forbids it for a hub that was replaced and did not become the
// standby since: it does not know the generation of the hub that replaced it, and could get the same one.
func (g *group) promoteWithout(s *site) {
	if s.cluster.down() || s.wasReplaced() {
		return
	}
	next, err := hubstate.PromoteWithout(s.hub())
	if err != nil {
		g.w.tracef("%s: promote %s by force: %v", operatorName, s.cluster.name, err)
		return
	}
	s.lossy = true
	s.write(s.by(), next)
	g.use(s)
}

// wasReplaced reports whether the other hub was promoted with a later generation than this hub knows.
func (s *site) wasReplaced() bool { return s.other().hub().LastActive() > s.hub().Generation }

// follow is argocd-agentctl hub demote --other-context.
func (g *group) follow(s, active *site) {
	if s.cluster.down() || active.cluster.down() {
		return
	}
	next, err := hubstate.Follow(s.hub(), active.hub())
	if err != nil {
		g.w.tracef("%s: %s follows %s: %v", operatorName, s.cluster.name, active.cluster.name, err)
		return
	}
	name := hubstate.AgentName(s.cluster.st.uid)
	if active.cluster.st.get(ref(kind.Agents, active.cluster.argo, name)) == nil {
		active.cluster.create(operatorName, kind.Agents, tree{"apiVersion": "argocd-agent.argoproj-labs.io/v1alpha1", "kind": "Agent",
			"metadata": tree{"namespace": active.cluster.argo, "name": name}, "spec": tree{"mode": string(kind.Standby)}})
		g.w.afterWatch(active.sender, active.sender.registerStandby)
	}
	s.write(s.by(), next)
}

func plannedSwitch(w *world, a action) {
	g := w.group
	from := g.activeSite()
	to := from.other()
	g.demote(from)
	w.after(span(a.n[0])/10, func() { g.promote(to, a.n[3]%8 == 0) })
	if a.n[1]%3 > 0 {
		w.after(span(a.n[0])/10+span(a.n[2])/4, func() { g.follow(from, to) })
	}
}

// forcedPromotion promotes the standby while the operator does not reach the active hub, which may or may not be lost.
func forcedPromotion(w *world, a action) {
	g := w.group
	from := g.activeSite()
	if a.n[0]%3 > 0 {
		g.offline(from, 2*span(a.n[1])+20*second)
	}
	w.after(span(a.n[2])/10, func() { g.promoteWithout(from.other()) })
}

// demoteAndBack undoes a demotion: alone, or as a promotion.
func demoteAndBack(w *world, a action) {
	g := w.group
	s := g.activeSite()
	g.demote(s)
	w.after(span(a.n[0])/10, func() {
		if next, err := hubstate.PromoteAlone(s.hub()); err == nil && a.n[1]%2 == 0 && !s.cluster.down() {
			s.write(s.by(), next)
			g.use(s)
			return
		}
		g.promote(s, false)
	})
}

func oldHubFollows(w *world, _ action) {
	s := w.group.activeSite()
	w.group.follow(s.other(), s)
}

// wrongHub is a user who changes something on the hub that is not, or no longer, the one to use.
func wrongHub(w *world, a action) {
	right := w.hub
	wrong := w.group.activeSite().other().cluster
	w.tracef("a user of %s", wrong.name)
	w.hub = wrong
	n := a
	n.n = [4]uint32{a.n[1], a.n[2], a.n[3], a.n[0] >> 3}
	requests := w.lastRequest
	[]func(*world, action){createApplication, editApplication, func(w *world, a action) { deleteOnHub(w, a, true) }, func(w *world, a action) { deleteOnHub(w, a, false) },
		recreateApplication, func(w *world, a action) { withHubApp(w, a, func(r kind.Ref) { w.sync(r) }) }, editProject, deleteProject}[a.n[0]%8](w, n)
	w.hub = right
	for _, k := range w.ledger.syncRequests {
		k.excused = k.excused || w.lastRequest > requests && k.number > requests
	}
}

func partitionHubs(w *world, a action) {
	w.group.partitionUntil = w.now + 2*span(a.n[0])
	for _, c := range w.liveConns() {
		if c.spoke == nil {
			c.cut()
		}
	}
}

func partitionFromHub(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	hub := w.group.sites[a.n[1]%2]
	s.cutUntil[hub.index] = w.now + 2*span(a.n[2])
	for _, c := range w.liveConns() {
		if c.spoke == s && c.site == hub {
			c.cut()
		}
	}
}

func hubOffline(w *world, a action) { w.group.offline(w.group.sites[a.n[0]%2], 2*span(a.n[1])) }

// offline takes a hub away: its API server and its processes.
func (g *group) offline(s *site, d engine.Time) {
	g.w.tracef("%s: offline", s.cluster.name)
	s.cluster.downUntil = max(s.cluster.downUntil, g.w.now+d)
	s.cluster.st.cutWatches()
	for _, p := range s.processes() {
		p.restartIn(d)
	}
}

func crashOnHub(w *world, a action) {
	s := w.group.sites[a.n[0]%2]
	p, _ := pick(s.processes(), a.n[1])
	p.restartIn(span(a.n[2]) / 2)
}

// resolve is an operator who makes one hub active and the other one its standby.
func (g *group) resolve() {
	a := g.activeSite()
	if latest := g.latest(); latest != nil {
		a = latest
	}
	b := a.other()
	if !a.isActive() || a.hub().Generation < b.hub().Generation || b.hub().WasActiveWith(a.hub().Identity, a.hub().Generation) {
		g.demote(a)
		g.demote(b)
		g.promote(a, false)
	}
	g.use(a)
	g.follow(b, a)
}

// latest returns the active hub with the latest generation, or nil.
func (g *group) latest() *site {
	var found *site
	for _, s := range g.sites {
		if s.isActive() && (found == nil || s.hub().Generation > found.hub().Generation) {
			found = s
		}
	}
	return found
}

// resolved is when the last switch has ended after the faults have stopped.
const resolved = 2 * minute

// heal ends the faults between hubs, and has an operator resolve what is left.
func (g *group) heal() {
	g.partitionUntil = min(g.partitionUntil, g.w.now)
	if g.lease != nil {
		g.lease.lostUntil = [2]engine.Time{}
	}
	for _, s := range g.w.spokes {
		s.cutUntil = [2]engine.Time{}
	}
	for _, s := range g.sites {
		for _, p := range s.processes() {
			g.w.after(second, p.start)
		}
	}
	g.w.after(5*second, g.resolve)
	g.w.after(resolved, g.resolve) // what was begun before has ended
}

// standbys returns the names under which hubs are registered on each other.
func (g *group) standbys() []string {
	if g == nil {
		return nil
	}
	return []string{hubstate.AgentName(g.sites[0].cluster.st.uid), hubstate.AgentName(g.sites[1].cluster.st.uid)}
}

// hubsShare is in how many percent of the seeds there are two hubs.
const hubsShare = 15

// hasTwoHubs reports whether the world of a seed has two hubs.
func (s Seed) hasTwoHubs() bool { return seeded(s.Number, 7).IntN(100) < hubsShare }

// withTwoHubs makes a world one with two hubs.
func (s *shape) withTwoHubs() {
	s.hubLease = s.prunes || s.policy.Recreate || s.mapping == kind.ByDestination // about half of the worlds
	s.hubs, s.elsewhere, s.watchByNamespace = true, false, false
	s.objectLimit, s.statusSize, s.hubSettings.ObjectLimit = 0, 0, 0
}

// twoHubActions are the actions of a world with two hubs. Left out is what the sets of actions of one hub are for: restored
// stores, changed registrations and settings, other releases.
func twoHubActions() []actionType {
	left := map[string]bool{"hub restored": true, "spoke restored": true, "spoke emptied": true, "hub emptied": true,
		"clone in another cluster": true, "principal crash": true, "all principals down": true}
	var out []actionType
	for _, list := range [][]actionType{hubActions, spokeActions, faultActions, groupActions} {
		for _, a := range list {
			if !left[a.name] {
				out = append(out, a)
			}
		}
	}
	return out
}
