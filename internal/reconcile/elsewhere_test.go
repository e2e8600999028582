package reconcile

import (
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// leaves ends the session of agent w1, which then has one with another replica.
func (p *pair) leaves() {
	p.t.Helper()
	p.disconnect()
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	for _, o := range p.sides[kind.Hub].cache.byNS["w1"] {
		if !o.IsReduced() {
			p.t.Errorf("the content of %s is kept", o.Name())
		}
	}
}

// read returns what the API server answers to a ReadApplications now.
func (p *pair) read() ApplicationsRead {
	in := ApplicationsRead{Namespace: "w1"}
	for _, r := range sortedRefs(p.stores[kind.Hub].objects) {
		if r.Resource == kind.Applications && r.Namespace == "w1" {
			in.Objects = append(in.Objects, p.stores[kind.Hub].objects[r])
		}
	}
	return in
}

// answer answers all reads.
func (p *pair) answer() {
	p.reads = nil
	p.step(kind.Hub, p.read())
	p.settle()
}

// begun reports whether the session has begun.
func (p *pair) begun() bool { return p.sides[kind.Hub].syncs["w1"].live }

// apps returns the status of the scope of Applications on the hub.
func (p *pair) apps() engine.ScopeStatus {
	status, _ := p.sides[kind.Hub].Status("w1")
	for _, s := range status.Scopes {
		if s.Name == kind.ApplicationScope {
			return s
		}
	}
	return engine.ScopeStatus{}
}

func (p *pair) cached() *kind.Object { return p.sides[kind.Hub].cache.get(ref("w1", "a")) }

func TestElsewhere_SessionBeginsWithTheContent(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	if p.cached().Get("spec", "source") != nil || len(p.reads) > 0 {
		t.Fatalf("kept: %s, read: %v", p.cached().Raw(), p.reads)
	}
	if place, ok := p.sides[kind.Hub].Place("w1", "a"); !ok || place.Agent != "w1" {
		t.Errorf("it is placed at %+v", place)
	}
	if p.apps().Complete {
		t.Error("without content, the view is complete")
	}
	p.connect()
	if p.begun() || p.apps().Complete {
		t.Fatal("the session begins without the content")
	}
	if len(p.reads) != 1 || p.reads[0] != (ReadApplications{Namespace: "w1", Session: true}) {
		t.Fatalf("reads: %v", p.reads)
	}
	writes := p.writes
	p.answer()
	if !p.begun() || !p.apps().Complete || p.cached().IsReduced() {
		t.Fatal("the session does not begin with the content")
	}
	if p.writes != writes {
		t.Errorf("%d writes, although nothing has changed", p.writes-writes)
	}
	if notes := p.sides[kind.Hub].Stats().Notes; notes > 0 {
		t.Errorf("%d notes are kept", notes)
	}
}

func TestElsewhere_ChangesAreDelivered(t *testing.T) {
	p := managedApp(t)
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	p.leaves()
	p.edit(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
	p.user(kind.Hub, ref("w1", "c"), app("w1", "c", "default", "v1"))
	p.removeOnHub(ref("w1", "b"), true)
	if p.sides[kind.Hub].Reduced("w1") != 2 {
		t.Errorf("%d are without content", p.sides[kind.Hub].Reduced("w1"))
	}
	p.connect()
	p.answer()
	p.waitSeconds(60)
	if got := p.spokeRevision("a"); got != "v2" {
		t.Errorf("a has %s", got)
	}
	if p.spoke(ref("argocd", "c")) == nil {
		t.Error("c did not arrive")
	}
	if p.spoke(ref("argocd", "b")) != nil { // deleted by a user: nothing to confirm
		t.Error("b is still there")
	}
}

// A read can be answered late. Only the watch shows what is new and what is gone.
func TestElsewhere_LateAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		between  func(p *pair)
		begins   bool   // with the late answer
		revision string // of the Application on the spoke at the end; empty if it is gone
	}{
		"nothing happened":               {func(*pair) {}, true, "v1"},
		"changed, and the watch is late": {func(p *pair) { p.editUnseen(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision") }, true, "v2"},
		"changed":                        {func(p *pair) { p.edit(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision") }, true, "v2"},
		"deleted":                        {func(p *pair) { p.removeOnHub(ref("w1", "a"), true) }, true, ""},
		"deleted and created again": {func(p *pair) {
			p.removeOnHub(ref("w1", "a"), true)
			p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v3"))
		}, true, "v3"},
	} {
		t.Run(name, func(t *testing.T) {
			p := managedApp(t)
			p.leaves()
			p.connect()
			answer := p.read()
			c.between(p)
			p.step(kind.Hub, answer)
			p.settle()
			if p.begun() != c.begins {
				t.Errorf("the session has begun: %v", p.begun())
			}
			p.lists(kind.Hub, kind.Applications) // the watch
			p.settle()
			p.waitSeconds(120)
			got := ""
			if p.replica() != nil {
				got = p.spokeRevision("a")
			}
			if got != c.revision || !p.begun() {
				t.Errorf("the spoke has %q, session %v", got, p.begun())
			}
			if hub := p.cached(); (hub == nil) != (c.revision == "") || hub != nil && hub.IsReduced() {
				t.Errorf("the hub has %v", hub)
			}
		})
	}
}

// The API server shows a newer state than the watch. Its content is not that of the cached revision.
func TestElsewhere_NewerAnswerWaitsForTheWatch(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	p.editUnseen(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
	p.connect()
	p.answer()
	if p.begun() || !p.cached().IsReduced() {
		t.Fatal("an answer of another revision is taken")
	}
	p.step(kind.Hub, Observed{Resource: kind.Applications, Object: p.hubApp()})
	p.waitSeconds(60)
	if got := p.spokeRevision("a"); !p.begun() || got != "v2" {
		t.Errorf("the spoke has %s, session %v", got, p.begun())
	}
}

// Of an object that was deleted and created again, revision and name can be the same in a restored store.
func TestElsewhere_AnswerOfAnotherObject(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	p.connect()
	in := p.read()
	in.Objects[0] = object(t, string(set(t, in.Objects[0].Raw(), `"another"`, "metadata", "uid")))
	p.step(kind.Hub, in)
	if p.begun() || !p.cached().IsReduced() {
		t.Error("the content of another object is taken")
	}
}

func TestElsewhere_FailedReadIsRepeatedAndShown(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	p.connect()
	p.reads = nil
	p.step(kind.Hub, ApplicationsRead{Namespace: "w1", Reason: "the API server does not respond"})
	p.settle()
	if s := p.apps(); p.begun() || s.Complete || p.cached() == nil {
		t.Fatalf("status: %+v", s)
	}
	shown := false
	status, _ := p.sides[kind.Hub].Status("w1")
	for _, s := range status.Scopes {
		shown = shown || strings.Contains(s.Unread, "the API server does not respond")
	}
	if !shown {
		t.Errorf("the reason is not shown: %+v", status.Scopes)
	}
	p.waitSeconds(10)
	if len(p.reads) != 1 {
		t.Fatalf("%d reads after a failure", len(p.reads))
	}
	p.waitSeconds(70) // no answer
	if len(p.reads) != 2 {
		t.Fatalf("%d reads without an answer", len(p.reads))
	}
	p.answer()
	if !p.begun() {
		t.Error("the session does not begin")
	}
}

func TestElsewhere_OneReplicaReadsNothing(t *testing.T) {
	p := managedApp(t)
	p.reconnect()
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}}) // although it has a session here
	if p.cached().IsReduced() || len(p.reads) > 0 {
		t.Error("an agent with a session loses its content")
	}
	p.step(kind.Hub, Elsewhere{})
	p.disconnect()
	p.connect()
	if len(p.reads) > 0 || !p.begun() {
		t.Errorf("reads: %v", p.reads)
	}
}

// The other replica is gone, and the agent has not come back: this replica does what is to be done for its
// Applications.
func TestElsewhere_ContentIsReadAfterTheOtherReplicaIsGone(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	p.edit(kind.Hub, ref("w1", "a"), `{"sync":{"revision":"abc"},"initiatedBy":{"username":"admin"}}`, "operation")
	if strings.Contains(string(p.hubApp().Raw()), kind.CommandInfo) {
		t.Error("a replica without the session changes the Application")
	}
	p.step(kind.Hub, Elsewhere{})
	if len(p.reads) != 1 || p.reads[0].Session {
		t.Fatalf("reads: %v", p.reads)
	}
	p.answer()
	if !strings.Contains(string(p.hubApp().Raw()), kind.CommandInfo) {
		t.Error("the command has no ID")
	}
	p.connect()
	p.waitSeconds(60)
	if !p.begun() || !strings.Contains(string(p.replica().Get("operation")), "abc") {
		t.Errorf("the command did not arrive: %s", p.replica().Raw())
	}
}

// What changes the placement of Applications counts also if their content is not in memory at that time.
func TestElsewhere_ProjectChanges(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	project := kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "default"}
	p.edit(kind.Hub, project, `[]`, "spec", "destinations")
	if _, _, frozen := p.sides[kind.Hub].Frozen("w1", "a"); !frozen {
		t.Error("it is not frozen")
	}
	p.connect()
	p.answer()
	p.waitSeconds(60)
	if p.errorShown() == "" || p.replica() == nil {
		t.Error("it is not shown as frozen, or was removed")
	}
	p.leaves()
	p.edit(kind.Hub, project, `[{"name":"*","namespace":"*"}]`, "spec", "destinations")
	p.edit(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
	p.connect()
	p.answer()
	p.waitSeconds(60)
	if p.errorShown() != "" || p.spokeRevision("a") != "v2" {
		t.Errorf("it is still frozen: %s", p.errorShown())
	}
}

// An Application names another agent as its destination. That agent registers when the content is not in memory.
func TestElsewhere_AgentThatRegistersGetsTheContent(t *testing.T) {
	p := managedApp(t)
	p.user(kind.Hub, ref("w1", "x"), strings.Replace(app("w1", "x", "default", "v1"), `"name":"w1"`, `"name":"w2"`, 1))
	p.leaves()
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w2", Mode: kind.Managed, Mapping: kind.ByDestination, HubNamespace: "w2", Server: "https://proxy:9090?agentName=w2"}})
	status, _ := p.sides[kind.Hub].Status("w2")
	for _, s := range status.Scopes {
		if s.Name == kind.ApplicationScope && s.Complete {
			t.Error("the view of an agent without the content of its Applications is complete")
		}
	}
	if len(p.reads) != 1 {
		t.Fatalf("reads: %v", p.reads)
	}
	p.answer()
	if p.sides[kind.Hub].Reduced("w2") > 0 || !p.cached().IsReduced() {
		t.Error("not exactly that Application is read")
	}
}

func TestElsewhere_ChangedRegistration(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	agent := p.sides[kind.Hub].syncs["w1"].env.Agent
	agent.Mapping, agent.HubNamespace = kind.ByDestination, "w1"
	p.step(kind.Hub, Register{Agent: agent})
	if len(p.reads) == 0 {
		t.Fatal("the content is not read")
	}
	p.answer()
	if p.cached().IsReduced() {
		t.Error("the content is not in memory")
	}
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	if p.cached().IsReduced() {
		t.Error("Applications of an agent that can be in any namespace are reduced")
	}
}

// A setting of the agent has changed, and it is still elsewhere.
func TestElsewhere_ChangedRegistrationKeepsItsForm(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	agent := p.sides[kind.Hub].syncs["w1"].env.Agent
	agent.Limits.Items = 100
	p.step(kind.Hub, Register{Agent: agent})
	p.answer()
	if !p.cached().IsReduced() || p.apps().Unread == "" {
		t.Errorf("reduced: %v, %+v", p.cached().IsReduced(), p.apps())
	}
	p.connect()
	p.answer()
	p.waitSeconds(60)
	if !p.begun() || p.replica() == nil {
		t.Error("the session does not begin, or the Application is gone")
	}
}

// Everything of an agent that comes back is published: other kinds, too.
func TestElsewhere_ProjectIsDeletedAndChanged(t *testing.T) {
	p := managedApp(t)
	old, kept := projectRef("old"), projectRef("kept")
	p.user(kind.Hub, old, project("old", "{}", onlyW1))
	p.user(kind.Hub, kept, project("kept", "{}", onlyW1))
	p.waitSeconds(60)
	if p.spoke(old) == nil || p.spoke(kept) == nil {
		t.Fatal("the AppProjects did not arrive")
	}
	p.leaves()
	p.removeOnHub(old, true)
	p.edit(kind.Hub, kept, `"changed"`, "spec", "description")
	p.connect()
	p.answer()
	p.waitSeconds(60)
	if p.spoke(old) != nil { // deleted by a user: nothing to confirm
		t.Error("the deleted AppProject is still there")
	}
	if o := p.spoke(kept); o == nil || rawjson.Text(o.Get("spec"), "description") != "changed" {
		t.Error("the change of the AppProject did not arrive")
	}
}

func TestElsewhere_UnregisteredAgent(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	p.step(kind.Hub, Unregister{Agent: "w1"})
	p.answer()
	if p.cached().IsReduced() {
		t.Error("the content is not in memory, although no agent is elsewhere")
	}
}

func TestElsewhere_SourceHydratorsKeepTheirContent(t *testing.T) {
	p := managedApp(t)
	p.edit(kind.Hub, ref("w1", "a"), `{"drySource":{"repoURL":"https://git/x"},"syncSource":{"targetBranch":"env"}}`, "spec", "sourceHydrator")
	p.disconnect()
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	if p.cached().IsReduced() {
		t.Error("other agents cannot see the branch to which it pushes")
	}
}

func TestElsewhere_AutonomousAgent(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	p.connect()
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
	p.leaves()
	p.edit(kind.Spoke, ref("argocd", "a"), `"v2"`, "spec", "source", "targetRevision")
	p.connect()
	if p.begun() {
		t.Error("the session begins without the content")
	}
	p.answer()
	if got := string(p.hubApp().Get("spec", "source", "targetRevision")); got != `"v2"` || len(p.hubApp().Get("spec", "project")) == 0 {
		t.Errorf("the hub has %s", p.hubApp().Raw())
	}
}

// No job changes an object whose content is not in memory, whatever the reason of the job.
func TestElsewhere_NoJobChangesReducedObject(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	n, decided, failed := p.sides[kind.Hub], false, false
	n.enqueue(ref("w1", "a"), job{name: "test", decide: func(o *kind.Object) decision {
		decided = true
		return decision{verb: Delete, object: o}
	}, done: func(r result) { failed = r.fail != nil }})
	if decided || !failed {
		t.Errorf("a job decided about %s", p.cached().Raw())
	}
}

// The registration of an agent that is elsewhere changes. Its new sync knows nothing of Applications without content.
func TestElsewhere_NothingIsPublishedWithoutContent(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	agent := p.sides[kind.Hub].syncs["w1"].env.Agent
	agent.Limits.Items = 100
	p.step(kind.Hub, Register{Agent: agent, KnownCluster: "spoke-uid"})
	if s := p.apps(); s.Items > 0 || s.Complete || !p.cached().IsReduced() {
		t.Fatalf("published without content: %+v", s)
	}
	writes := p.writes
	p.connect()
	p.answer()
	p.waitSeconds(60)
	if s := p.apps(); s.Items != 1 || !p.begun() || p.writes != writes || p.spokeRevision("a") != "v1" {
		t.Errorf("after the session: %+v, %d writes", s, p.writes-writes)
	}
}

// The registration of an agent that is elsewhere changes. Its new sync learns what it publishes, so that a deletion is known.
func TestElsewhere_DeletedAfterChangedRegistration(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	agent := p.sides[kind.Hub].syncs["w1"].env.Agent
	agent.Limits.Items = 100
	p.step(kind.Hub, Register{Agent: agent, KnownCluster: "spoke-uid"})
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	p.answer()
	if s := p.apps(); s.Items != 1 || s.Complete || !p.cached().IsReduced() {
		t.Errorf("after the content was read: %+v", s)
	}
	p.removeOnHub(ref("w1", "a"), true)
	p.connect()
	p.waitSeconds(60)
	if !p.begun() || p.spoke(ref("argocd", "a")) != nil {
		t.Error("it is still there: its deletion counts as an absence")
	}
}

// The sync of an agent starts again because of a setting, and the agent is reported as elsewhere before its content is read.
func TestElsewhere_DeletedAfterChangedSettings(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	p.step(kind.Hub, ArgoSettings{InstanceLabel: "instance"})
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	p.answer()
	if !p.cached().IsReduced() {
		t.Error("its content is kept")
	}
	p.removeOnHub(ref("w1", "a"), true)
	p.connect()
	p.waitSeconds(60)
	if !p.begun() || p.spoke(ref("argocd", "a")) != nil {
		t.Error("it is still there: its deletion counts as an absence")
	}
}

// The agent is reported as elsewhere after it has connected, and its Hello is refused. What a user deletes then is known.
func TestElsewhere_RefusedHello(t *testing.T) {
	p := managedApp(t)
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	p.waitSeconds(60)
	p.leaves()
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Connected{Session: 77, Store: engine.Store{UID: "h", Revision: 1}}})
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Received{Session: 77, Message: engine.Hello{Epoch: engine.Epoch{Incarnation: 99}, Mode: "autonomous",
		Protocol: engine.Range{Min: engine.ProtocolMin, Max: engine.ProtocolMax}, Projection: engine.Range{Min: engine.ProjectionMin, Max: engine.ProjectionMax}}}})
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Disconnected{Session: 77}})
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	p.lists(kind.Hub, kind.AppProjects)
	p.removeOnHub(ref("w1", "a"), true)
	p.removeOnHub(ref("w1", "b"), true)
	p.connect()
	p.answer()
	p.waitSeconds(60)
	for _, name := range []string{"a", "b"} {
		if p.spoke(ref("argocd", name)) != nil {
			t.Errorf("%s is still there: its deletion counts as an absence", name)
		}
	}
}

// The agent holds the deletion of its last Application because the hub was restored, and is elsewhere until a user confirms that.
func TestElsewhere_DeletionThatTheAgentHolds(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.revision = 1000
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.disconnect()
	p.revision = 500
	p.connect()
	p.removeOnHub(ref("w1", "a"), true)
	p.settle()
	p.waitSeconds(60)
	p.disconnect()
	p.revision, p.events = 600, nil
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	p.connect()
	p.answer()
	p.waitSeconds(10)
	for _, e := range slices.Clone(p.events) {
		if e.Type == engine.HoldStarted && e.Held.Scope == "" {
			p.step(kind.Hub, Confirm{Agent: "w1", ID: e.Held.ID})
			p.settle()
		}
	}
	p.waitSeconds(120)
	if p.spoke(ref("argocd", "a")) != nil {
		t.Error("it is still there: its deletion counts as an absence")
	}
}

// The time of the last comparison stays, so that the age of statuses is known when this replica takes over the agent.
func TestElsewhere_LastComparisonIsKnown(t *testing.T) {
	p := managedApp(t)
	p.waitSeconds(120)
	before := p.apps().InSyncAt
	p.leaves()
	if got := p.apps().InSyncAt; before == 0 || got != before {
		t.Errorf("in sync at %d, before %d", got, before)
	}
}

// An Application whose content is kept is reported when its agent comes back, too: it does not look absent.
func TestElsewhere_KeptContentIsReported(t *testing.T) {
	p := managedApp(t)
	p.edit(kind.Hub, ref("w1", "a"), `{"drySource":{"repoURL":"https://git/x"},"syncSource":{"targetBranch":"env"}}`, "spec", "sourceHydrator")
	p.waitSeconds(60)
	p.disconnect()
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	if p.cached().IsReduced() {
		t.Fatal("its content is not kept")
	}
	p.events = nil
	p.connect()
	p.waitSeconds(120)
	for _, e := range p.events {
		if e.Type == engine.HoldStarted {
			t.Errorf("%s", e.Held.Reason)
		}
	}
	if !p.begun() || p.replica() == nil {
		t.Error("the session does not begin, or the Application is gone")
	}
}

func TestElsewhere_AgentWithoutApplications(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.leaves()
	p.connect()
	if !p.begun() || !p.apps().Complete {
		t.Errorf("begun: %v, %+v", p.begun(), p.apps())
	}
}

// Statuses of an agent that is elsewhere are not kept in the engine.
func TestElsewhere_StatusChanges(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	p.edit(kind.Hub, ref("w1", "a"), `{"sync":{"status":"OutOfSync"}}`, "status")
	status, _ := p.sides[kind.Hub].Status("w1")
	for _, s := range status.Scopes {
		if s.Name == kind.StatusScope && s.Items > 0 {
			t.Errorf("%d items are kept", s.Items)
		}
	}
}

// The agent connects to a replica for the first time, which then learns about the agent. A user deletes an Application before its
// content is read.
func TestElsewhere_FirstSessionWithThisReplica(t *testing.T) {
	p := managedApp(t)
	p.disconnect()
	p.stopHub()
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	p.lists(kind.Hub, Resources()...)
	if !p.cached().IsReduced() {
		t.Fatal("its content is kept")
	}
	p.connect()
	p.removeOnHub(ref("w1", "a"), true)
	p.answer()
	p.waitSeconds(60)
	if !p.begun() || p.spoke(ref("argocd", "a")) != nil {
		t.Error("it is still there: its deletion counts as an absence")
	}
}

// A status is being written when the agent goes to another replica. The Application is deleted before the agent comes back.
func TestElsewhere_DeletedAfterRunningWrite(t *testing.T) {
	p := managedApp(t)
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	var running Write
	p.once(kind.Hub, Update, func(w Write) { running = w })
	p.edit(kind.Spoke, ref("argocd", "a"), `{"sync":{"status":"OutOfSync"}}`, "status")
	p.disconnect()
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	p.step(kind.Hub, WriteResult{ID: running.ID, Object: p.stores[kind.Hub].put(running.Ref, running.Object.Raw(), false)})
	p.removeOnHub(ref("w1", "a"), true)
	p.connect()
	p.answer()
	p.waitSeconds(60)
	if n := p.owned(kind.Hub, "w1", kind.StatusScope); n != 1 {
		t.Errorf("%d Applications have a status, and one exists", n)
	}
}

// This replica reads Applications before AppProjects. A user deletes an Application whose AppProject does not exist.
func TestElsewhere_AppProjectsAreReadLast(t *testing.T) {
	p := managedApp(t)
	p.disconnect()
	p.edit(kind.Hub, ref("w1", "a"), `"unknown"`, "spec", "project")
	p.stopHub()
	p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
	p.lists(kind.Hub, kind.Applications, kind.AppProjects, kind.Secrets, kind.ConfigMaps)
	if !p.cached().IsReduced() {
		t.Fatal("its content is kept")
	}
	p.removeOnHub(ref("w1", "a"), true)
	p.connect()
	p.waitSeconds(60)
	if !p.begun() || p.spoke(ref("argocd", "a")) != nil {
		t.Error("it is still there: its deletion counts as an absence")
	}
}

// AppProjects cannot be read when an Application of another AppProject appears.
func TestElsewhere_AppProjectsAreUnreadable(t *testing.T) {
	p := managedApp(t)
	p.leaves()
	p.step(kind.Hub, Unreadable{Resource: kind.AppProjects, Reason: "forbidden"})
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "unknown", "v1"))
	p.lists(kind.Hub, kind.AppProjects)
	if s := p.apps(); s.Items != 2 || p.sides[kind.Hub].Reduced("w1") != 2 {
		t.Errorf("%d published, %d reduced", s.Items, p.sides[kind.Hub].Reduced("w1"))
	}
}
