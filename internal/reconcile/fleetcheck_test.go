package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// fleetCheckHarness is a fleetCheck with agents in session, of which all were compared.
type fleetCheckHarness struct {
	*fleetCheck
	t          *testing.T
	now        engine.Time
	registered int
	confirmed  map[string]int // holds that went ahead, by agent
	recorded   *RecordFleetHold
}

const beginning = 1000 * engine.Second

func newFleetCheckHarness(t *testing.T, agents int) *fleetCheckHarness {
	t.Helper()
	c := &fleetCheckHarness{fleetCheck: &fleetCheck{on: true, recordRead: true, othersRead: true, beganAt: beginning, agents: map[string]*fleetAgent{}}, t: t, now: beginning, registered: agents, confirmed: map[string]int{}}
	for i := range agents {
		c.compares(i)
	}
	return c
}

func fleetName(i int) string { return fmt.Sprintf("w%03d", i) }

func (c *fleetCheckHarness) compares(i int) {
	c.handleEvent(fleetName(i), engine.Event{Type: engine.Opened}, c.now)
	c.handleEvent(fleetName(i), engine.Event{Type: engine.InitialSyncDone}, c.now)
}

func (c *fleetCheckHarness) holds(i int, cause engine.Cause) {
	scope := kind.ApplicationScope
	c.handleEvent(fleetName(i), engine.Event{Type: engine.HoldStarted, Scope: scope, Held: &engine.Held{Scope: scope, ID: "id-" + fleetName(i), Count: 2, Cause: cause, Sample: []engine.Key{{Name: "a"}}}}, c.now)
}

func (c *fleetCheckHarness) release(i int) {
	c.handleEvent(fleetName(i), engine.Event{Type: engine.HoldEnded, Scope: kind.ApplicationScope, Held: &engine.Held{}}, c.now)
}

// wait lets time pass. What is confirmed is no longer held.
func (c *fleetCheckHarness) wait(d engine.Time) {
	for end := c.now + d; c.now < end; c.now += engine.Second {
		if c.nextAt == 0 || c.now < c.nextAt {
			continue
		}
		confirmed, record := c.decide(c.now, c.registered, "s1")
		if record != nil {
			c.recorded = record
		}
		for _, one := range confirmed {
			c.confirmed[one.agent]++
			delete(c.agents[one.agent].holds, kind.ApplicationScope)
		}
	}
}

func (c *fleetCheckHarness) wants(confirmed int, held bool) {
	c.t.Helper()
	if len(c.confirmed) != confirmed || (c.record.ID != "") != held {
		c.t.Errorf("%d agents were confirmed, hold %q; want %d, %v", len(c.confirmed), c.record.ID, confirmed, held)
	}
}

func TestFleetCheck_ConfirmsFewAndHoldsMany(t *testing.T) {
	for _, c := range []struct {
		name      string
		agents    int
		affected  int
		cause     engine.Cause
		confirmed int
		held      bool
	}{
		{"one of one", 1, 1, engine.CauseFleet, 1, false},
		{"all of five", 5, 5, engine.CauseFleet, 5, false},
		{"six of sixty", 60, 6, engine.CauseFleet, 6, false},
		{"six of fifty-nine", 59, 6, engine.CauseFleet, 0, true},
		{"all of a thousand", 1000, 1000, engine.CauseFleet, 0, true},
		{"few by their own budgets", 100, 5, engine.CauseHalf, 0, false},
		{"many by their own budgets", 50, 50, engine.CauseLast, 0, true},
		{"holds of an untrusted store are confirmed alone", 50, 50, engine.CauseStore, 0, false},
		{"an older agent reports no cause", 50, 50, "", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleetCheckHarness(t, c.agents)
			for i := range c.affected {
				f.holds(i, c.cause)
			}
			f.wait(fleetObserve)
			f.wants(0, false) // it observes
			f.wait(2 * fleetInterval)
			f.wants(c.confirmed, c.held)
			if !c.held {
				return
			}
			got := f.recorded
			if got.Totals.Affected != c.affected || got.Totals.Items != 2*c.affected || got.Totals.Compared != c.agents || len(got.Sample) == 0 || len(got.Sample) > fleetSample || !strings.HasPrefix(got.Record.ID, "fleet-") {
				t.Errorf("recorded: %+v", got)
			}
		})
	}
}

func TestFleetCheck_WaitsForUnknownState(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*fleetCheckHarness)
		end  func(*fleetCheckHarness) // of what it waits for; nil: it takes as long as it may
		held bool
	}{
		{"the record is not read", func(f *fleetCheckHarness) { f.recordRead = false }, func(f *fleetCheckHarness) { f.recordRead = true }, false},
		{"other replicas are not known", func(f *fleetCheckHarness) { f.othersRead = false }, func(f *fleetCheckHarness) { f.othersRead = true }, false},
		{"another replica has the rest", func(f *fleetCheckHarness) { f.othersRead = false }, func(f *fleetCheckHarness) {
			f.othersRead, f.others = true, FleetOthers{FleetTotals: FleetTotals{Compared: 8, Affected: 4, Items: 8}}
		}, true},
		{"a replica with other settings runs", func(f *fleetCheckHarness) { f.others.Differ = true }, func(f *fleetCheckHarness) { f.others.Differ = false }, false},
		{"agents are being compared", func(f *fleetCheckHarness) { f.handleEvent("late", engine.Event{Type: engine.Opened}, f.now) }, func(f *fleetCheckHarness) { f.handleEvent("late", engine.Event{Type: engine.InitialSyncDone}, f.now) }, false},
		{"an agent is never compared", func(f *fleetCheckHarness) { f.handleEvent("late", engine.Event{Type: engine.Opened}, f.now) }, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleetCheckHarness(t, 8)
			c.make(f)
			for i := range 4 {
				f.holds(i, engine.CauseFleet)
			}
			f.wait(fleetMaxWait - 60*engine.Second)
			f.wants(0, false)
			if c.end != nil {
				c.end(f)
				f.wait(fleetObserve + 2*fleetInterval)
			} else {
				f.wait(70 * engine.Second)
			}
			if c.held {
				f.wants(0, true)
			} else {
				f.wants(4, false)
			}
		})
	}
}

// After a start the agents come back one by one. The first of them must not lose
// anything because the others are not back yet.
func TestFleetCheck_WaitsForAgentsAfterStart(t *testing.T) {
	f := newFleetCheckHarness(t, 0)
	f.registered = 40
	for i := range 12 {
		f.compares(i)
		f.holds(i, engine.CauseFleet)
		f.wait(20 * engine.Second)
	}
	f.wants(0, false)
	f.wait(fleetObserve + 2*fleetInterval)
	f.wants(0, true)

	f = newFleetCheckHarness(t, 0) // a few come back in time, the others never do
	f.registered = 40
	for i := range 3 {
		f.compares(i)
		f.holds(i, engine.CauseFleet)
	}
	f.wait(fleetStartWait - engine.Second)
	f.wants(0, false)
	f.wait(2 * fleetInterval)
	f.wants(3, false)
}

// A loss must not empty the fleet a few agents at a time.
func TestFleetCheck_CountsConfirmedRemovals(t *testing.T) {
	f := newFleetCheckHarness(t, 20)
	for i := range 5 {
		f.holds(i, engine.CauseFleet)
	}
	f.wait(60 * engine.Second)
	f.wants(5, false)
	f.holds(5, engine.CauseFleet)
	f.wait(60 * engine.Second)
	f.wants(5, true)

	f = newFleetCheckHarness(t, 20)
	for i := range 5 {
		f.holds(i, engine.CauseFleet)
	}
	f.wait(60 * engine.Second)
	f.wait(fleetWindow)
	f.holds(5, engine.CauseFleet)
	f.wait(60 * engine.Second)
	f.wants(6, false)
}

func TestFleetHold_EndsWhenReleasedOrConfirmed(t *testing.T) {
	hold := func(t *testing.T) *fleetCheckHarness {
		t.Helper()
		f := newFleetCheckHarness(t, 10)
		for i := range 9 {
			f.holds(i, []engine.Cause{engine.CauseFleet, engine.CauseHalf}[i%2])
		}
		f.wait(60 * engine.Second)
		f.wants(0, true)
		return f
	}
	t.Run("corrected", func(t *testing.T) {
		f := hold(t)
		for i := range 8 {
			f.release(i)
		}
		f.wait(60 * engine.Second)
		f.wants(0, true) // one is left
		f.release(8)
		f.wait(fleetObserve + 2*fleetInterval)
		f.wants(0, false)
		if !f.recorded.Over {
			t.Error("it is not recorded that it is over")
		}
	})
	t.Run("confirmed", func(t *testing.T) {
		f := hold(t)
		f.record.Confirmed = true
		f.wait(10 * engine.Second)
		f.wants(9, true)
		f.compares(9) // one comes back later
		f.holds(9, engine.CauseLast)
		f.wait(10 * engine.Second)
		f.wants(10, true)
		clear(f.confirmed)
		f.holds(3, engine.CauseHalf) // another loss of an agent that was there
		f.wait(60 * engine.Second)
		f.wants(0, true)
		f.wait(fleetWindow)
		f.wants(0, false)
	})
	t.Run("confirmed, and then other settings", func(t *testing.T) {
		f := hold(t)
		f.record = FleetRecord{ID: f.record.ID, Confirmed: true, Settings: "s0"}
		f.wait(60 * engine.Second)
		if len(f.confirmed) != 0 || f.record.Settings != "s1" || f.record.Confirmed {
			t.Errorf("%d agents were confirmed, record %+v", len(f.confirmed), f.record)
		}
	})
	t.Run("restarted while held", func(t *testing.T) {
		was := hold(t).record
		f := newFleetCheckHarness(t, 10)
		f.record = was
		f.holds(0, engine.CauseFleet)
		f.wait(fleetMaxWait + 60*engine.Second)
		f.wants(0, true) // judged by the same decision
	})
	t.Run("a confirmation that was lost is sent again", func(t *testing.T) {
		f := hold(t)
		f.record.Confirmed = true
		for range 2 {
			confirmed, _ := f.decide(f.now, 10, "s1")
			if len(confirmed) != 9 {
				t.Fatalf("%d are confirmed", len(confirmed))
			}
		}
	})
}

// fleetHarness is a hub with many spokes.
type fleetHarness struct {
	t        *testing.T
	now      engine.Time
	hub      *Reconciler
	store    *cluster
	spokes   map[string]*spokeOf
	names    []string
	session  uint64
	recorded []RecordFleetHold
	sent     int // messages from agents that are about holds
}

type spokeOf struct {
	node    *Reconciler
	store   *cluster
	session uint64
	toHub   []engine.Message
	toSpoke []engine.Message
}

func newFleetHarness(t *testing.T, agents, apps int) *fleetHarness {
	t.Helper()
	h := &fleetHarness{t: t, now: 1_000_000, store: &cluster{t: t, objects: map[kind.Ref]*kind.Object{}, rev: 1}, spokes: map[string]*spokeOf{}}
	// Selected by every selector that these tests use.
	h.store.put(projectRef("default"), []byte(strings.Replace(openProject("default"), `"metadata":{`, `"metadata":{"labels":{"n":"none"},`, 1)), true)
	for i := range agents {
		name := fleetName(i)
		h.names = append(h.names, name)
		s := &spokeOf{store: &cluster{t: t, objects: map[kind.Ref]*kind.Object{}, rev: 1}}
		h.spokes[name] = s
		s.node = New(Config{Side: kind.Spoke, ArgoNamespace: "argocd", ClusterUID: "uid-" + name, Mode: kind.Managed, Mapping: kind.ByNamespace})
		for j := range apps {
			body := strings.Replace(app(name, fmt.Sprintf("a%d", j), "default", "v1"), `"metadata":{`, fmt.Sprintf(`"metadata":{"labels":{"n":"%d"},`, j), 1)
			h.store.put(ref(name, fmt.Sprintf("a%d", j)), []byte(strings.Replace(body, `"name":"w1"`, `"name":"`+name+`"`, 1)), true)
		}
		for _, r := range Resources() {
			h.stepSpoke(name, List{Resource: r, Revision: 1})
		}
	}
	h.start(kind.Settings{})
	return h
}

// start begins a new process of the hub, with these settings.
func (h *fleetHarness) start(settings kind.Settings) {
	h.hub = New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub-uid", PrincipalUID: "principal-1", Settings: settings, FleetCheck: true})
	for _, name := range h.names {
		h.stepHub(Register{Agent: kind.Agent{Name: name, Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: name, Server: "https://proxy?agentName=" + name}})
	}
	for _, r := range Resources() {
		h.list(r)
	}
	h.stepHub(FleetRecord{})
	h.stepHub(FleetOthers{})
	for _, name := range h.names {
		s := h.spokes[name]
		h.session++
		if s.session != 0 {
			h.stepSpoke(name, FromPeer{Input: engine.Disconnected{Session: s.session}})
		}
		s.session, s.toHub, s.toSpoke = h.session, nil, nil
		h.stepHub(FromPeer{Agent: name, Input: engine.Connected{Session: h.session, Store: engine.Store{UID: "h", Revision: uint64(h.store.rev)}}})
		h.stepSpoke(name, FromPeer{Input: engine.Connected{Session: h.session, Epoch: engine.Epoch{Incarnation: h.session}, Store: engine.Store{UID: "s", Revision: 1}}})
	}
	h.settle()
}

func (h *fleetHarness) list(r kind.Resource) {
	in := List{Resource: r, Revision: uint64(h.store.rev)}
	for ref, o := range h.store.objects {
		if ref.Resource == r {
			in.Objects = append(in.Objects, o)
		}
	}
	h.stepHub(in)
}

func (h *fleetHarness) stepHub(in Input) {
	for _, e := range append([]Effect(nil), h.hub.Step(h.now, in)...) {
		switch e := e.(type) {
		case ToPeer:
			if s, ok := e.Effect.(engine.Send); ok {
				spoke := h.spokes[e.Agent]
				spoke.toSpoke = append(spoke.toSpoke, s.Message)
			}
		case Relist:
			h.list(e.Resource)
		case RecordFleetHold:
			h.recorded = append(h.recorded, e)
		case Write:
			h.stepHub(WriteResult{ID: e.ID, Object: h.store.put(e.Ref, e.Object.Raw(), false)})
		}
	}
}

func (h *fleetHarness) stepSpoke(name string, in Input) {
	s := h.spokes[name]
	for _, e := range append([]Effect(nil), s.node.Step(h.now, in)...) {
		switch e := e.(type) {
		case ToPeer:
			if m, ok := e.Effect.(engine.Send); ok {
				if _, about := m.Message.(engine.Held); about {
					h.sent++
				}
				s.toHub = append(s.toHub, m.Message)
			}
		case Write:
			if e.Verb == Delete {
				local := s.store.objects[e.Ref]
				delete(s.store.objects, e.Ref)
				h.stepSpoke(name, WriteResult{ID: e.ID})
				h.stepSpoke(name, Deleted{Ref: e.Ref, UID: local.UID()})
				continue
			}
			h.stepSpoke(name, WriteResult{ID: e.ID, Object: s.store.put(e.Ref, e.Object.Raw(), e.Verb == Create)})
		}
	}
}

func (h *fleetHarness) settle() {
	for moved := true; moved; {
		moved = false
		for _, name := range h.names {
			s := h.spokes[name]
			for len(s.toHub)+len(s.toSpoke) > 0 {
				moved = true
				hub, spoke := s.toHub, s.toSpoke
				s.toHub, s.toSpoke = nil, nil
				for _, m := range hub {
					h.stepHub(FromPeer{Agent: name, Input: engine.Received{Session: s.session, Message: m}})
				}
				for _, m := range spoke {
					h.stepSpoke(name, FromPeer{Input: engine.Received{Session: s.session, Message: m}})
				}
			}
		}
	}
}

func (h *fleetHarness) wait(d engine.Time) {
	for end := h.now + d; h.now < end; {
		h.now += 5 * engine.Second
		h.stepHub(Tick{})
		for _, name := range h.names {
			h.stepSpoke(name, Tick{})
		}
		h.settle()
	}
}

// deleteApp is a user who deletes an Application on the hub.
func (h *fleetHarness) deleteApp(name, app string, watched bool) {
	r := ref(name, app)
	o := h.store.objects[r]
	delete(h.store.objects, r)
	h.store.rev++
	if watched {
		h.stepHub(Deleted{Ref: r, UID: o.UID()})
		h.settle()
	}
}

// apps counts the Applications on all spokes.
func (h *fleetHarness) apps() int {
	n := 0
	for _, s := range h.spokes {
		for ref := range s.store.objects {
			if ref.Resource == kind.Applications {
				n++
			}
		}
	}
	return n
}

func selecting(t *testing.T, text string) kind.Settings {
	t.Helper()
	selector, err := kind.ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return kind.Settings{LabelSelector: selector}
}

func TestFleetHold_WrongSelectorNeedsOneConfirmation(t *testing.T) {
	for _, c := range []struct {
		name, selector string
		apps, left     int // on each agent
	}{
		{"within the budget of each", "n!=0", 4, 3},
		{"all that agents have", "n=none", 4, 0},
		{"the only Application", "n=none", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			const agents = 12
			all := agents * c.apps
			h := newFleetHarness(t, agents, c.apps)
			h.wait(70 * engine.Second)
			if h.apps() != all {
				t.Fatalf("%d Applications on the spokes", h.apps())
			}
			h.start(selecting(t, c.selector))
			h.wait(1800 * engine.Second)
			if h.apps() != all || len(h.recorded) == 0 {
				t.Fatalf("%d of %d Applications are left, recorded %+v", h.apps(), all, h.recorded)
			}
			first := h.recorded[0]
			if lost := agents * (c.apps - c.left); first.Totals.Affected != agents || first.Totals.Items != lost {
				t.Errorf("recorded %+v", first)
			}
			for _, r := range h.recorded {
				if r.Record != first.Record {
					t.Errorf("recorded %+v after %+v", r, first)
				}
			}

			h.recorded = nil
			h.start(kind.Settings{}) // corrected; nothing was deleted
			h.stepHub(first.Record)
			h.wait(120 * engine.Second)
			if h.apps() != all || h.hub.Fleet().Items != 0 || len(h.recorded) != 1 || !h.recorded[0].Over {
				t.Fatalf("%d of %d Applications, recorded %+v", h.apps(), all, h.recorded)
			}

			h.recorded = nil
			h.start(selecting(t, c.selector))
			h.wait(120 * engine.Second)
			again := h.recorded[0].Record
			again.Confirmed = true
			h.stepHub(again)
			h.settle()
			h.wait(60 * engine.Second)
			if h.apps() != agents*c.left {
				t.Errorf("%d Applications after the confirmation", h.apps())
			}
		})
	}
}

func TestFleetCheck_IgnoresAutonomousAgents(t *testing.T) {
	for mode, want := range map[kind.Mode]int{kind.Managed: 1, kind.Autonomous: 0} {
		p := newPair(t, mode)
		p.sides[kind.Hub].fleet.on = true
		p.connect()
		p.advanceTime(10 * engine.Second)
		if got := p.sides[kind.Hub].Fleet(); got.Compared != want || got.Opening != 0 {
			t.Errorf("%s: %+v", mode, got)
		}
	}
}

func TestFleetCheck_OrdinaryRestartSendsNothing(t *testing.T) {
	h := newFleetHarness(t, 12, 2)
	h.wait(70 * engine.Second)
	h.start(kind.Settings{})
	h.wait(300 * engine.Second)
	if h.sent != 0 || h.apps() != 24 || h.hub.fleet.nextAt != 0 {
		t.Errorf("%d messages about holds, %d Applications, next decision at %d", h.sent, h.apps(), h.hub.fleet.nextAt)
	}
}

func TestFleetCheck_AllowsFewAbsencesAndExplicitDeletions(t *testing.T) {
	h := newFleetHarness(t, 12, 4)
	h.wait(70 * engine.Second)
	for i := range 3 {
		h.deleteApp(fleetName(i), "a0", false) // while the principal is down
	}
	h.start(kind.Settings{})
	if h.apps() != 48 {
		t.Fatalf("%d Applications: what is absent waits for the check", h.apps())
	}
	for i := range 12 {
		h.deleteApp(fleetName(i), "a1", true)
	}
	if h.apps() != 36 {
		t.Fatalf("%d Applications: explicit deletions do not wait", h.apps())
	}
	h.wait(45 * engine.Second)
	if h.apps() != 33 || len(h.recorded) != 0 {
		t.Errorf("%d Applications after the check, recorded %+v", h.apps(), h.recorded)
	}
}

// Another namespace for one Agent removes what came from the old one: by absence,
// within that agent's budget.
func TestFleetCheck_ChangedNamespaceIsHeldByBudget(t *testing.T) {
	h := newFleetHarness(t, 3, 3)
	h.wait(70 * engine.Second)
	h.stepHub(Register{Agent: kind.Agent{Name: fleetName(0), Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "empty", Server: "https://proxy?agentName=" + fleetName(0)}})
	s := h.spokes[fleetName(0)]
	h.session++
	h.stepSpoke(fleetName(0), FromPeer{Input: engine.Disconnected{Session: s.session}})
	s.session, s.toHub, s.toSpoke = h.session, nil, nil
	h.stepHub(FromPeer{Agent: fleetName(0), Input: engine.Connected{Session: h.session, Store: engine.Store{UID: "h", Revision: uint64(h.store.rev)}}})
	h.stepSpoke(fleetName(0), FromPeer{Input: engine.Connected{Session: h.session, Epoch: engine.Epoch{Incarnation: h.session}, Store: engine.Store{UID: "s", Revision: 1}}})
	h.settle()
	h.wait(1200 * engine.Second)
	status, _ := h.hub.Status(fleetName(0))
	if h.apps() != 9 || len(status.RemoteHolds) != 1 || status.RemoteHolds[0].Cause != engine.CauseLast || len(h.recorded) != 0 {
		t.Errorf("%d Applications, held %+v, recorded %+v", h.apps(), status.RemoteHolds, h.recorded)
	}
}

// A change of Argo CD's settings at run time takes projects from all agents: none
// of them was edited, so it is no deletion by a user.
func TestFleetHold_ChangedGlobalProjects(t *testing.T) {
	const agents = 8
	h := newFleetHarness(t, agents, 0)
	put := func(name, body string) {
		o := h.store.put(projectRef(name), []byte(body), true)
		h.stepHub(Observed{Resource: kind.AppProjects, Object: o})
		h.settle()
	}
	settings := ArgoSettings{GlobalProjects: []kind.GlobalProject{{Name: "global", Selector: kind.LabelSelector{Selector: labels.Everything()}}}}
	h.stepHub(settings)
	put("global", project("global", `{}`, `,"destinations":[{"name":"*","namespace":"*"}]`))
	put("team", project("team", `{}`, ""))
	put("own", project("own", `{}`, `,"destinations":[{"name":"*","namespace":"*"}]`))
	h.wait(70 * engine.Second)
	projects := func() (n int) {
		for _, s := range h.spokes {
			for ref := range s.store.objects {
				if ref.Resource == kind.AppProjects {
					n++
				}
			}
		}
		return n
	}
	if projects() != 4*agents {
		t.Fatalf("%d projects on the spokes", projects())
	}
	h.stepHub(ArgoSettings{})
	h.settle()
	h.wait(120 * engine.Second)
	if projects() != 4*agents || len(h.recorded) == 0 || h.recorded[0].Totals.Affected != agents {
		t.Errorf("%d projects on the spokes, recorded %+v", projects(), h.recorded)
	}
	h.recorded = nil
	h.stepHub(settings) // corrected
	h.settle()
	h.wait(120 * engine.Second)
	if projects() != 4*agents || h.hub.Fleet().Items != 0 || len(h.recorded) != 1 || !h.recorded[0].Over {
		t.Errorf("%d projects on the spokes, recorded %+v", projects(), h.recorded)
	}
}
