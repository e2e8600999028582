package reconcile

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// agentSync is the sync state of one agent on this side: the engine's Peer, and the Env through which kinds see the
// objects.
type agentSync struct {
	reconciler *Reconciler
	name       string
	peer       *engine.Peer
	env        kind.Env
	scopes     []scope

	cluster      string        // hub: UID of the agent's cluster, if known
	peerVersion  string        // release of the other side, if known
	known        bool          // the Env is complete; before that nothing is published or reported
	fresh        engine.Store  // this side's store when the session began
	openingEvent *engine.Event // the session waits for Begin
	relistAt     engine.Time   // when to request lists instead of waiting for the watches
	listedAt     engine.Time   // when lists were last requested for the agent; 0 if never

	// Notes about single Applications. Most agents have none: see setNote.
	refreshes map[engine.Key]refresh            // hub: which refresh is pending
	refreshed map[engine.Key]string             // spoke: the last refresh that was started
	executed  map[engine.Key][]string           // spoke: IDs of commands that ran, the oldest first
	withoutID map[engine.Key]operationWithoutID // hub: operations without a command ID
	frozen    map[engine.Key]engine.Time        // hub: since when Applications are frozen
	finalized map[engine.Key]string             // hub: UIDs of Applications that the spoke has deleted and whose finalizers are still to be removed
	nonces    uint64
	sessions  uint64 // counts starts and ends of sessions

	met        bool                // this process had a session
	references references          // spoke: what the hub sent last
	unsendable map[itemName]string // why objects of this side cannot be sent
	ending     map[itemName]bool   // spoke: replicas that are terminating because a user deleted their objects on the hub

	refusedProjects map[string][]string // spoke: fields of AppProjects that are not written because the spoke does not store them

	touched   bool        // in this step
	wakeAt    engine.Time // in the timer heap
	heapIndex int         // position in the heap; 0 if not in it

	elsewhere           bool                       // hub: another replica has the session, see Elsewhere
	unread              bool                       // hub: it is not known yet which of its reduced Applications are published
	equalAt             engine.Time                // standby: when all scopes were last in sync and nothing was refused
	proven              map[engine.Key]uint64      // standby: by scope, the revision of the active hub up to which it was in sync in this session
	live                bool                       // the session has begun
	inSync              bool                       // Applications were in sync in this session
	heldApplications    *engine.Held               // replica of Applications: those whose deletion waits for a confirmation; nil if none
	conditionsWrittenAt map[engine.Key]engine.Time // hub: when conditions were last written
}

type scope struct {
	kind kind.Kind
	cfg  engine.ScopeConfig
}

// relistAfter is how long a watch may lag behind what the peer has seen before a list is requested.
const relistAfter = 2 * engine.Second

func newAgentSync(n *Reconciler, reg Register) *agentSync {
	l := &agentSync{reconciler: n, name: reg.Agent.Name, cluster: reg.KnownCluster}
	l.env = kind.Env{
		Side: n.cfg.Side, Agent: reg.Agent, PrincipalUID: n.cfg.PrincipalUID,
		Projection: engine.ProjectionMax, InstanceLabel: n.argo.InstanceLabel, GlobalProjects: n.argo.GlobalProjects, Settings: n.cfg.Settings,
		Find: n.cache.get, RefreshNonce: l.refreshNonce, PKINamespace: n.cfg.PKINamespace,
	}
	if n.cfg.Side == kind.Hub {
		l.env.HubArgoNamespace, l.env.Rules, l.env.Pushing = n.cfg.ArgoNamespace, n.projectRules, n.cache.pushing
	} else {
		l.env.SpokeArgoNamespace, l.env.RefusesOperation = n.cfg.ArgoNamespace, n.policy.refusesOperation
		l.env.ProjectFields = l.droppedProjectFields
	}
	l.scopes = n.scopesOf(reg.Agent.Mode)
	cfg := engine.Config{
		Hub: n.cfg.Side == kind.Hub, Mode: string(reg.Agent.Mode), Mapping: string(reg.Agent.Mapping),
		KnownCluster: reg.KnownCluster, KnownStore: reg.KnownStore, KnownSeen: n.cfg.KnownSeen, StoreUntrusted: reg.StoreUntrusted, Tuning: n.cfg.Tuning,
		KnownGeneration: n.cfg.KnownGeneration, FormerGenerations: n.cfg.FormerGenerations, KnownRemovals: n.cfg.KnownRemovals, OneHub: n.cfg.OneHub,
		Welcome: engine.Welcome{Agent: reg.Agent.Name, HubNamespace: reg.Agent.HubNamespace, ServerURL: reg.Agent.Server,
			ArgoNamespace: n.cfg.ArgoNamespace, PrincipalUID: n.cfg.PrincipalUID, Version: n.cfg.Version, InstanceLabel: n.argo.InstanceLabel,
			HubGeneration: n.cfg.Generation, Predecessor: n.cfg.Predecessor},
	}
	if !n.isStandby() {
		cfg.Welcome.Predecessor.Mark = engine.HistoryMark{} // agents do not need it
	}
	if !cfg.Hub {
		cfg.Hello = &engine.Hello{ClusterUID: n.cfg.ClusterUID, Namespace: n.cfg.ArgoNamespace, Version: n.cfg.Version}
	}
	limits := reg.Agent.Limits.Or(kind.Limits{Items: n.cfg.Tuning.MaxItems, Bytes: n.cfg.Tuning.MaxBytes})
	cfg.Tuning.MaxItems, cfg.Tuning.MaxBytes = limits.Items, limits.Bytes
	cfg.Scopes = n.configs[reg.Agent.Mode]
	if reg.Agent.Mode == kind.Managed {
		cfg.Mappings = []string{string(kind.ByNamespace), string(kind.ByDestination)}
	}
	if n.fleet.on {
		cfg.Welcome.Capabilities = []string{engine.FleetHold}
	}
	if n.cfg.AcceptEvents {
		cfg.Welcome.Capabilities = append(cfg.Welcome.Capabilities, engine.AcceptsEvents)
	}
	if reg.Agent.Children {
		cfg.Welcome.Capabilities = append(cfg.Welcome.Capabilities, kind.ChildCapability)
	}
	l.peer = engine.NewPeer(cfg, l)
	return l
}

// setNote stores a value in a map that is created on first use.
func setNote[K comparable, V any](in *map[K]V, key K, value V) {
	if *in == nil {
		*in = map[K]V{}
	}
	(*in)[key] = value
}

func (n *Reconciler) scopesOf(mode kind.Mode) []scope {
	if n.scopes[mode] == nil {
		scopes := scopesOf(n.kinds, n.cfg.Side, mode)
		configs := make([]engine.ScopeConfig, 0, len(scopes))
		for _, s := range scopes {
			configs = append(configs, s.cfg)
		}
		n.scopes[mode], n.configs[mode] = scopes, configs
	}
	return n.scopes[mode]
}

// scopesOf returns the scopes of a mode in the order in which kinds depend on each other, with this side's role in
// each.
func scopesOf(kinds []kindTraits, side kind.Side, mode kind.Mode) []scope {
	var out []scope
	for _, k := range kinds {
		t := k.traits
		if !t.In(mode) {
			continue
		}
		s := scope{kind: k.Kind, cfg: engine.ScopeConfig{Name: k.Scope(), Style: t.Style, NoBudget: t.NoBudget, DependsOn: t.DependsOn, Announced: t.Announced}}
		if t.OwnerIn(mode) != side {
			s.cfg.Role = engine.Replica
		}
		out = append(out, s)
	}
	return out
}

func (l *agentSync) scope(name string) *scope {
	for i := range l.scopes {
		if l.scopes[i].cfg.Name == name {
			return &l.scopes[i]
		}
	}
	return nil
}

// step passes an input to the Peer and queues its effects.
func (l *agentSync) step(in engine.Input) {
	l.touch()
	for _, e := range l.peer.Step(l.reconciler.now, in) {
		l.reconciler.queue = append(l.reconciler.queue, queued{l, e})
	}
}

func (l *agentSync) fromPeer(in FromPeer) {
	if c, ok := in.Input.(engine.Connected); ok {
		l.fresh = c.Store
		l.comeBack(true)
		l.env.ClockSkew = time.Duration(in.ClockSkew) * time.Millisecond
	}
	l.step(in.Input)
}

func (l *agentSync) handle(e engine.Effect) {
	if l.reconciler.syncs[l.name] != l {
		return // unregistered since
	}
	switch e := e.(type) {
	case engine.Send, engine.CloseSession:
		l.reconciler.emit(ToPeer{Agent: l.name, Effect: e})
	case engine.Apply:
		l.apply(e)
	case engine.Remove:
		l.remove(e)
	case engine.RecordAlias:
		l.recordAlias(e)
	case engine.Event:
		l.handleEvent(e)
		l.reconciler.emit(Report{Agent: l.name, Event: e})
	}
}

func (l *agentSync) handleEvent(f engine.Event) {
	l.notifyFleetCheck(f)
	switch f.Type {
	case engine.Opened:
		l.opened(f)
	case engine.Closed:
		l.setOpening(nil)
		l.setLive(false)
		l.sessionEnded()
	case engine.InSync:
		l.recordProven(f)
		if f.Scope == kind.ApplicationScope {
			l.onInSync()
		}
	case engine.HoldStarted, engine.HoldEnded:
		if f.Scope == kind.ApplicationScope {
			l.heldChanged(f)
		}
	case engine.Rejected, engine.Accepted, engine.Finalized:
		if l.reconciler.cfg.Side == kind.Hub {
			l.handleHubEvent(f)
		}
	}
}

// opened completes the Env with what the peer reports. If that has changed, everything is published and reported again.
func (l *agentSync) opened(f engine.Event) {
	w := l.env
	if f.Hello != nil {
		w.SpokeArgoNamespace = f.Hello.Namespace
		l.cluster, l.peerVersion = f.Hello.ClusterUID, f.Hello.Version
	}
	if f.Welcome != nil {
		l.peerVersion = f.Welcome.Version
		w.Agent.Name, w.Agent.HubNamespace, w.Agent.Server = f.Welcome.Agent, f.Welcome.HubNamespace, f.Welcome.ServerURL
		if w.Agent.Mode == kind.Managed {
			w.Agent.Mapping = kind.Mapping(f.Welcome.Mapping)
			w.Agent.Children = slices.Contains(f.Welcome.Capabilities, kind.ChildCapability)
		}
		w.HubArgoNamespace, w.PrincipalUID, w.InstanceLabel = f.Welcome.ArgoNamespace, f.Welcome.PrincipalUID, f.Welcome.InstanceLabel
		w.Received = l.receivedBy(f.Welcome)
	}
	w.Projection = l.peer.Status().Projection
	changed := w.Agent != l.env.Agent || w.SpokeArgoNamespace != l.env.SpokeArgoNamespace ||
		w.HubArgoNamespace != l.env.HubArgoNamespace || w.PrincipalUID != l.env.PrincipalUID || w.Projection != l.env.Projection ||
		w.InstanceLabel != l.env.InstanceLabel || w.Received != l.env.Received
	if changed && l.known {
		l.withdrawAll()
	}
	l.env = w
	l.met = true
	l.setOpening(&f)
	l.comeBack(true)
	if !l.known {
		l.notifyAll()
	}
	l.recheck()
	l.tryBegin()
}

func (l *agentSync) setOpening(f *engine.Event) {
	l.touch()
	if f != nil {
		l.reconciler.index.opening[l.name] = l
	} else {
		delete(l.reconciler.index.opening, l.name)
	}
	l.openingEvent, l.relistAt = f, l.reconciler.now+relistAfter
}

// tryBegin starts the comparison as soon as this side's view is at least as new as what the peer has seen. A store that
// regressed never gets there. The peer then holds its deletions, and the session begins.
func (l *agentSync) tryBegin() {
	if l.openingEvent == nil {
		return
	}
	l.touch()
	if l.hasReduced() || l.scope(kind.RepositoryScope) != nil && l.reconciler.lacksRepositories() {
		l.relistAt = l.reconciler.now + relistAfter
		return
	}
	var seen []engine.Seen
	if l.openingEvent.Hello != nil {
		seen = l.openingEvent.Hello.Seen
	} else {
		seen = l.openingEvent.Welcome.Seen
	}
	if late := l.staleResources(seen); len(late) > 0 {
		if l.reconciler.now >= l.relistAt {
			l.relistAt = l.askForLists(late)
		}
		return
	}
	l.setOpening(nil)
	l.setLive(true)
	l.step(engine.Begin{})
}

// staleResources returns the resources of which the peer has seen more than this side.
func (l *agentSync) staleResources(seen []engine.Seen) []kind.Resource {
	var out []kind.Resource
	for _, s := range seen {
		sc := l.scope(s.Scope)
		if sc == nil || sc.cfg.Role != engine.Owner || s.Revision > l.fresh.Revision {
			continue
		}
		for _, r := range reads(sc.kind) {
			behind := func(p *part) bool { return p.complete && p.frontier < s.Revision }
			if slices.ContainsFunc(l.parts(r), behind) && !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// Content implements engine.Source.
func (l *agentSync) Content(scope string, key engine.Key) (content, extra []byte, ok bool) {
	s := l.scope(scope)
	o := l.object(s, key)
	if o == nil || !s.kind.Matches(o) || l.reconciler.repositories.deferred[refOf(s.kind.Resource(), o)] {
		return nil, nil, false
	}
	item, ok := l.publish(s, o)
	if !ok || item.Key != key || item.Content == nil {
		return nil, nil, false
	}
	return item.Content, item.Extra, true
}

// Revision implements engine.Source.
func (l *agentSync) Revision(scope string) uint64 {
	if l.isStandby() { // the root of this scope contains everything up to here
		least, _ := l.View(scope)
		return least
	}
	newest := uint64(0)
	for _, r := range reads(l.scope(scope).kind) {
		for _, p := range l.parts(r) {
			newest = max(newest, p.newest)
		}
	}
	return newest
}

// SourceRevision implements engine.Source. The project of a repository counts too, because it decides who gets the
// repository.
func (l *agentSync) SourceRevision(scope string, key engine.Key) uint64 {
	o := l.object(l.scope(scope), key)
	if o == nil {
		return 0
	}
	rev := revision(o)
	if scope == kind.RepositoryScope {
		if p := l.reconciler.cache.get(l.reconciler.projectRef(kind.RepositoryProject(o))); p != nil {
			rev = max(rev, revision(p))
		}
	}
	return rev
}

// object returns the local object of a key, or nil.
func (l *agentSync) object(s *scope, key engine.Key) *kind.Object {
	ref, err := s.kind.Target(key, &l.env)
	if err != nil {
		return nil
	}
	return l.reconciler.cache.get(ref)
}

// View implements engine.Source. The result of an own write does not count: it is newer than changes of other objects
// that the watch has not shown yet.
func (l *agentSync) View(scope string) (least, most uint64) {
	least = math.MaxUint64
	for _, r := range reads(l.scope(scope).kind) {
		for _, p := range l.parts(r) {
			least, most = min(least, p.frontier), max(most, p.frontier)
		}
	}
	return least, most
}

// reads returns the resources that decide what is in a scope: that of its objects and, for repositories, that of their
// projects. Without projects, repositories would seem to be gone.
func reads(k kind.Kind) []kind.Resource {
	return append([]kind.Resource{k.Resource()}, k.Traits().Reads...)
}

func sortedObjects(m map[objectName]*kind.Object) []*kind.Object {
	return slices.SortedFunc(maps.Values(m), compareNames)
}
