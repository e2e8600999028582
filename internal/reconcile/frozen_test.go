package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

const (
	toHub    = `{"server":"https://kubernetes.default.svc","namespace":"argocd"}`
	toW1     = `{"name":"w1","namespace":"default"}`
	finalize = `["resources-finalizer.argocd.argoproj.io"]`
)

// appTo is an Application of namespace w1 with a destination.
func appTo(t *testing.T, destination, revision string) string {
	t.Helper()
	return string(set(t, []byte(app("w1", "a", "default", revision)), destination, "spec", "destination"))
}

// edit changes a part of a stored object.
func (p *pair) edit(side kind.Side, r kind.Ref, value string, path ...string) {
	p.t.Helper()
	p.user(side, r, string(set(p.t, p.stores[side].objects[r].Raw(), value, path...)))
}

// errorShown is the condition of the hub's Application w1/a.
func (p *pair) errorShown() string {
	p.t.Helper()
	o := p.stores[kind.Hub].objects[ref("w1", "a")]
	if c := string(o.Get("status", "conditions")); strings.Contains(c, kind.ConditionError) {
		return c
	}
	return ""
}

// spokeWrites records what is written on the spoke from now on.
func (p *pair) spokeWrites() *[]string {
	var writes []string
	before := p.hook
	p.hook = func(side kind.Side, w Write) bool {
		if side == kind.Spoke && w.Ref.Resource == kind.Applications {
			writes = append(writes, fmt.Sprint(w.Verb, " ", w.Ref.Name, " (", w.Reason, ")"))
		}
		return before != nil && before(side, w)
	}
	return &writes
}

func TestPlacement_ApplicationForAnotherClusterHasNoTree(t *testing.T) {
	for _, destination := range []string{
		`{"name":"w2","namespace":"payments"}`, toHub, `{"name":"in-cluster","namespace":"argocd"}`, `{"server":"https://10.0.0.1"}`,
		`{"name":"w1","server":"https://kubernetes.default.svc"}`, `{}`,
	} {
		t.Run(destination, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w2", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w2", Server: "https://proxy:9090?agentName=w2"}})
			p.connect()
			writes := p.spokeWrites()
			p.user(kind.Hub, ref("w1", "a"), appTo(t, destination, "v1"))
			p.edit(kind.Hub, ref("w1", "a"), `{"sync":{}}`, "operation")
			p.advanceTime(20 * engine.Second)
			if place, ok := p.sides[kind.Hub].Place("w1", "a"); ok {
				t.Errorf("trees and status come from %+v", place)
			}
			if agent, why, ok := p.sides[kind.Hub].Frozen("w1", "a"); !ok || agent != "w1" || why == "" {
				t.Errorf("frozen: %v for %q: %q", ok, agent, why)
			}
			if len(*writes) > 0 {
				t.Errorf("the agent wrote %q", *writes)
			}
			if shown := p.errorShown(); !strings.Contains(shown, "Frozen: spec.destination") || !strings.Contains(shown, `spec.destination.name to \"w1\"`) {
				t.Errorf("the hub shows %q", shown)
			}
			if op := p.stores[kind.Hub].objects[ref("w1", "a")].Get("operation"); string(op) != `{"sync":{}}` {
				t.Errorf("the operation became %s", op)
			}
		})
	}
}

func TestPlacement_ByAgentURL(t *testing.T) {
	for _, mapping := range []kind.Mapping{kind.ByNamespace, kind.ByDestination} {
		p := newPair(t, kind.Managed)
		agent := p.sides[kind.Hub].syncs["w1"].env.Agent
		agent.Mapping = mapping
		p.step(kind.Hub, Register{Agent: agent})
		namespace := map[kind.Mapping]string{kind.ByNamespace: "w1", kind.ByDestination: "argocd"}[mapping]
		p.user(kind.Hub, ref(namespace, "a"), string(set(t, []byte(app(namespace, "a", "default", "v1")), `{"server":"https://proxy:9090?agentName=w1"}`, "spec", "destination")))
		if place, ok := p.sides[kind.Hub].Place(namespace, "a"); !ok || place.Agent != "w1" {
			t.Errorf("%s: %+v %v", mapping, place, ok)
		}
		found := false
		p.sides[kind.Hub].ApplicationsOf(agent, func(string, string) { found = true })
		if !found {
			t.Errorf("%s: it is not among those that may be the agent's", mapping)
		}
		p.edit(kind.Hub, ref(namespace, "a"), `{"server":"https://elsewhere"}`, "spec", "destination")
		if place, ok := p.sides[kind.Hub].Place(namespace, "a"); ok {
			t.Errorf("%s: still %+v", mapping, place)
		}
	}
}

// What was placed before stays on the spoke exactly as it is, whatever happens on
// either side, and goes on when the destination is right again.
func TestFrozen_ChangedDestinationLeavesReplicaUnchanged(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toW1, "v1"))
	p.edit(kind.Spoke, ref("argocd", "a"), `{"health":{"status":"Healthy"}}`, "status")
	there := func() string { return string(p.stores[kind.Spoke].objects[ref("argocd", "a")].Raw()) }
	before := there()
	writes := p.spokeWrites()

	p.edit(kind.Hub, ref("w1", "a"), toHub, "spec", "destination")
	p.edit(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
	p.edit(kind.Hub, ref("w1", "a"), `{"sync":{}}`, "operation")
	p.advanceTime(10 * engine.Second)
	if !strings.Contains(p.errorShown(), "Frozen: ") {
		t.Errorf("the hub shows %q", p.errorShown())
	}
	proven := func(when string) {
		t.Helper()
		p.events = nil
		p.advanceTime(130 * engine.Second)
		if !slices.ContainsFunc(p.events, func(f engine.Event) bool { return f.Type == engine.InSync && f.Scope == kind.ApplicationScope }) {
			t.Errorf("%s: the scope is not found equal", when)
		}
		if slices.ContainsFunc(p.events, func(f engine.Event) bool { return f.Type == engine.Rejected && f.Scope == kind.ApplicationScope }) {
			t.Errorf("%s: the item is rejected", when)
		}
	}
	proven("frozen")
	p.reconnect()
	proven("in a new session")
	p.restartSide(kind.Spoke)
	proven("after a restart of the agent")
	p.restartSide(kind.Hub)
	proven("after a restart of the principal")
	if len(*writes) > 0 || there() != before {
		t.Errorf("it was written: %q\n%s\n%s", *writes, before, there())
	}

	// The spoke goes on by itself, and the hub takes nothing of it.
	p.edit(kind.Spoke, ref("argocd", "a"), `{"health":{"status":"Degraded"}}`, "status")
	p.advanceTime(20 * engine.Second)
	if health := p.stores[kind.Hub].objects[ref("w1", "a")].Get("status", "health", "status"); string(health) != `"Healthy"` {
		t.Errorf("the hub took over the health %s", health)
	}

	p.edit(kind.Hub, ref("w1", "a"), toW1, "spec", "destination")
	p.advanceTime(60 * engine.Second)
	after := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	if got := after.Get("spec", "source", "targetRevision"); string(got) != `"v2"` {
		t.Errorf("the correction has not arrived: %s", got)
	}
	if len(after.Get("operation")) == 0 {
		t.Error("the command has not arrived")
	}
	hub := p.stores[kind.Hub].objects[ref("w1", "a")]
	if p.errorShown() != "" || string(hub.Get("status", "health", "status")) != `"Degraded"` {
		t.Errorf("the hub shows %s", hub.Get("status"))
	}
}

// Back to the same destination without any other change: nothing is written.
func TestFrozen_TemporarilyFrozenIsNotWritten(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toW1, "v1"))
	writes := p.spokeWrites()
	p.edit(kind.Hub, ref("w1", "a"), toHub, "spec", "destination")
	p.advanceTime(10 * engine.Second)
	p.edit(kind.Hub, ref("w1", "a"), toW1, "spec", "destination")
	p.advanceTime(60 * engine.Second)
	if len(*writes) > 0 || p.errorShown() != "" {
		t.Errorf("written: %q, shown: %q", *writes, p.errorShown())
	}
}

// The spoke refuses what is frozen and not there. That refusal is not shown once
// the Application is permitted.
func TestFrozen_RejectionEndsWithFreeze(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toHub, "v1"))
	p.advanceTime(10 * engine.Second)
	p.hook = func(_ kind.Side, w Write) bool {
		if c := string(w.Object.Get("status", "conditions")); strings.Contains(c, "NotAllowed") {
			t.Errorf("the hub shows %s", c)
		}
		return false
	}
	p.edit(kind.Hub, ref("w1", "a"), toW1, "spec", "destination")
	p.advanceTime(20 * engine.Second)
	if p.errorShown() != "" || p.stores[kind.Spoke].objects[ref("argocd", "a")] == nil {
		t.Errorf("the hub shows %q", p.errorShown())
	}
}

func TestFrozen_DoesNotAdopt(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "local"))
	p.connect()
	writes := p.spokeWrites()
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toHub, "v1"))
	p.advanceTime(20 * engine.Second)
	if o := p.stores[kind.Spoke].objects[ref("argocd", "a")]; len(*writes) > 0 || o.Annotation(kind.SourceUID) != "" {
		t.Errorf("written: %q", *writes)
	}
	if !strings.Contains(p.errorShown(), "Frozen: ") {
		t.Errorf("the hub shows %q", p.errorShown())
	}
}

func TestFrozen_Deletion(t *testing.T) {
	for _, c := range []struct {
		name     string
		finalize bool
	}{{"with its resources is held", true}, {"without its resources", false}} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			p.connect()
			body := appTo(t, toW1, "v1")
			if c.finalize {
				body = string(set(t, []byte(body), finalize, "metadata", "finalizers"))
			}
			p.user(kind.Hub, ref("w1", "a"), body)
			p.edit(kind.Hub, ref("w1", "a"), toHub, "spec", "destination")
			p.advanceTime(10 * engine.Second)
			writes := p.spokeWrites()
			old := p.stores[kind.Hub].objects[ref("w1", "a")]
			if !c.finalize {
				delete(p.stores[kind.Hub].objects, ref("w1", "a"))
				p.step(kind.Hub, Deleted{Ref: ref("w1", "a"), UID: old.UID()})
				p.settle()
				if p.stores[kind.Spoke].objects[ref("argocd", "a")] != nil {
					t.Error("it is still on the spoke")
				}
				return
			}
			p.edit(kind.Hub, ref("w1", "a"), `"2026-01-01T00:00:00Z"`, "metadata", "deletionTimestamp")
			p.advanceTime(130 * engine.Second)
			if o := p.stores[kind.Spoke].objects[ref("argocd", "a")]; o == nil || len(*writes) > 0 {
				t.Errorf("the spoke's was touched: %q", *writes)
			}
			if hub := p.stores[kind.Hub].objects[ref("w1", "a")]; len(hub.Finalizers()) == 0 {
				t.Error("the hub's finalizers were removed")
			}
			if !strings.Contains(p.errorShown(), "remove its finalizer") {
				t.Errorf("the hub shows %q", p.errorShown())
			}

			// Corrected: now it is deleted as the user asked for.
			p.edit(kind.Hub, ref("w1", "a"), toW1, "spec", "destination")
			p.advanceTime(10 * engine.Second)
			if !slices.ContainsFunc(*writes, func(w string) bool { return strings.HasPrefix(w, "delete a") }) {
				t.Errorf("it is not deleted after the correction: %q", *writes)
			}
		})
	}
}

// The condition follows from the hub's objects: no session is needed to show it,
// nor to remove it.
func TestFrozen_ConditionNeedsNoSession(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toHub, "v1"))
	if p.errorShown() != "" {
		t.Error("it is shown before the AppProject of the same moment can be known")
	}
	p.advanceTime(10 * engine.Second)
	if !strings.Contains(p.errorShown(), "Frozen: ") {
		t.Errorf("the hub shows %q", p.errorShown())
	}
	before := p.writes
	p.restartSide(kind.Hub)
	p.advanceTime(120 * engine.Second)
	if p.writes != before {
		t.Errorf("%d more writes", p.writes-before)
	}
	p.edit(kind.Hub, ref("w1", "a"), toW1, "spec", "destination")
	p.advanceTime(20 * engine.Second)
	if p.errorShown() != "" {
		t.Errorf("the hub still shows %q", p.errorShown())
	}
}

// AppProjects become unreadable before the condition is written. It is written as soon as they are read again.
func TestFrozen_ConditionWaitsForProjects(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toW1, "v1"))
	p.edit(kind.Hub, ref("w1", "a"), `"other"`, "spec", "project")
	p.step(kind.Hub, Unreadable{Resource: kind.AppProjects, Reason: "test"})
	p.advanceTime(20 * engine.Second)
	if p.errorShown() != "" {
		t.Errorf("something was concluded of an AppProject that may exist: %q", p.errorShown())
	}
	p.lists(kind.Hub, kind.AppProjects)
	p.advanceTime(20 * engine.Second)
	if !strings.Contains(p.errorShown(), "Frozen: ") {
		t.Errorf("the hub shows %q", p.errorShown())
	}
}

func TestFrozen_DeletedWhileProjectsAreUnreadable(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.step(kind.Hub, Unreadable{Resource: kind.AppProjects, Reason: "test"})
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "other", "v1"))
	if len(p.sides[kind.Hub].placements.undecided) != 1 {
		t.Fatal("it does not wait for AppProjects")
	}
	p.stores[kind.Hub].rev++
	uid := p.stores[kind.Hub].objects[ref("w1", "a")].UID()
	p.step(kind.Hub, Deleted{Ref: ref("w1", "a"), UID: uid, Revision: uint64(p.stores[kind.Hub].rev)})
	if n := len(p.sides[kind.Hub].placements.undecided); n > 0 {
		t.Errorf("%d deleted Applications wait for AppProjects", n)
	}
}

// The condition of another kind, which a replica with the session has set, is not
// removed by one without.
func TestFrozen_NotShownAfterLeavingAgent(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toHub, "v1"))
	p.advanceTime(10 * engine.Second)
	p.edit(kind.Hub, ref("w1", "a"), `{"argocd-agent.argoproj-labs.io/ignore-sync":"true"}`, "metadata", "labels")
	p.advanceTime(20 * engine.Second)
	if p.errorShown() != "" {
		t.Errorf("the hub still shows %q", p.errorShown())
	}
}

func TestFrozen_ProjectDecides(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toW1, "v1"))
	writes := p.spokeWrites()
	defaultProject := projectRef("default")
	for _, c := range []struct {
		name   string
		change func()
		why    string
	}{
		{"another destination", func() {
			p.edit(kind.Hub, defaultProject, `[{"name":"w2","namespace":"*"}]`, "spec", "destinations")
		}, "does not permit namespace"},
		{"permitted again", func() {
			p.edit(kind.Hub, defaultProject, `[{"name":"w*","namespace":"def*"}]`, "spec", "destinations")
		}, ""},
		{"another namespace of Applications", func() { p.edit(kind.Hub, defaultProject, `["w2"]`, "spec", "sourceNamespaces") }, "does not permit Applications"},
		{"all of them", func() { p.edit(kind.Hub, defaultProject, `["*"]`, "spec", "sourceNamespaces") }, ""},
		{"only clusters of its own", func() {
			p.edit(kind.Hub, defaultProject, `true`, "spec", "permitOnlyProjectScopedClusters")
		}, "permits only clusters of its own"},
		{"the cluster is its own", func() {
			agent := p.sides[kind.Hub].syncs["w1"].env.Agent
			agent.Project = "default"
			p.step(kind.Hub, Register{Agent: agent})
			p.reconnect()
		}, ""},
		{"deleted", func() {
			old := p.stores[kind.Hub].objects[defaultProject]
			delete(p.stores[kind.Hub].objects, defaultProject)
			p.step(kind.Hub, Deleted{Ref: defaultProject, UID: old.UID(), Revision: uint64(p.stores[kind.Hub].rev)})
			p.settle()
		}, "does not exist on the hub"},
		{"created", func() { p.user(kind.Hub, defaultProject, openProject("default")) }, ""},
	} {
		c.change()
		p.advanceTime(30 * engine.Second)
		_, placed := p.sides[kind.Hub].Place("w1", "a")
		if shown := p.errorShown(); placed != (c.why == "") || (shown == "") != placed || !strings.Contains(shown, c.why) {
			t.Errorf("%s: placed %v, shown %q", c.name, placed, shown)
		}
		if o := p.stores[kind.Spoke].objects[ref("argocd", "a")]; o == nil || len(*writes) > 0 {
			t.Fatalf("%s: the spoke's Application was touched: %q", c.name, *writes)
		}
	}
}

// Whatever comes first at the start: nothing is said of an Application before its
// AppProject can be known.
func TestFrozen_NothingBeforeProjectsAreRead(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toW1, "v1"))
	p.stopHub()
	p.lists(kind.Hub, kind.Secrets, kind.ConfigMaps, kind.Applications)
	p.advanceTime(20 * engine.Second)
	writes := p.spokeWrites()
	p.events = nil
	p.reconnect()
	p.advanceTime(130 * engine.Second)
	if slices.ContainsFunc(p.events, func(f engine.Event) bool { return f.Type == engine.InSync && f.Scope == kind.ApplicationScope }) {
		t.Error("Applications are compared before AppProjects were read")
	}
	if st, _ := p.sides[kind.Hub].Status("w1"); complete(st, kind.ApplicationScope) {
		t.Error("Applications are called complete before AppProjects were read")
	}
	p.lists(kind.Hub, kind.AppProjects)
	p.advanceTime(130 * engine.Second)
	if !slices.ContainsFunc(p.events, func(f engine.Event) bool { return f.Type == engine.InSync && f.Scope == kind.ApplicationScope }) {
		t.Error("Applications are not compared after that")
	}
	if len(*writes) > 0 || p.errorShown() != "" {
		t.Errorf("written: %q, shown: %q", *writes, p.errorShown())
	}
	if load := p.sides[kind.Hub].Stats(); load.Notes > 0 {
		t.Errorf("something is kept: %+v", load)
	}

	// AppProjects can no longer be read: what is known of them counts.
	p.step(kind.Hub, Unreadable{Resource: kind.AppProjects, Reason: "test"})
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toW1, "v2"))
	if got := p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("spec", "source", "targetRevision"); string(got) != `"v2"` {
		t.Errorf("an update waits although its AppProject is known: %s", got)
	}
	p.edit(kind.Hub, ref("w1", "a"), `"other"`, "spec", "project")
	p.advanceTime(20 * engine.Second)
	if got := p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("spec", "project"); string(got) != `"default"` || p.errorShown() != "" {
		t.Errorf("something was concluded of an AppProject that may exist: %s, %q", got, p.errorShown())
	}
}

func complete(st engine.Status, scope string) bool {
	for _, s := range st.Scopes {
		if s.Name == scope {
			return s.Complete
		}
	}
	return false
}

// A change of an AppProject costs messages for its own Applications on the agent,
// and none if it decides as before.
func TestFrozen_ProjectChangeCostIsBounded(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.user(kind.Hub, projectRef("team"), openProject("team"))
	p.connect()
	const few, many = 3, 40
	for i := range many {
		name, project := fmt.Sprint("a", i), "default"
		if i < few {
			project = "team"
		}
		p.user(kind.Hub, ref("w1", name), app("w1", name, project, "v1"))
	}
	p.advanceTime(130 * engine.Second)
	items := 0
	count := func(change func()) int {
		items = 0
		change()
		return items
	}
	p.sent = func(m engine.Message) {
		if d, ok := m.(engine.Delta); ok && d.Scope == kind.ApplicationScope {
			items += len(d.Items)
		}
	}
	if n := count(func() {
		p.edit(kind.Hub, projectRef("team"), `[{"name":"w2","namespace":"*"}]`, "spec", "destinations")
	}); n != few {
		t.Errorf("%d items for %d Applications", n, few)
	}
	if n := len(p.sides[kind.Hub].DecidedAgain()); n > few {
		t.Errorf("%d were decided about", n)
	}
	if n := count(func() { p.edit(kind.Hub, projectRef("team"), `"x"`, "spec", "description") }); n != 0 {
		t.Errorf("%d items for a change that decides nothing", n)
	}
}

// An agent that replaces Applications whose source has another UID does not do so
// for a frozen one, even if it does not know what that is.
func TestFrozen_DoesNotRecreate(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.sides[kind.Spoke].cfg.Policy.Recreate = true
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), appTo(t, toW1, "v1"))
	writes := p.spokeWrites()
	p.stores[kind.Hub].put(ref("w1", "a"), []byte(appTo(t, toHub, "v2")), true) // while no principal runs
	p.restartSide(kind.Hub)
	p.advanceTime(20 * engine.Second)
	if len(*writes) > 0 {
		t.Errorf("written: %q", *writes)
	}
	hub := p.sides[kind.Hub].syncs["w1"]
	content, _, ok := hub.Content(kind.ApplicationScope, engine.Key{Name: "a"})
	spoke := p.sides[kind.Spoke].syncs[""]
	if !ok || !kind.IsFrozen(content) || spoke.recreates(spoke.scope(kind.ApplicationScope), kind.Ownership{Owned: true, Source: "another"}, content) {
		t.Errorf("an older agent would delete it for %s", content)
	}
}

// reconnect ends the session and opens another.
func (p *pair) reconnect() {
	p.step(kind.Spoke, FromPeer{Input: engine.Disconnected{Session: p.session}})
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Disconnected{Session: p.session}})
	p.wires = [2][]engine.Message{}
	p.revision = 10_000
	p.connect()
}

// restartSide replaces the process of a side, and connects again if there was a
// session.
func (p *pair) restartSide(side kind.Side) {
	connected := p.session > 0
	if side == kind.Hub {
		p.stopHub()
	} else {
		p.sides[side] = New(p.sides[side].cfg)
	}
	p.lists(side, Resources()...)
	if connected {
		p.reconnect()
	}
}

// stopHub replaces the principal by one that has read nothing yet.
func (p *pair) stopHub() {
	old := p.sides[kind.Hub]
	p.sides[kind.Hub] = New(old.cfg)
	p.step(kind.Hub, Register{Agent: old.syncs["w1"].env.Agent, KnownCluster: old.syncs["w1"].cluster})
}

// lists has a side read resources.
func (p *pair) lists(side kind.Side, resources ...kind.Resource) {
	for _, r := range resources {
		list := List{Resource: r, Revision: uint64(p.stores[side].rev)}
		for _, ref := range sortedRefs(p.stores[side].objects) {
			if ref.Resource == r {
				list.Objects = append(list.Objects, p.stores[side].objects[ref])
			}
		}
		p.step(side, list)
	}
}
