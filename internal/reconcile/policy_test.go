package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// testPolicy is a SpokePolicy that forbids what its fields name.
type testPolicy struct {
	repo       string // Applications from it are forbidden
	namespaces string // of projects, instead of "*"; empty: they are not narrowed
	operations bool   // are forbidden
	never      bool   // adopts never
	deletions  int    // in 100 s; 0: no limit
}

func (p testPolicy) Application(o *kind.Object) error {
	if p.repo != "" && rawjson.Text(o.Get("spec"), "source", "repoURL") == p.repo {
		return errors.New("the policy forbids " + p.repo)
	}
	return nil
}

func (p testPolicy) Project(o *kind.Object) (*kind.Object, error) {
	if p.namespaces == "" {
		return o, nil
	}
	return o.WithSpec(bytes.ReplaceAll(o.Get("spec"), []byte(`"namespace":"*"`), []byte(`"namespace":"`+p.namespaces+`"`)))
}

func (p testPolicy) Exceeds(project *kind.Object) error {
	if p.namespaces != "" && bytes.Contains(project.Get("spec"), []byte(`"namespace":"*"`)) {
		return errors.New("the policy forbids namespace *")
	}
	return nil
}

func (p testPolicy) Operation(*kind.Object, []byte) error {
	if p.operations {
		return errors.New("the policy forbids operations")
	}
	return nil
}

func (p testPolicy) NeverAdopts() bool { return p.never }

func (p testPolicy) DeletionBudget() (int, engine.Time, bool) {
	return p.deletions, 100 * engine.Second, p.deletions > 0
}

// setPolicy changes the policy of the spoke. If the session ends, both sides connect again.
func (p *pair) setPolicy(in PolicyChanged) {
	p.t.Helper()
	_, open := p.sides[kind.Spoke].syncs[""].peer.Session()
	closed := false
	for _, e := range p.sides[kind.Spoke].Step(p.now, in) {
		if to, ok := e.(ToPeer); ok {
			_, is := to.Effect.(engine.CloseSession)
			closed = closed || is
		}
	}
	if open != closed {
		p.t.Fatalf("session open %v, closed by the policy %v", open, closed)
	}
	if closed {
		p.disconnect()
		p.connect()
		p.waitSeconds(30)
	}
}

func (p *pair) spokeRevision(name string) string {
	o := p.stores[kind.Spoke].objects[ref("argocd", name)]
	if o == nil {
		return "none"
	}
	return rawjson.Text(o.Get("spec"), "source", "targetRevision")
}

func (p *pair) hubCondition(name string) string {
	return string(p.stores[kind.Hub].objects[ref("w1", name)].Get("status", "conditions"))
}

func TestPolicy_RefusesApplicationAndKeepsWhatIsThere(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.setPolicy(PolicyChanged{ID: "1", Policy: testPolicy{repo: "https://git/x"}})
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	if a, b := p.spokeRevision("a"), p.spokeRevision("b"); a != "v1" || b != "none" {
		t.Fatalf("a has %s, b %s", a, b)
	}
	for _, name := range []string{"a", "b"} {
		if got := p.hubCondition(name); !strings.Contains(got, "the policy forbids https://git/x") {
			t.Errorf("conditions of %s on the hub: %s", name, got)
		}
	}
	p.setPolicy(PolicyChanged{ID: "2", Policy: testPolicy{}})
	if a, b := p.spokeRevision("a"), p.spokeRevision("b"); a != "v2" || b != "v1" {
		t.Errorf("after the policy allows them, a has %s, b %s", a, b)
	}
	if got := p.hubCondition("a"); strings.Contains(got, "forbids") {
		t.Errorf("conditions on the hub: %s", got)
	}
}

// A project that the hub does not own is not narrowed. With adoption never, the hub can still name it.
func TestPolicy_RefusesApplicationOfWiderLocalProject(t *testing.T) {
	project := kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "default"}
	p := newPair(t, kind.Managed)
	p.user(kind.Spoke, project, openProject("default"))
	p.setPolicy(PolicyChanged{ID: "1", Policy: testPolicy{namespaces: "team-*", never: true}})
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	if got := p.spokeRevision("a"); got != "none" {
		t.Fatalf("the spoke has %s", got)
	}
	if got := p.hubCondition("a"); !strings.Contains(got, "the policy forbids namespace *") {
		t.Errorf("conditions on the hub: %s", got)
	}

	narrow := strings.Replace(string(p.stores[kind.Spoke].objects[project].Raw()), `"namespace":"*"`, `"namespace":"team-a"`, 1)
	p.user(kind.Spoke, project, narrow)
	if got := p.spokeRevision("a"); got != "v1" {
		t.Fatalf("with a narrow project the spoke has %s", got)
	}
	p.waitSeconds(30)
	if got := p.hubCondition("a"); strings.Contains(got, "forbids") {
		t.Errorf("conditions on the hub: %s", got)
	}

	p.user(kind.Spoke, project, strings.Replace(narrow, `"namespace":"team-a"`, `"namespace":"*"`, 1))
	p.waitSeconds(30)
	if got := p.hubCondition("a"); !strings.Contains(got, "the policy forbids namespace *") {
		t.Errorf("after the project became wide, conditions on the hub: %s", got)
	}
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
	if got := p.spokeRevision("a"); got != "v1" {
		t.Errorf("the spoke has %s, want what was there", got)
	}
}

func TestPolicy_DoesNotReplaceApplicationWithRefusedOne(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.sides[kind.Spoke].cfg.Policy.Recreate = true
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.setPolicy(PolicyChanged{ID: "1", Policy: testPolicy{repo: "https://git/x"}})
	p.disconnect()
	p.removeOnHub(ref("w1", "a"), false)
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2")) // with another UID
	p.connect()
	p.waitSeconds(60)
	if got := p.spokeRevision("a"); got != "v1" {
		t.Errorf("the spoke has %s", got)
	}
}

func TestPolicy_NarrowsProjects(t *testing.T) {
	project := kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "default"}
	p := newPair(t, kind.Managed)
	p.setPolicy(PolicyChanged{ID: "1", Policy: testPolicy{namespaces: "team-*"}})
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1")) // a project is placed with its Applications
	namespaces := func() string { return string(p.stores[kind.Spoke].objects[project].Get("spec", "destinations")) }
	if got := namespaces(); !strings.Contains(got, "team-*") || strings.Contains(got, `"*"`) && !strings.Contains(got, `"name":"*"`) {
		t.Fatalf("destinations on the spoke: %s", got)
	}
	writes := p.writes
	p.waitSeconds(7200)
	if p.writes != writes {
		t.Errorf("%d writes at rest: the narrowed project must count as equal", p.writes-writes)
	}
	if s, _ := p.sides[kind.Hub].Status("w1"); len(s.Scopes) == 0 {
		t.Fatal("no status")
	} else {
		for _, sc := range s.Scopes {
			if sc.Rejected != 0 {
				t.Errorf("%s: %d rejected", sc.Name, sc.Rejected)
			}
		}
	}

	if s, _ := p.sides[kind.Spoke].Status(""); slices.ContainsFunc(s.Scopes, func(sc engine.ScopeStatus) bool { return sc.Lossy > 0 }) {
		t.Error("a narrowed project counts as not stored as it was written")
	}

	// A user widens it by hand: drift is corrected to what both sides allow.
	wide := strings.Replace(string(p.stores[kind.Spoke].objects[project].Raw()), "team-*", "*", 1)
	p.user(kind.Spoke, project, wide)
	if got := namespaces(); !strings.Contains(got, "team-*") {
		t.Errorf("after a local edit: %s", got)
	}

	p.setPolicy(PolicyChanged{ID: "2", Policy: testPolicy{namespaces: "other"}})
	p.waitSeconds(60)
	if got := namespaces(); !strings.Contains(got, "other") {
		t.Errorf("after another policy: %s", got)
	}
	p.setPolicy(PolicyChanged{ID: "3", Policy: testPolicy{}})
	p.waitSeconds(60)
	if got := namespaces(); strings.Contains(got, "other") {
		t.Errorf("without a limit: %s", got)
	}
}

func TestPolicy_FreezeHoldsEveryChange(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	for _, name := range []string{"a", "b", "c", "d"} {
		p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
	}
	p.setPolicy(PolicyChanged{ID: "1", Policy: testPolicy{}, Frozen: "changes are frozen"})
	writes := p.recordSpoke()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
	p.user(kind.Hub, ref("w1", "e"), app("w1", "e", "default", "v1"))
	p.removeOnHub(ref("w1", "b"), true)
	p.user(kind.Hub, ref("w1", "c"), deleting(t, app("w1", "c", "default", "v1")))
	body := set(t, p.stores[kind.Hub].objects[ref("w1", "d")].Raw(), `{"sync":{"revision":"abc"},"initiatedBy":{"username":"admin"}}`, "operation")
	p.user(kind.Hub, ref("w1", "d"), string(body))
	p.waitSeconds(300)
	if len(*writes) != 0 {
		t.Fatalf("%d writes on the spoke during the freeze, the first is %s %s", len(*writes), (*writes)[0].Verb, (*writes)[0].Ref)
	}
	if got := p.hubCondition("a"); !strings.Contains(got, "changes are frozen") {
		t.Errorf("conditions on the hub: %s", got)
	}
	if got := string(p.stores[kind.Hub].objects[ref("w1", "d")].Get("status", "operationState")); !strings.Contains(got, "changes are frozen") {
		t.Errorf("state of the operation on the hub: %s", got)
	}

	p.setPolicy(PolicyChanged{ID: "1", Policy: testPolicy{}})
	p.waitSeconds(60)
	if a, b, c, e := p.spokeRevision("a"), p.spokeRevision("b"), p.spokeRevision("c"), p.spokeRevision("e"); a != "v2" || b != "none" || c != "none" || e != "v1" {
		t.Errorf("after the freeze: a %s, b %s, c %s, e %s", a, b, c, e)
	}
}

func TestPolicy_RefusesOperations(t *testing.T) {
	for _, mode := range []kind.Mode{kind.Managed, kind.Autonomous} {
		p := newPair(t, mode)
		p.setPolicy(PolicyChanged{ID: "1", Policy: testPolicy{operations: true}})
		p.connect()
		if mode == kind.Managed {
			p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
		} else {
			p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
		}
		body := set(t, p.stores[kind.Hub].objects[ref("w1", "a")].Raw(), `{"sync":{"manifests":["{}"]},"initiatedBy":{"username":"admin"}}`, "operation")
		p.user(kind.Hub, ref("w1", "a"), string(body))
		p.waitSeconds(30)
		if op := p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("operation"); op != nil {
			t.Errorf("%s: the operation runs: %s", mode, op)
		}
		hub := p.stores[kind.Hub].objects[ref("w1", "a")]
		if got := string(hub.Get("status", "operationState")); !strings.Contains(got, "the policy forbids operations") || !strings.Contains(got, `"phase":"Error"`) {
			t.Errorf("%s: state of the operation on the hub: %s", mode, hub.Raw())
		}
	}
}

func TestPolicy_LimitsDeletions(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.setPolicy(PolicyChanged{ID: "1", Policy: testPolicy{deletions: 2}})
	p.connect()
	for i := range 6 {
		p.user(kind.Hub, ref("w1", fmt.Sprint("a", i)), app("w1", fmt.Sprint("a", i), "default", "v1"))
	}
	left := func() (n int) {
		for r := range p.stores[kind.Spoke].objects {
			if r.Resource == kind.Applications {
				n++
			}
		}
		return n
	}
	p.removeOnHub(ref("w1", "a0"), true)
	p.user(kind.Hub, ref("w1", "a1"), deleting(t, app("w1", "a1", "default", "v1")))
	p.removeOnHub(ref("w1", "a2"), true)
	p.user(kind.Hub, ref("w1", "a3"), deleting(t, app("w1", "a3", "default", "v1")))
	p.waitSeconds(50)
	if left() != 4 {
		t.Fatalf("%d Applications are left, want 4: two deletions are allowed in 100 s", left())
	}
	p.waitSeconds(300)
	if left() != 2 {
		t.Errorf("%d Applications are left after the window, want 2", left())
	}
}

// A hub that can make the agent restart must not get a new budget with it.
func TestPolicy_DeletionBudgetSurvivesRestart(t *testing.T) {
	limit := PolicyChanged{ID: "1", Policy: testPolicy{deletions: 1}}
	p := newPair(t, kind.Managed)
	p.setPolicy(limit)
	p.connect()
	for i := range 6 {
		p.user(kind.Hub, ref("w1", fmt.Sprint("a", i)), app("w1", fmt.Sprint("a", i), "default", "v1"))
	}
	memory := p.remembered()
	p.removeOnHub(ref("w1", "a0"), true)
	if got := p.spokeRevision("a0"); got != "none" || len(memory.Deletions) != 1 {
		t.Fatalf("the first deletion: the spoke has %s, %d deletions are remembered", got, len(memory.Deletions))
	}

	text := FormatDeletions(memory.Deletions)
	memory.Deletions = ParseDeletions(text)
	if again := FormatDeletions(memory.Deletions); again != text {
		t.Fatalf("%q is read as %q", text, again)
	}
	q := p.restartWith(*memory, uint64(p.stores[kind.Hub].rev), sortedStore(p.stores[kind.Hub])...)
	other := q.sides[kind.Spoke].cfg
	other.KnownDeletions = nil
	suspended := New(other) // it was started earlier, and learns of the deletion before its next session
	if suspended.Step(q.now, Remembered{Memory: *memory}); !slices.Equal(suspended.Memory().Deletions, memory.Deletions) {
		t.Errorf("another process knows of %v", suspended.Memory().Deletions)
	}
	q.step(kind.Spoke, limit)
	q.connect()
	q.removeOnHub(ref("w1", "a1"), true)
	q.waitSeconds(60)
	if got := q.spokeRevision("a1"); got != "v1" {
		t.Fatal("after a restart, a second Application was deleted in the same window")
	}
	q.waitSeconds(300)
	if got := q.spokeRevision("a1"); got != "none" {
		t.Error("the second Application is not deleted in the next window")
	}
}

func TestMemory_DeletionsAreBoundedAndExpire(t *testing.T) {
	var many []Deletion
	for i := range MaxDeletions + 10 {
		many = append(many, Deletion{UID: fmt.Sprint("uid-", i), At: engine.Time(i), Until: engine.Time(i) + 1_000_000})
	}
	both := Memory{Deletions: many[:MaxDeletions]}.With(Memory{Deletions: many[5:]})
	if len(both.Deletions) != MaxDeletions || both.Deletions[0].UID != "uid-10" {
		t.Errorf("%d deletions, the first is %s", len(both.Deletions), both.Deletions[0].UID)
	}
	late := Deletion{UID: "late", At: 2_000_000, Until: 3_000_000}
	if got := both.With(Memory{Deletions: []Deletion{late}}).Deletions; len(got) != 1 || got[0] != late {
		t.Errorf("after the window, %d deletions are left", len(got))
	}
	if got := ParseDeletions("x=1+2 y=1 =1+2 z=a+b w=5+-1"); len(got) != 1 || got[0] != (Deletion{UID: "x", At: 1, Until: 3}) {
		t.Errorf("%v", got)
	}
}

func TestPolicy_NeverAdopts(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.setPolicy(PolicyChanged{ID: "1", Policy: testPolicy{never: true}})
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "local"))
	p.connect()
	body := strings.Replace(app("w1", "a", "default", "v1"), `"namespace":"w1"`, `"namespace":"w1","annotations":{"argocd.argoproj.io/adoption-policy":"always"}`, 1)
	p.user(kind.Hub, ref("w1", "a"), body)
	if got := p.spokeRevision("a"); got != "local" {
		t.Errorf("the spoke has %s", got)
	}
	if got := p.hubCondition("a"); !strings.Contains(got, "AgentPolicy") {
		t.Errorf("conditions on the hub: %s", got)
	}
}
