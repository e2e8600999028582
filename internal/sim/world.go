package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// world is everything that a seed brings about.
type world struct {
	loop
	seed uint64
	rng  *rand.Rand // chance, apart from what the plan has drawn

	elsewhere *rand.Rand // chance in elsewhere.go, so that other seeds stay as they are
	pages     *rand.Rand // chance of pages of lists
	shape     shape
	mutant    mutant

	hub        *cluster // that users use
	group      *group   // two hubs; nil: there is one
	principals []*process
	spokes     []*spoke
	conns      []*conn
	sessions   uint64
	appsets    []*appset

	argoSettings  bool   // the hub's Argo CD tracks by another label
	instanceLabel string // that label

	selects     bool // the hub has a label selector
	faulty      bool // things may still break
	late        bool // what is written now was asked for long ago, and given up since
	revisions   int  // of specs, counted through the whole world
	names       int
	lastRequest int
	ledger      *ledger

	messages int
	bytes    int
	checks   int
	writes   int // by processes of ours
	foreign  int // by everybody else
	seen     map[string]bool
	shown    map[string]*engine.Held // holds that users were shown, by ID

	trace      func(string)
	violations []string
}

// spoke is an agent: its registration, its cluster, its process, and what is in between.
type spoke struct {
	w        *world
	agent    kind.Agent
	cluster  *cluster
	process  *process
	clones   []*process // others under the same identity
	settings kind.Settings
	ctl      *controller
	refused  bool // suspended, retired or deleted: it is refused
	retired  bool
	deleted  bool // its Agent is
	stranger bool // a clone's cluster: it must never get in

	modeChanged bool // both sides can no longer be compared

	partitionUntil engine.Time
	slowUntil      engine.Time

	follows    *cluster       // with two hubs: the hub of the latest session
	generation uint64         // ... and its generation
	cutUntil   [2]engine.Time // ... and until when each hub cannot be reached
}

// hub is the hub that the agent follows.
func (s *spoke) hub() *cluster {
	if s.follows != nil {
		return s.follows
	}
	return s.w.hub
}

func (s *spoke) managed() bool { return s.agent.Mode == kind.Managed }

// newWorld builds what is there before anything happens.
func newWorld(seed uint64, sh shape) *world {
	w := &world{seed: seed, shape: sh, rng: seeded(seed, 2), elsewhere: seeded(seed, 5), pages: seeded(seed, 8), seen: map[string]bool{}, shown: map[string]*engine.Held{}}
	w.ledger = newLedger(w)
	w.hub = newCluster(w, "hub", "argocd")
	w.hub.hub = true
	for _, a := range sh.agents {
		w.addSpoke(a)
	}
	w.hub.st.rev = 100 + uint64(w.between(0, 1_000_000)) // no two stores count alike
	for i := range sh.replicas {
		w.principals = append(w.principals, &process{w: w, name: fmt.Sprintf("hub-%d", i), cluster: w.hub})
	}
	if sh.hubs {
		w.addHub()
	}
	return w
}

// seeded makes a source of randomness that can be had again.
func seeded(seed, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream)) //nolint:gosec // a seed must replay
}

func (w *world) addSpoke(a agentShape) *spoke {
	s := &spoke{w: w, agent: kind.Agent{Name: a.name, Mode: a.mode, Mapping: w.shape.mapping, HubNamespace: a.hubNamespace,
		Server: "https://proxy:9090?agentName=" + a.name}, settings: a.settings}
	s.cluster = newCluster(w, a.name, a.argo)
	s.cluster.spoke = s
	s.cluster.skew, s.cluster.prunes = a.skew, w.shape.prunes
	s.cluster.st.rev = 100 + uint64(w.between(0, 1_000_000)) + uint64(len(w.spokes))
	s.process = &process{w: w, name: a.name, cluster: s.cluster, spoke: s}
	s.ctl = newController(s.cluster)
	w.spokes = append(w.spokes, s)
	return s
}

// begin installs Argo CD everywhere and starts all processes.
func (w *world) begin() {
	w.install(w.hub)
	if w.group != nil {
		w.group.begin()
	}
	for _, s := range w.spokes {
		w.install(s.cluster)
	}
	for _, p := range w.principals {
		w.after(w.between(0, second), p.start)
	}
	for _, s := range w.spokes {
		w.after(w.between(0, 3*second), s.process.start)
	}
}

// install makes what every Argo CD comes with.
func (w *world) install(c *cluster) {
	c.create("install", kind.AppProjects, project(c.argo, "default", []any{tree{"name": "*", "server": "*", "namespace": "*"}}, []any{"*"}))
	if c == w.hub && !w.shape.steady {
		c.create("install", kind.AppProjects, project(c.argo, "p1", []any{tree{"name": "*", "namespace": "*"}}, []any{"*"}))
	}
	c.create("install", kind.ConfigMaps, tree{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": tree{"namespace": c.argo, "name": "argocd-gpg-keys-cm", "labels": tree{"app.kubernetes.io/part-of": "argocd"}}})
	c.create("install", kind.Secrets, tree{"apiVersion": "v1", "kind": "Secret",
		"metadata": tree{"namespace": c.argo, "name": "argocd-secret"}, "data": tree{"admin.password": "eA=="}})
}

// run lets the world go on until a time.
func (w *world) run(until engine.Time) {
	for len(w.violations) == 0 && w.step(until) {
	}
}

func (w *world) chance(percent int) bool {
	return percent > 0 && !w.shape.steady && w.rng.IntN(100) < percent
}

func (w *world) between(least, most engine.Time) engine.Time {
	if most <= least {
		return least
	}
	if w.shape.steady {
		return (least + most) / 2
	}
	return least + engine.Time(w.rng.Int64N(int64(most-least)))
}

// violate records that something happened which must not.
func (w *world) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	w.tracef("VIOLATION: %s", v)
	w.violations = append(w.violations, v)
}

func (w *world) check(ok bool, format string, args ...any) {
	w.checks++
	if !ok {
		w.violate(format, args...)
	}
}

// nextRevision names the next state of some spec.
func (w *world) nextRevision() string {
	w.revisions++
	return fmt.Sprintf("r%d", w.revisions)
}

// spokeOf finds an agent by name.
func (w *world) spokeOf(name string) *spoke {
	for _, s := range w.spokes {
		if s.agent.Name == name {
			return s
		}
	}
	return nil
}
