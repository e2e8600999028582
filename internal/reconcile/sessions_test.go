package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// sendHello has an agent say hello that has seen this much of the hub, and reports whether the session begins.
func (p *pair) sendHello(seen ...engine.Seen) bool {
	p.session++
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Connected{Session: p.session, Store: engine.Store{UID: "h", Revision: 100}}})
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Received{Session: p.session, Message: engine.Hello{
		Epoch: engine.Epoch{Incarnation: p.session}, ClusterUID: "spoke-uid", Namespace: "argocd", Mode: string(kind.Managed), Mapping: string(kind.ByNamespace),
		Protocol: engine.Range{Min: engine.ProtocolMin, Max: engine.ProtocolMax}, Projection: engine.Range{Min: engine.ProjectionMin, Max: engine.ProjectionMax},
		Store: engine.Store{UID: "s", Revision: 100}, Seen: seen}}})
	return p.sessionStarted()
}

func (p *pair) sessionStarted() bool {
	st, _ := p.sides[kind.Hub].Status("w1")
	return st.Connected
}

// A replica of the hub whose watch is behind what the agent has seen would take for gone what it has not seen yet.
func TestSession_BeginsWhenHubViewIsCurrent(t *testing.T) {
	for _, c := range []struct {
		name  string
		seen  engine.Seen
		blind bool
		want  bool
	}{
		{"as much", engine.Seen{Scope: kind.ApplicationScope, Revision: 1}, false, true},
		{"less", engine.Seen{Scope: kind.ApplicationScope, Revision: 50}, false, false},
		{"less, but it cannot read", engine.Seen{Scope: kind.ApplicationScope, Revision: 50}, true, true},
		{"of a scope that the agent owns", engine.Seen{Scope: kind.StatusScope, Revision: 50}, false, true},
		{"more than there is", engine.Seen{Scope: kind.ApplicationScope, Revision: 500}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			if c.blind {
				p.step(kind.Hub, Unreadable{Resource: kind.Applications, Reason: "forbidden"})
			}
			if got := p.sendHello(c.seen); got != c.want {
				t.Fatalf("begun: %v", got)
			}
		})
	}
	p := newPair(t, kind.Managed)
	p.sendHello(engine.Seen{Scope: kind.ApplicationScope, Revision: 50})
	p.step(kind.Hub, Bookmark{Resource: kind.Applications, Revision: 49})
	if p.sessionStarted() {
		t.Error("begun too early")
	}
	p.step(kind.Hub, Bookmark{Resource: kind.Applications, Revision: 50})
	if !p.sessionStarted() {
		t.Error("not begun although the watch has come that far")
	}
}

func TestSession_HubListsIfWatchStaysStale(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.stores[kind.Hub].rev = 60
	p.sendHello(engine.Seen{Scope: kind.ApplicationScope, Revision: 50})
	wake, ok := p.sides[kind.Hub].NextWake()
	if !ok || wake > p.now+relistAfter {
		t.Fatalf("wants to be woken at %d, now it is %d", wake, p.now)
	}
	p.now = wake
	p.step(kind.Hub, Tick{}) // step answers a Relist
	if !p.sessionStarted() {
		t.Error("the session does not begin")
	}
}

// The spoke is moved to another hub. What came from the first one is not that hub's to remove.
func TestSession_KeepsReplicasOfAnotherHub(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	for i := range 15 { // so many that their removal would be held
		name := fmt.Sprint("a", i)
		p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
	}
	p.disconnect()
	agent := p.sides[kind.Hub].syncs["w1"].env.Agent
	p.sides[kind.Hub] = New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub-uid", PrincipalUID: "principal-2"})
	p.stores[kind.Hub].objects = map[kind.Ref]*kind.Object{}
	p.step(kind.Hub, Register{Agent: agent})
	for _, r := range Resources() {
		p.step(kind.Hub, List{Resource: r, Revision: uint64(p.stores[kind.Hub].rev)})
	}
	writes := p.recordSpoke()
	p.events = nil
	p.connect()
	p.advanceTime(120 * engine.Second)
	for _, f := range p.events {
		if f.Type == engine.HoldStarted {
			t.Errorf("held: %+v", f.Held)
		}
	}
	if n := p.owned(kind.Spoke, "", kind.ApplicationScope); n != 0 {
		t.Errorf("%d copies of the first hub count as the second one's", n)
	}
	for _, w := range *writes {
		t.Errorf("the spoke does: %s %s", w.Verb, w.Ref.Name)
	}
}

func TestUnregister_StopsWorkForAgent(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	p.connect()
	var pending Write
	p.once(kind.Hub, Create, func(w Write) { pending = w })
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
	cut := false
	for _, e := range p.sides[kind.Hub].Step(p.now, Unregister{Agent: "w1"}) {
		if to, ok := e.(ToPeer); ok {
			_, isCut := to.Effect.(engine.CloseSession)
			cut = cut || isCut
		}
	}
	if !cut {
		t.Error("its connection is not cut")
	}
	o := p.stores[kind.Hub].put(pending.Ref, pending.Object.Raw(), true)
	for _, e := range p.sides[kind.Hub].Step(p.now, WriteResult{ID: pending.ID, Object: o}) {
		if _, ok := e.(ToPeer); ok {
			t.Errorf("it is reported: %+v", e)
		}
	}
}

func TestSettings_ChangeKeepsStateOfAgent(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	p.revision = 100
	p.connect()
	p.disconnect()
	p.revision = 50
	p.connect()
	if st, _ := p.sides[kind.Hub].Status("w1"); st.StoreHoldID == "" {
		t.Fatal("a regressed store is trusted")
	}
	p.step(kind.Hub, ArgoSettings{InstanceLabel: "example.com/instance"})
	if st, _ := p.sides[kind.Hub].Status("w1"); st.StoreHoldID == "" {
		t.Error("after a change of settings the store is trusted")
	}
	// Another cluster uses its certificate.
	p.sides[kind.Spoke] = New(Config{Side: kind.Spoke, ArgoNamespace: "argocd", ClusterUID: "another", Mode: kind.Autonomous, Mapping: kind.ByNamespace})
	p.wires = [2][]engine.Message{}
	p.events = nil
	p.connect()
	refused := false
	for _, f := range p.events {
		refused = refused || f.Type == engine.Refused && f.Code == engine.WrongCluster
	}
	if !refused {
		t.Error("after a change of settings another cluster takes its name")
	}
}

func TestRepositories_PendingAreNotPublished(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "*")))
	f.hub(seen(kind.Secrets, f.repository(9, web))) // the project may have changed since
	agent := f.sides[kind.Hub].syncs["w1"].env.Agent
	agent.Name, agent.HubNamespace = "w2", "w2"
	f.hub(Register{Agent: agent})
	l := f.sides[kind.Hub].syncs["w2"]
	if l.peer.Publishes(kind.RepositoryScope, engine.Key{Name: "repo"}.Hash()) {
		t.Error("a new agent gets them")
	}
	if _, _, ok := l.Content(kind.RepositoryScope, engine.Key{Name: "repo"}); ok {
		t.Error("an agent that asks for them gets them")
	}
	f.answer(f.project(5, "*"))
	if !l.peer.Publishes(kind.RepositoryScope, engine.Key{Name: "repo"}.Hash()) {
		t.Error("it does not get them when the project is known")
	}
}

func TestRepositories_RulesAreKeptUntilSecretsAreCurrent(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(Bookmark{Resource: kind.Secrets, Revision: 3})
	f.hub(seen(kind.AppProjects, f.project(9, "w1")))
	f.hub(Bookmark{Resource: kind.Secrets, Revision: 6})
	if f.sides[kind.Hub].repositories.rulesChangedAt["web"] != 9 {
		t.Error("forgotten too early")
	}
	f.hub(Bookmark{Resource: kind.Secrets, Revision: 9})
	if len(f.sides[kind.Hub].repositories.rulesChangedAt) != 0 {
		t.Error("kept forever")
	}
}

func TestRepositories_UnansweredReadIsRepeatedByTimer(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "w1")))
	f.hub(seen(kind.Secrets, f.repository(9, web)))
	f.reads = nil // lost
	wake, ok := f.sides[kind.Hub].NextWake()
	if !ok || wake > f.now+rereadAfter {
		t.Fatalf("wants to be woken at %d, now it is %d", wake, f.now)
	}
	f.now = wake
	f.hub(Tick{})
	if len(f.reads) != 1 {
		t.Errorf("%d reads", len(f.reads))
	}
}

// A read finds no project. Then the watch, which is behind, shows one of before that.
func TestRepositories_LateProjectGetsNoCredentials(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.Secrets, f.named("other", 90, ops))) // waits, and keeps what reads have shown
	f.reads = nil
	f.hub(seen(kind.Secrets, f.repository(100, web)))
	f.answer(nil) // there is no project web as of 100
	if f.sent() != 0 {
		t.Fatal("sent without a project")
	}
	f.hub(seen(kind.AppProjects, f.project(80, "w1")))
	if f.sent() != 0 {
		t.Error("sent on the word of a project that is gone")
	}
	if len(f.reads) != 1 || !strings.HasPrefix(f.reads[0].Ref.Name, "web") {
		t.Errorf("asks for %+v", f.reads)
	}
}

// Until the list of AppProjects has come, those that are known may not be all that an Application depends on.
func TestPlacement_NothingBeforeProjectsAreListed(t *testing.T) {
	p := newPair(t, kind.Managed)
	agent := p.sides[kind.Hub].syncs["w1"].env.Agent
	n := New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub-uid", PrincipalUID: "principal-1"})
	p.sides[kind.Hub] = n
	p.step(kind.Hub, Register{Agent: agent})
	project := p.stores[kind.Hub].objects[projectNamed("default")]
	p.step(kind.Hub, Observed{Resource: kind.AppProjects, Object: project})
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	hash := engine.Key{Name: "a"}.Hash()
	if n.syncs["w1"].peer.Publishes(kind.ApplicationScope, hash) {
		t.Error("placed by what is known so far")
	}
	p.step(kind.Hub, List{Resource: kind.AppProjects, Objects: []*kind.Object{project}, Revision: uint64(p.stores[kind.Hub].rev)})
	if !n.syncs["w1"].peer.Publishes(kind.ApplicationScope, hash) {
		t.Error("not placed after the list")
	}
}

// One agent has the namespace of an Application, and another is its destination and has it by destination mapping.
func TestFrozen_NotShownIfPlacedElsewhere(t *testing.T) {
	p := newPair(t, kind.Managed)
	agent := p.sides[kind.Hub].syncs["w1"].env.Agent
	p.sides[kind.Hub] = New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub-uid", PrincipalUID: "principal-1", Settings: kind.Settings{AllowedNamespaces: []string{"*"}}})
	p.step(kind.Hub, Register{Agent: agent})
	project := p.stores[kind.Hub].objects[projectNamed("default")]
	for _, r := range Resources() {
		list := List{Resource: r, Revision: uint64(p.stores[kind.Hub].rev)}
		if r == kind.AppProjects {
			list.Objects = []*kind.Object{project}
		}
		p.step(kind.Hub, list)
	}
	other := kind.Agent{Name: "w2", Mode: kind.Managed, Mapping: kind.ByDestination, HubNamespace: "w2", Server: "https://proxy:9090?agentName=w2"}
	body := string(set(t, []byte(app("w1", "a", "default", "v1")), `"w2"`, "spec", "destination", "name"))
	shown := func() bool {
		p.advanceTime(10 * engine.Second)
		return kind.ShowsFrozen(p.hubApp())
	}
	p.step(kind.Hub, Register{Agent: other})
	writes := p.recordHub()
	p.user(kind.Hub, ref("w1", "a"), body)
	if shown() || len(*writes) > 0 {
		t.Errorf("shown: %s, after %d writes", p.hubApp().Get("status"), len(*writes))
	}
	p.step(kind.Hub, Unregister{Agent: "w2"})
	p.edit(kind.Hub, ref("w1", "a"), `{"x":"y"}`, "metadata", "labels")
	if !shown() {
		t.Error("not shown although no agent has it")
	}
}

func TestSchema_RepeatedReportChecksNothing(t *testing.T) {
	p := newPair(t, kind.Managed)
	normalise := func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Verb == Delete || w.Ref.Resource != kind.Applications {
			return false
		}
		o := p.stores[side].put(w.Ref, set(t, w.Object.Raw(), `"default"`, "spec", "normalised"), w.Verb == Create)
		p.step(side, WriteResult{ID: w.ID, Object: o})
		return true
	}
	p.hook = normalise
	p.step(kind.Spoke, Schema{Resource: kind.Applications, Version: "1"})
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.advanceTime(60 * engine.Second)
	rechecked := func(version string) bool {
		before := p.writes
		p.step(kind.Spoke, Schema{Resource: kind.Applications, Version: version})
		p.advanceTime(60 * engine.Second)
		return p.writes > before
	}
	if rechecked("1") {
		t.Error("written again although nothing has changed")
	}
	if !rechecked("2") {
		t.Error("not written again although the schema has changed")
	}
}

// The CRD was upgraded while the agent was down. The field that it dropped arrives, also if the session opens before the
// agent has read its Applications.
func TestSchema_ChangeDuringRestartIsNoticed(t *testing.T) {
	for _, first := range []string{"list", "session"} {
		p := newPair(t, kind.Managed)
		prunes := true
		p.hook = func(side kind.Side, w Write) bool {
			if side != kind.Spoke || w.Ref.Resource != kind.Applications || w.Verb == Delete || !prunes {
				return false
			}
			body, err := rawjson.Remove(w.Object.Raw(), "spec", "experimental")
			if err != nil {
				t.Fatal(err)
			}
			p.step(side, WriteResult{ID: w.ID, Object: p.stores[side].put(w.Ref, body, w.Verb == Create)})
			return true
		}
		p.step(kind.Spoke, Schema{Resource: kind.Applications, Version: "1"})
		p.connect()
		p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
		p.edit(kind.Hub, ref("w1", "a"), `{"flag":true}`, "spec", "experimental")
		p.advanceTime(60 * engine.Second)
		if p.replica().Get("spec", "experimental") != nil {
			t.Fatal("the field is stored")
		}
		prunes = false
		p.sides[kind.Spoke] = New(p.sides[kind.Spoke].cfg)
		p.step(kind.Spoke, Schema{Resource: kind.Applications, Version: "2"})
		if first == "list" {
			p.lists(kind.Spoke, Resources()...)
			p.reconnect()
		} else {
			p.reconnect()
			p.lists(kind.Spoke, Resources()...)
		}
		for range 20 {
			p.advanceTime(60 * engine.Second)
		}
		if p.replica().Get("spec", "experimental") == nil {
			t.Errorf("%s first: the field does not arrive", first)
		}
	}
}

// The hub's registration decides the mapping. For an autonomous agent it has no meaning.
func TestSession_AgentFollowsMappingOfHub(t *testing.T) {
	for _, mode := range []kind.Mode{kind.Managed, kind.Autonomous} {
		p := newPair(t, mode)
		w1 := kind.Agent{Name: "w1", Mode: mode, Mapping: kind.ByDestination, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1"}
		p.step(kind.Hub, Register{Agent: w1})
		p.connect()
		from, to, onHub := kind.Hub, kind.Spoke, "argocd"
		if mode == kind.Autonomous {
			from, to, onHub = kind.Spoke, kind.Hub, "w1"
		}
		p.user(from, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
		if o := p.stores[to].objects[ref(map[kind.Side]string{kind.Hub: onHub, kind.Spoke: "argocd"}[to], "a")]; o == nil {
			t.Fatalf("%s: the other side does not have the Application", mode)
		}

		// The hub changes its mapping again. Nothing has to be changed on the agent.
		p.disconnect()
		w1.Mapping = kind.ByNamespace
		p.step(kind.Hub, Register{Agent: w1})
		p.connect()
		if mode == kind.Managed {
			p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
			if p.stores[kind.Spoke].objects[ref("argocd", "b")] == nil {
				t.Error("after another change, the agent does not have the Application")
			}
		}
		if status, _ := p.sides[kind.Spoke].Status(""); !status.Connected {
			t.Errorf("%s: not connected", mode)
		}
	}
}
