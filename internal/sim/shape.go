package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// shape is what a world is like before anything happens in it.
type shape struct {
	kinds       []kind.Kind         // in addition to kind.All()
	sent        func(kind.Ref) bool // whether the hub sends an object of these kinds to managed agents
	agents      []agentShape
	replicas    int
	mapping     kind.Mapping
	policy      reconcile.Policy
	tuning      engine.Tuning
	hubSettings kind.Settings
	bus         bool // the network is a message bus
	loss        int  // percent of its messages that are lost, and that are doubled
	prunes      bool // spokes drop a field that they do not know
	defaults    bool // spokes add a field
	objectLimit int  // bytes that API servers store; 0: any
	statusSize  int  // bytes of a large status
	apps        int  // to begin with, for each agent
	hubs        bool // an active hub and a standby
	hubLease    bool // a Lease decides which of them is active
	steady      bool // no randomness, for scenarios with recorded output

	elsewhere        bool // principals do not keep the content of Applications of agents with sessions elsewhere
	pages            bool // lists of Applications come in pages
	watchByNamespace bool // principals watch Applications in each namespace by itself
}

// kinds returns the replicated kinds.
func (w *world) kinds() []kind.Kind { return append(kind.All(), w.shape.kinds...) }

func (w *world) resources() []kind.Resource { return kind.Resources(w.kinds()) }

// applicationNamespaces returns the namespaces in which principals watch Applications by themselves: those that agents have
// or can get. If there are none, there is one watch.
func (w *world) applicationNamespaces() []string {
	if !w.shape.watchByNamespace {
		return nil
	}
	namespaces := []string{w.hub.argo}
	for _, a := range w.shape.agents {
		namespaces = append(namespaces, a.name, "ns-"+a.name, "other-"+a.name)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

type agentShape struct {
	name         string
	mode         kind.Mode
	hubNamespace string
	argo         string // Argo CD's namespace on the spoke
	skew         engine.Time
	settings     kind.Settings
}

// agentNames are chosen so that carelessly joined names would collide.
var agentNames = []string{"a", "a-b", "west", "b"}

// drawShape draws a world.
func drawShape(rng *rand.Rand) shape {
	chance := func(percent int) bool { return rng.IntN(100) < percent }
	s := shape{replicas: 1 + rng.IntN(3)/2*rng.IntN(3), mapping: kind.ByNamespace, apps: rng.IntN(6)}
	if chance(30) {
		s.mapping = kind.ByDestination
	}
	s.policy = reconcile.Policy{AdoptNever: chance(15), Recreate: chance(15)}
	s.bus, s.loss = chance(30), 1+rng.IntN(15)
	s.prunes, s.defaults = chance(15), chance(15)
	if chance(10) {
		s.objectLimit, s.statusSize = 6000, 5000
		s.hubSettings.ObjectLimit = 5500
	}
	s.tuning = drawTuning(rng)
	s.hubSettings.ShareUnscopedRepositories = chance(30)
	count := 1 + rng.IntN(3)
	if chance(3) {
		s.apps, count = 70+rng.IntN(30), 1 // enough for the digests to split
	}
	for i := range count {
		a := agentShape{name: agentNames[(i+rng.IntN(2))%len(agentNames)], mode: kind.Managed, argo: "argocd"}
		for taken(s.agents, a.name) {
			a.name = agentNames[rng.IntN(len(agentNames))]
		}
		if chance(35) {
			a.mode = kind.Autonomous
		}
		a.hubNamespace = a.name
		if chance(30) {
			a.hubNamespace = "ns-" + a.name
		}
		if s.mapping == kind.ByNamespace && chance(30) {
			a.argo = "gitops"
		}
		if chance(20) {
			a.skew = engine.Time(rng.Int64N(int64(2*hour))) - hour
		}
		if a.mode == kind.Autonomous && chance(40) || s.mapping == kind.ByDestination {
			a.settings.AllowedNamespaces = []string{"team-*"}
		}
		s.agents = append(s.agents, a)
	}
	if s.mapping == kind.ByDestination {
		s.hubSettings.AllowedNamespaces = []string{"team-*"}
		for _, a := range s.agents {
			s.hubSettings.AllowedNamespaces = append(s.hubSettings.AllowedNamespaces, a.hubNamespace)
		}
	}
	return s
}

func taken(agents []agentShape, name string) bool {
	for _, a := range agents {
		if a.name == name {
			return true
		}
	}
	return false
}

// drawTuning makes numbers small now and then, so that limits are met.
func drawTuning(rng *rand.Rand) engine.Tuning {
	var t engine.Tuning
	chance := func(percent int) bool { return rng.IntN(100) < percent }
	if chance(40) {
		t.DeletionBudgetItems = 2
	}
	if chance(20) {
		t.Window = 1500
	}
	if chance(20) {
		t.DeltaItems = 1 + rng.IntN(3)
	}
	if chance(20) {
		t.MaxTombstones = 1 + rng.IntN(3)
	}
	if chance(30) {
		t.Resend = 15 * second
	}
	t.MaxRetryDelay = 60 * second
	return t
}
