package sim

import (
	"fmt"
	"strconv"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// This file is an active hub and its standby. Which one is active is in a ConfigMap of each hub. A process of a hub has the
// role with which it started, and starts again when its hub has another one.

// part is what a process of a hub does.
type part uint8

const (
	principal part = iota // serves agents, if the hub is active
	sender                // serves the standby, if the hub is active
	receiver              // receives from the active hub, if the hub is the standby
)

// site is one of two hubs.
type site struct {
	w          *world
	index      int // of its address, as agents know it
	cluster    *cluster
	principals []*process
	sender     *process
	receiver   *process
	changedAt  engine.Time // when its role changed last
	lossy      bool        // it was promoted although it lacked something of the other hub, or without a comparison
}

// group is two hubs with one identity.
type group struct {
	w              *world
	sites          [2]*site
	partitionUntil engine.Time // between the hubs
	lease          *hubLease   // nil: an operator decides which hub is active

	views map[*cluster]*ledger           // what each hub would publish, if all agents followed it
	had   map[*cluster]map[string]bool   // IDs of objects that a hub has or had
	gone  map[*cluster]map[string]uint64 // ... and that were deleted there, other than by replication: the revision
	back  map[string]engine.Time         // ... and are there again
	wrote map[string]uint64              // UIDs of replicas on spokes: the generation that wrote them last
	kept  map[*cluster]map[string]bool   // IDs of Applications that a hub had kept when it was promoted, see noteKept
	ended map[string]*cluster            // "uid@agent": the hub for which an agent deleted its replica, because a user had deleted it there
}

// addHub adds the standby.
func (w *world) addHub() {
	g := &group{w: w, views: map[*cluster]*ledger{}, had: map[*cluster]map[string]bool{}, gone: map[*cluster]map[string]uint64{}, back: map[string]engine.Time{}, wrote: map[string]uint64{}, ended: map[string]*cluster{}, kept: map[*cluster]map[string]bool{}}
	w.group = g
	if w.shape.hubLease {
		g.lease = &hubLease{}
	}
	second := newCluster(w, "hub2", "argocd")
	second.hub = true
	second.st.rev = 100 + uint64(w.between(0, 1_000_000))
	w.hub.st.uid = principalUID // the identity of the group is the UID of its first hub
	for i, c := range []*cluster{w.hub, second} {
		s := &site{w: w, index: i, cluster: c}
		g.sites[i] = s
		g.views[c] = newLedger(w)
		g.had[c], g.gone[c] = map[string]bool{}, map[string]uint64{}
		if i == 0 {
			s.principals = w.principals
		} else {
			for n := range w.shape.replicas {
				s.principals = append(s.principals, &process{w: w, name: fmt.Sprintf("%s-%d", c.name, n), cluster: c})
			}
		}
		for _, p := range s.principals {
			p.site = s
		}
		s.sender = &process{w: w, name: c.name + "-sender", cluster: c, site: s, part: sender}
		s.receiver = &process{w: w, name: c.name + "-receiver", cluster: c, site: s, part: receiver}
	}
	for _, s := range w.spokes {
		s.follows, s.generation = w.hub, 1
	}
}

// begin makes the second hub the standby of the first.
func (g *group) begin() {
	w := g.w
	a, b := g.sites[0], g.sites[1]
	w.install(b.cluster)
	for _, s := range w.spokes {
		a.cluster.create("install", kind.Agents, tree{"apiVersion": "argocd-agent.argoproj-labs.io/v1alpha1", "kind": "Agent",
			"metadata": tree{"namespace": a.cluster.argo, "name": s.agent.Name}, "spec": tree{"mode": string(s.agent.Mode)}})
	}
	g.follow(b, a)
	for _, s := range g.sites {
		for _, p := range []*process{s.sender, s.receiver} {
			w.after(w.between(0, second), p.start)
		}
	}
	for _, p := range b.principals {
		w.after(w.between(0, second), p.start)
	}
}

func (s *site) processes() []*process {
	return append([]*process{s.sender, s.receiver}, s.principals...)
}

// siteOf returns the hub of a cluster.
func (g *group) siteOf(c *cluster) *site {
	if g.sites[0].cluster == c {
		return g.sites[0]
	}
	return g.sites[1]
}

func (s *site) other() *site { return s.w.group.sites[1-s.index] }

// hub returns the state of the hub for a decision.
func (s *site) hub() hubstate.Hub {
	state, err := hubstate.Of(s.cluster.st.get(s.stateRef()), s.cluster.st.uid)
	if err != nil {
		panic(err)
	}
	return hubstate.Hub{ClusterUID: s.cluster.st.uid, State: state}
}

func (s *site) stateRef() kind.Ref { return ref(kind.ConfigMaps, s.cluster.argo, hubstate.ConfigMap) }

func (s *site) isActive() bool { return s.hub().Role == hubstate.Active }

// write stores the state of a hub. Its processes hear of it in their own time.
func (s *site) write(who actor, next hubstate.State) {
	before := s.hub().State
	if before == next {
		return
	}
	data, annotations := hubstate.Content(next)
	t := tree{"apiVersion": "v1", "kind": "ConfigMap", "data": texts(data),
		"metadata": tree{"namespace": s.cluster.argo, "name": hubstate.ConfigMap, "annotations": texts(annotations)}}
	if s.cluster.st.get(s.stateRef()) == nil {
		_, _ = s.cluster.st.create(who, kind.ConfigMaps, encode(t))
	} else {
		_, _ = s.cluster.st.update(who, kind.ConfigMaps, encode(t))
	}
	if sameRole(before, next) {
		return
	}
	s.w.tracef("%s: %s is %s, generation %d, predecessor %s", who.what, s.cluster.name, next.Role, next.Generation, hubstate.FormatStore(next.Predecessor))
	s.changedAt = s.w.now
	s.w.group.guardStates()
	if next.Role == hubstate.Active {
		s.w.group.noteKept(s)
	}
	for _, a := range s.w.appsets {
		a.plan()
	}
	for _, p := range s.processes() {
		if p.up {
			p.later(s.cluster.watchLag(), p.reviewRole)
		} else {
			s.w.after(s.w.between(second, 5*second), p.start)
		}
	}
}

func sameRole(a, b hubstate.State) bool {
	a.Predecessor = b.Predecessor
	return a == b
}

// reviewRole ends a process whose hub has another state than the one with which it started.
func (p *process) reviewRole() {
	switch {
	case p.w.mutant.staysInRole:
	case p.cluster.down():
		p.later(second, p.reviewRole)
	case !sameRole(p.born, p.site.hub().State):
		p.restartIn(p.w.between(second, 5*second))
	}
}

// mayStart reports whether a process starts now: its API server is up, and the hub has the role for it.
func (s *site) mayStart(p *process) bool {
	if s.cluster.down() {
		s.w.after(2*second, p.start)
		return false
	}
	p.born = s.hub().State
	if s.w.mutant.servesAlways && p.part == principal {
		return true
	}
	return (p.part == receiver) == (p.born.Role == hubstate.Standby)
}

// principalsOf returns the principal replicas of a hub.
func (w *world) principalsOf(c *cluster) []*process {
	if w.group != nil {
		for _, s := range w.group.sites {
			if s.cluster == c {
				return s.principals
			}
		}
	}
	return w.principals
}

func (w *world) allPrincipals() []*process {
	if w.group == nil {
		return w.principals
	}
	return append(w.group.sites[0].processes(), w.group.sites[1].processes()...)
}

func (w *world) hubs() []*cluster {
	if w.group == nil {
		return []*cluster{w.hub}
	}
	return []*cluster{w.group.sites[0].cluster, w.group.sites[1].cluster}
}

// activeHubs returns the hubs that are active: none or both, for a while.
func (w *world) activeHubs() (active []*cluster) {
	if w.group == nil {
		return []*cluster{w.hub}
	}
	for _, s := range w.group.sites {
		if s.isActive() {
			active = append(active, s.cluster)
		}
	}
	return active
}

// registrations is where principals keep what they know of agents. A standby receives Agents.
func (w *world) registrations() kind.Resource {
	if w.group != nil {
		return kind.Agents
	}
	return registrations
}

// id names an object on all hubs of a group: the UID of the first one, from which the others were made. The copy of an
// agent's object has another one on each hub.
func (c *cluster) id(o *kind.Object) string {
	if c.hub && c.w.group != nil && o.Annotation(agentKey) == "" && ownedByAgent(o) {
		return o.Annotation(sourceKey)
	}
	return o.UID()
}

// resources returns the resources that a process reads.
func (p *process) resources() []kind.Resource {
	if p.part != principal {
		return kind.Resources(kind.StandbyKinds())
	}
	return p.w.resources()
}

// standbyTuning is that of the product.
var standbyTuning = engine.Tuning{Beacon: 4 * second}

func (p *process) standbyConfig(side kind.Side) reconcile.Config {
	return reconcile.Config{Side: side, Mode: kind.Standby, Kinds: kind.StandbyKinds(), ArgoNamespace: p.cluster.argo, ClusterUID: p.cluster.st.uid,
		PrincipalUID: p.born.Identity, Version: "sim", Tuning: standbyTuning}
}

// startSender starts what sends the objects of an active hub to its standby.
func (p *process) startSender() {
	cfg := p.standbyConfig(kind.Hub)
	cfg.Generation, cfg.Predecessor = p.born.Generation, p.born.Predecessor
	p.reconciler = reconcile.New(cfg)
	p.registerStandby()
}

// registerStandby registers the other hub if a user has done so.
func (p *process) registerStandby() {
	uid := p.site.other().cluster.st.uid
	name := hubstate.AgentName(uid)
	if p.cluster.st.get(ref(kind.Agents, p.cluster.argo, name)) != nil {
		p.step(reconcile.Register{Agent: kind.Agent{Name: name, Mode: kind.Standby, Mapping: kind.ByNamespace, HubNamespace: name}, KnownCluster: uid})
	}
}

// startReceiver starts a standby.
func (p *process) startReceiver() {
	cfg := p.standbyConfig(kind.Spoke)
	cfg.KnownStore, cfg.OneHub = p.born.Predecessor, true
	cfg.KnownGeneration = engine.HubGeneration{Hub: p.born.Identity, Number: p.born.Generation}
	p.incarnation = uint64(p.clock())
	p.reconciler = reconcile.New(cfg)
	p.later(p.w.between(second, 2*second), p.dial)
}

// persistStandby records up to which revision a standby has received everything.
func (p *process) persistStandby() {
	if p.part != receiver {
		return
	}
	received := p.reconciler.Received()
	if received.Revision == 0 {
		return
	}
	p.changeState(func(s hubstate.State) hubstate.State { return hubstate.Received(s, received) })
}

// changeState changes the state of a standby, if it still is one.
func (p *process) changeState(change func(hubstate.State) hubstate.State) {
	p.ask(func() (*kind.Object, *apiError) {
		if is := p.site.hub().State; is.Role == hubstate.Standby && is.Identity == p.born.Identity {
			p.site.write(actor{what: p.name, proc: p}, change(is))
		}
		return nil, nil
	}, func(*kind.Object, *apiError) {})
}

// rememberAgent writes what a principal knows of an agent into its Agent. Everything else stays.
func (c *cluster) rememberAgent(who actor, name string, m memory) {
	o := c.st.get(ref(kind.Agents, c.argo, name))
	if o == nil {
		return // it was deleted, or the standby has not received it
	}
	t := decode(o)
	put(t, m.KnownCluster, "status", "clusterUID")
	put(t, tree{"uid": m.KnownStore.UID, "revision": m.KnownStore.Revision, "record": m.KnownStore.Mark.Record, "mark": m.KnownStore.Mark.Number, "untrusted": m.StoreUntrusted}, "status", "store")
	put(t, m.Mark, "status", "mark")
	_, _ = c.st.update(who, kind.Agents, encode(t))
}

func recallAgent(o *kind.Object) memory {
	t := decode(o)
	return memory{KnownCluster: digText(t, "status", "clusterUID"), StoreUntrusted: dig(t, "status", "store", "untrusted") == true, Mark: numberAt(o, "status", "mark"),
		KnownStore: engine.Store{UID: digText(t, "status", "store", "uid"), Revision: numberAt(o, "status", "store", "revision"),
			Mark: engine.HistoryMark{Record: digText(t, "status", "store", "record"), Number: numberAt(o, "status", "store", "mark")}}}
}

func numberAt(o *kind.Object, path ...string) uint64 {
	n, _ := strconv.ParseUint(string(o.Get(path...)), 10, 64)
	return n
}
