package reconcile

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Config configures a Reconciler.
type Config struct {
	Side          kind.Side
	ArgoNamespace string       // of the local cluster
	ClusterUID    string       // of the local cluster
	PrincipalUID  string       // hub
	Generation    uint64       // hub: see engine.HubGeneration. If 0, it was never promoted.
	Predecessor   engine.Store // hub: see engine.Welcome
	Version       string       // release
	Settings      kind.Settings
	Policy        Policy
	Tuning        engine.Tuning
	Kinds         []kind.Kind // if nil, kind.All()

	// ApplicationNamespaces are the namespaces in which Applications are watched, each by itself. If empty, there is one
	// watch for all namespaces.
	ApplicationNamespaces []string

	// FleetCheck (hub) makes agents hold what they find absent until it is known that few of them lose items at once.
	// It needs a FleetRecord and FleetOthers before it decides.
	FleetCheck bool

	// AcceptEvents (hub) makes agents send Events of their Applications.
	AcceptEvents bool

	// PKINamespace is the namespace of the hub's CA and join tokens, which a standby needs. If empty, ArgoNamespace.
	PKINamespace string

	// Mode is that of the agent on a spoke. On a hub it is empty, or kind.Standby for a Reconciler of which all agents are
	// standbys: Kinds must be kind.StandbyKinds() then. A standby is the spoke of the active hub.
	Mode kind.Mode

	// Spoke: the agent's settings, and what it remembers of the hub.
	Mapping         kind.Mapping
	KnownStore      engine.Store
	KnownSeen       []engine.Seen
	StoreUntrusted  bool
	KnownGeneration engine.HubGeneration
	// FormerGenerations are the latest generations of hubs that the agent followed before.
	FormerGenerations []engine.HubGeneration
	// KnownRemovals are replicas that earlier processes have deleted for the hub.
	KnownRemovals []engine.Removal

	OneHub bool // all addresses of the hub must lead to hubs of one identity

	// KnownCommands are the commands that an earlier process started.
	KnownCommands []string
	// KnownDeletions are the deletions that earlier processes counted against the budget of the spoke's policy.
	KnownDeletions []Deletion
	// KnownHub is what earlier processes knew of the hub.
	KnownHub KnownHub
	// AwaitPolicy makes the spoke restore nothing without a session before the first PolicyChanged.
	AwaitPolicy bool
}

// Policy decides conflicts.
type Policy struct {
	AdoptNever bool // an object that we do not own is rejected instead of adopted
	Recreate   bool // a new source UID under an old name: delete and create instead of update

	// ResyncRecreated syncs an Application at once that was deleted on the spoke and restored, so that its resources
	// are restored too.
	ResyncRecreated bool

	// DroppedFields decides about objects with fields that the spoke does not store.
	DroppedFields kind.FieldPolicy
}

// watchedNamespaces returns the namespaces of resources that are watched in several namespaces, each by itself.
func (c Config) watchedNamespaces() map[kind.Resource][]string {
	all := map[kind.Resource][]string{kind.Applications: c.ApplicationNamespaces}
	if c.Mode == kind.Standby && c.PKINamespace != "" && c.PKINamespace != c.ArgoNamespace {
		all[kind.Secrets] = []string{c.ArgoNamespace, c.PKINamespace}
	}
	return all
}

// Reconciler is one side. It is not safe for concurrent use.
type Reconciler struct {
	cfg          Config
	kinds        []kindTraits
	resources    []kind.Resource // of kinds
	cache        *cache
	syncs        map[string]*agentSync
	byNS         map[string][]*agentSync // hub: by the namespace of their Applications
	byURL        map[string][]*agentSync // hub: by the URL of their clusters
	scopes       map[kind.Mode][]scope
	configs      map[kind.Mode][]engine.ScopeConfig // engine configuration of these scopes
	objectQueues map[kind.Ref]*objectQueue
	staleQueues  map[kind.Ref]*objectQueue
	writing      map[uint64]*objectQueue
	writes       uint64
	reads        uint64
	argo         ArgoSettings             // hub
	schemas      map[kind.Resource]string // from Schema; resources without one are unknown
	index        syncIndex
	restores     map[string]*restore             // hub: by namespace
	reduces      bool                            // hub: agents were elsewhere once
	retries      map[kind.Ref]engine.Time        // objects to be reconciled again
	deleted      map[kind.Ref]deletedApplication // deleted Applications that may be restored

	credentialArrivals arrivals          // spoke
	commands           commands          // spoke
	recorded           storeTrust        // spoke: stored for the next process
	memory             *Memory           // spoke: of the writes of this Step; nil if none needs it
	restoredSince      bool              // standby: this cluster was restored since the active hub received its objects
	policy             spokePolicy       // spoke
	repositories       repositoryTracker // hub: repositories and their projects
	placements         placements        // hub: Applications and their projects
	fleet              fleetCheck        // hub

	now   engine.Time
	out   []Effect
	queue []queued
}

type queued struct {
	sync   *agentSync
	effect engine.Effect
}

// kindTraits is a kind with its traits, which are read once.
type kindTraits struct {
	kind.Kind
	traits kind.Traits
}

// Resources returns the resources that a Reconciler reads.
func Resources() []kind.Resource { return kind.Resources(kind.All()) }

// New returns a Reconciler. A spoke has its one agentSync from the start.
func New(cfg Config) *Reconciler {
	kinds := cfg.Kinds
	if kinds == nil {
		kinds = kind.All()
	}
	resources := kind.Resources(kinds)
	n := &Reconciler{cfg: cfg, resources: resources, cache: newCache(resources, cfg.watchedNamespaces()), syncs: map[string]*agentSync{}, byNS: map[string][]*agentSync{}, byURL: map[string][]*agentSync{},
		scopes: map[kind.Mode][]scope{}, configs: map[kind.Mode][]engine.ScopeConfig{}, objectQueues: map[kind.Ref]*objectQueue{}, staleQueues: map[kind.Ref]*objectQueue{},
		writing: map[uint64]*objectQueue{}, retries: map[kind.Ref]engine.Time{}, restores: map[string]*restore{}, deleted: map[kind.Ref]deletedApplication{}, schemas: map[kind.Resource]string{},
		placements:   placements{rules: map[string]*kind.ProjectRules{}, undecided: map[kind.Ref]bool{}},
		repositories: repositoryTracker{deferred: map[kind.Ref]bool{}, reads: map[kind.Ref]pendingRead{}, verifiedAt: map[kind.Ref]uint64{}, rulesChangedAt: map[string]uint64{}},
		index:        syncIndex{opening: map[string]*agentSync{}}, fleet: fleetCheck{on: cfg.FleetCheck && cfg.Side == kind.Hub, agents: map[string]*fleetAgent{}}}
	for _, k := range kinds {
		n.kinds = append(n.kinds, kindTraits{k, k.Traits()})
	}
	if cfg.Side == kind.Spoke {
		n.commands = newCommands(cfg.KnownCommands)
		n.recorded = storeTrust{cfg.KnownStore.UID, cfg.StoreUntrusted}
		n.policy.deletions = withDeletions(slices.Clone(cfg.KnownDeletions))
		n.credentialArrivals = arrivals{at: map[string]engine.Time{}, asked: map[kind.Ref]engine.Time{}}
		n.syncs[""] = newAgentSync(n, Register{
			Agent:      kind.Agent{Mode: cfg.Mode, Mapping: cfg.Mapping},
			KnownStore: cfg.KnownStore, StoreUntrusted: cfg.StoreUntrusted})
		n.index.add(n.syncs[""])
		n.syncs[""].know(cfg.KnownHub)
	}
	return n
}

// Step handles one input and returns the effects in order. They are valid until the next Step.
func (n *Reconciler) Step(now engine.Time, in Input) []Effect {
	n.now = max(n.now, now)
	if n.fleet.beganAt == 0 {
		n.fleet.beganAt = n.now
	}
	clear(n.out)
	n.out = n.out[:0]
	n.placements.again = n.placements.again[:0]
	switch in := in.(type) {
	case Observed:
		if in.Read {
			n.read(in)
			break
		}
		delete(n.repositories.verifiedAt, refOf(in.Resource, in.Object)) // it has changed
		n.observed(in.Resource, in.Object)
		if t := n.cache.tables[in.Resource]; t != nil {
			n.advance(in.Resource, t.parts.of(in.Object.Namespace()), revision(in.Object))
		}
	case Deleted:
		n.gone(in)
	case List:
		n.listed(in)
	case Unreadable:
		n.unreadable(in)
	case Bookmark:
		if t := n.cache.tables[in.Resource]; t != nil {
			n.advance(in.Resource, t.parts.watched(in.Namespace), in.Revision)
		}
	case WriteResult:
		n.wrote(in)
	case Register:
		n.register(in)
	case Unregister:
		n.unregister(in.Agent, "the agent's registration has changed")
	case ArgoSettings:
		n.argoSettings(in)
	case Schema:
		n.schema(in)
	case FromPeer:
		if l := n.syncs[in.Agent]; l != nil {
			l.fromPeer(in)
		}
	case Confirm:
		if l := n.syncs[in.Agent]; l != nil {
			l.step(engine.Confirmed{ID: in.ID})
		}
	case WriteOutage:
		if l := n.syncs[""]; l != nil {
			l.step(engine.SetWriteOutage{Reason: in.Reason})
		}
	case Remembered:
		if l := n.syncs[""]; l != nil {
			l.step(engine.Remembered{Store: in.Store, StoreUntrusted: in.StoreUntrusted, Seen: in.Seen, Generation: in.Generation,
				FormerGenerations: in.FormerGenerations, LaterGenerations: in.LaterGenerations, Removals: in.Removals})
			n.commands.remember(in.Commands)
			n.policy.deletions = withDeletions(n.policy.deletions, in.Deletions...)
		}
	case PolicyChanged:
		n.policyChanged(in)
	case FleetRecord:
		n.fleetRecord(in)
	case FleetOthers:
		n.fleetOthers(in)
	case Elsewhere:
		n.elsewhere(in)
	case ApplicationsRead:
		n.applicationsRead(in)
	case Tick:
		n.tick()
	}
	n.drain()
	n.checkFleet()
	n.rearm()
	n.completeMemory()
	return n.out
}

// gone handles the end of an object, from the watch or from a Read.
func (n *Reconciler) gone(in Deleted) {
	t := n.cache.tables[in.Ref.Resource]
	switch {
	case t == nil:
	case !in.Read:
		p := t.parts.of(in.Ref.Namespace)
		delete(p.gone, in.UID)
		n.removed(in.Ref, in.UID, in.Revision, true)
		n.advance(in.Ref.Resource, p, in.Revision)
	default:
		if in.UID != "" || n.cache.get(in.Ref) == nil { // otherwise it has appeared since
			n.knownGone(in.Ref, in.UID, in.Revision)
		}
		n.answered(in.Ref, in.ID)
		n.retryDeferred()
	}
}

// read handles the result of a Read. If it is no longer awaited, the watch has reported something newer, maybe the
// deletion, and would not report that again.
func (n *Reconciler) read(in Observed) {
	ref := refOf(in.Resource, in.Object)
	d := n.staleQueues[ref]
	if n.answered(ref, in.ID) || d != nil && d.readID == in.ID {
		n.observed(in.Resource, in.Object)
	}
	n.retryDeferred()
}

// drain handles effects of the engine until there are none.
func (n *Reconciler) drain() {
	for len(n.queue) > 0 {
		q := n.queue[0]
		n.queue = n.queue[1:]
		q.sync.handle(q.effect)
	}
	n.queue = nil
}

func (n *Reconciler) emit(e Effect) { n.out = append(n.out, e) }

// Status returns the status of one agent.
func (n *Reconciler) Status(agent string) (engine.Status, bool) {
	l := n.syncs[agent]
	if l == nil {
		return engine.Status{}, false
	}
	return l.peer.Status(), true
}

// register registers an agent on the hub. A change of its identity, or of which objects belong to it, starts a new
// sync, and the agent reconnects.
func (n *Reconciler) register(in Register) {
	if n.cfg.Side != kind.Hub {
		return
	}
	elsewhere := false
	if old := n.syncs[in.Agent.Name]; old != nil {
		if old.env.Agent == in.Agent {
			old.cluster = cmp.Or(in.KnownCluster, old.cluster)
			old.step(engine.Known{Cluster: in.KnownCluster, Store: in.KnownStore, StoreUntrusted: in.StoreUntrusted})
			return
		}
		elsewhere = old.elsewhere
		n.unregister(in.Agent.Name, "the agent's registration has changed")
	}
	l := newAgentSync(n, in)
	if elsewhere && l.inOneNamespace() {
		l.setElsewhere(true)
	}
	n.syncs[in.Agent.Name] = l
	n.index.add(l)
	n.byNS[in.Agent.HubNamespace] = append(n.byNS[in.Agent.HubNamespace], l)
	if url := in.Agent.ClusterURL(); url != "" {
		n.byURL[url] = append(n.byURL[url], l)
	}
	l.notifyAll()
	l.unread = l.hasReduced()
	l.restore(false)
}

func (n *Reconciler) unregister(agent, why string) {
	l := n.syncs[agent]
	if l == nil || n.cfg.Side != kind.Hub {
		return
	}
	delete(n.syncs, agent)
	delete(n.fleet.agents, agent)
	n.index.remove(l)
	dropSync(n.byNS, l.env.Agent.HubNamespace, l)
	dropSync(n.byURL, l.env.Agent.ClusterURL(), l)
	n.emit(Abandon{Agent: agent})
	l.restore(false) // for the agents that remain, or none
	if session, ok := l.peer.Session(); ok {
		n.emit(ToPeer{Agent: agent, Effect: engine.CloseSession{Session: session, Code: engine.ShuttingDown, Message: why}})
	}
}

func dropSync(by map[string][]*agentSync, key string, l *agentSync) {
	by[key] = slices.DeleteFunc(by[key], func(o *agentSync) bool { return o == l })
	if len(by[key]) == 0 {
		delete(by, key)
	}
}

func sortedRefs[V any](m map[kind.Ref]V) []kind.Ref {
	return slices.SortedFunc(maps.Keys(m), func(a, b kind.Ref) int {
		return cmp.Or(strings.Compare(a.Resource.Plural, b.Resource.Plural),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}
