package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// planOf returns the plan of a rebuild with these agents, of a hub with these objects.
func planOf(t *testing.T, flags rebuildFlags, existing []string, list ...rebuildAgent) *rebuildPlan {
	t.Helper()
	plan := &rebuildPlan{Identity: "lost", flags: flags, Agents: list, existing: map[kind.Resource][]*kind.Object{}}
	for _, text := range existing {
		o := parsedObject(t, text)
		r := map[string]kind.Resource{"AppProject": kind.AppProjects, "Application": kind.Applications, "Secret": kind.Secrets, "ConfigMap": kind.ConfigMaps}
		var named struct{ Kind string }
		if err := json.Unmarshal(o.Raw(), &named); err != nil {
			t.Fatal(err)
		}
		plan.existing[r[named.Kind]] = append(plan.existing[r[named.Kind]], o)
	}
	plan.compare(plan.restore())
	return plan
}

func parsedObject(t *testing.T, text string) *kind.Object {
	t.Helper()
	o, err := kind.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// agentWith returns an agent that has these replicas, as SCOPE NAME CONTENT.
func agentWith(name string, replicas ...[3]string) rebuildAgent {
	a := rebuildAgent{Name: name, State: agentRead, env: &kind.Env{Side: kind.Hub, HubArgoNamespace: "argocd", PrincipalUID: "lost", Projection: engine.ProjectionMax,
		Agent: kind.Agent{Name: name, Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: name, Server: "https://proxy?agentName=" + name}}}
	for _, r := range replicas {
		a.replicas = append(a.replicas, reconcile.Replica{Scope: r[0], Name: r[1], Content: json.RawMessage(r[2])})
	}
	return a
}

func projectPart(uid, repos string) [3]string {
	return [3]string{kind.AppProjectScope, "shop", `{"spec":{"destinations":[{"name":"in-cluster","namespace":"*","server":"https://kubernetes.default.svc"}],"sourceRepos":["` + repos + `"]},"uid":"` + uid + `"}`}
}

func appPart(name string) [3]string {
	return [3]string{kind.ApplicationScope, name, `{"spec":{"destination":{"name":"in-cluster","namespace":"x"},"project":"shop","source":{"repoURL":"u"}},"uid":"u-` + name + `"}`}
}

func secretPart(url string) [3]string {
	return [3]string{kind.RepositoryScope, "repo", `{"data":{"project":"c2hvcA==","url":"` + url + `"},"metadata":{"labels":{"argocd.argoproj.io/secret-type":"repository"}},"uid":"u-repo"}`}
}

func (r *rebuildPlan) summary() string {
	var lines []string
	for i := range r.Objects {
		lines = append(lines, r.Objects[i].name()+" "+r.Objects[i].Action)
	}
	for _, d := range r.Differences {
		lines = append(lines, fmt.Sprintf("%s: %s %s %s", d.Agent, d.Kind, d.Name, d.State))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestRebuildPlan_Decides(t *testing.T) {
	skip := func(names ...string) rebuildFlags { return rebuildFlags{skip: names} }
	deleting := agentWith("a", projectPart("p", "x"), appPart("web"))
	deleting.replicas[1].Deleting = true
	limited := agentWith("a", projectPart("p", "x"), secretPart("dQ=="))
	limited.kinds = []string{"appprojects", "applications"}
	for _, c := range []struct {
		name     string
		flags    rebuildFlags
		existing []string
		agents   []rebuildAgent
		want     string
		blocked  string // if empty, nothing prevents --apply
	}{
		{"two agents", rebuildFlags{}, nil, []rebuildAgent{agentWith("a", projectPart("p", "x"), appPart("web"), secretPart("dQ==")), agentWith("b", projectPart("p", "x"), appPart("web"), secretPart("dQ=="))},
			"application/a/web create\napplication/b/web create\nappproject/argocd/shop create\nrepository/argocd/repo create", ""},
		{"different content", rebuildFlags{}, nil, []rebuildAgent{agentWith("a", projectPart("p", "x")), agentWith("b", projectPart("p", "y"))},
			"a: appproject argocd/shop extra\nappproject/argocd/shop refuse\nb: appproject argocd/shop extra", "1 object not certain: appproject/argocd/shop"},
		{"different content, skipped", skip("appproject/argocd/shop"), nil, []rebuildAgent{agentWith("a", projectPart("p", "x")), agentWith("b", projectPart("p", "y"))},
			"appproject/argocd/shop skip", ""},
		{"a skipped object would be deleted", rebuildFlags{skip: []string{"appproject/argocd/shop"}, confirm: true}, nil, []rebuildAgent{agentWith("a", projectPart("p", "x"))},
			"a: appproject argocd/shop extra\nappproject/argocd/shop skip", "1 difference"},
		{"credentials of one agent would reach another", rebuildFlags{}, nil, []rebuildAgent{agentWith("a", projectPart("p", "x"), secretPart("dQ==")), agentWith("b", projectPart("p", "x"))},
			"appproject/argocd/shop create\nb: repository argocd/repo missing\nrepository/argocd/repo create", "1 difference"},
		{"an Application without its project", rebuildFlags{}, nil, []rebuildAgent{agentWith("a", appPart("web"))}, "application/a/web create", ""},
		{"deleted while the hub was lost", rebuildFlags{}, nil, []rebuildAgent{deleting}, "application//web skip\nappproject/argocd/shop create", ""},
		{"a user has created it", rebuildFlags{}, []string{`{"kind":"Application","metadata":{"name":"web","namespace":"a","uid":"n"},"spec":{"destination":{"name":"a","namespace":"x"},"project":"shop","source":{"repoURL":"other"}}}`},
			[]rebuildAgent{agentWith("a", projectPart("p", "x"), appPart("web"))}, "a: application a/web differs\napplication/a/web claim\nappproject/argocd/shop create", "1 difference"},
		{"a kind that the Agent no longer has", rebuildFlags{}, nil, []rebuildAgent{limited}, "a: repository argocd/repo extra\nappproject/argocd/shop create\nrepository/argocd/repo create", "1 difference"},
		{"not read", rebuildFlags{}, nil, []rebuildAgent{{Name: "a", State: agentUnread}}, "", "1 agent not read: a"},
		{"left out", rebuildFlags{}, nil, []rebuildAgent{{Name: "a", State: agentWithout}, agentWith("b", projectPart("p", "x"))}, "appproject/argocd/shop create", ""},
		{"withheld", rebuildFlags{}, nil, []rebuildAgent{{Name: "a", State: agentRead, withheld: 2, env: agentWith("a").env}}, "", "withholds 2 objects"},
	} {
		plan := planOf(t, c.flags, c.existing, c.agents...)
		if got := plan.summary(); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		err := plan.blocked()
		if c.blocked == "" && err != nil || c.blocked != "" && (err == nil || !strings.Contains(err.Error(), c.blocked)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.blocked)
		}
	}
}

// One agent cannot raise the generation of the hub so far that it can never be promoted again.
func TestRebuildPlan_GenerationOfAgentIsBounded(t *testing.T) {
	for known, blocked := range map[uint64]bool{0: false, 7: false, hubstate.MaxGeneration: true, math.MaxUint64: true} {
		a := agentWith("w1", appPart("web"))
		a.known = known
		plan := planOf(t, rebuildFlags{skip: []string{"application/w1/web"}}, nil, a)
		if err := plan.blocked(); (err != nil && strings.Contains(err.Error(), "--without")) != blocked {
			t.Errorf("generation %d: %v", known, err)
		}
	}
}

// The lost hub was promoted, and only one agent has followed it since. Agents do not follow the lost hub if it returns.
func TestRebuildPlan_GenerationIsLaterThanThatOfTheLostHub(t *testing.T) {
	for _, tc := range []struct {
		own   uint64
		known []uint64
		want  uint64
	}{{1, []uint64{0}, 2}, {1, []uint64{1, 5, 1}, 6}, {7, []uint64{5}, 8}} {
		plan := &rebuildPlan{}
		for _, known := range tc.known {
			plan.Agents = append(plan.Agents, rebuildAgent{known: known})
		}
		if got := plan.nextGeneration(tc.own); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}

// Autonomous agents are asked for the generation of the lost hub too. One that cannot be asked is named.
func TestRebuildPlan_AsksAutonomousAgentsForTheGeneration(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/agents/auto/replicas":
			_ = json.NewEncoder(w).Encode(reconcile.ReplicaPage{Generation: map[string]uint64{"lost": 9}[r.URL.Query().Get("hub")]})
		case "/v1/agents/gone/replicas":
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte(`{"error":"not connected"}`))
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	plan := &rebuildPlan{Identity: "lost", Agents: []rebuildAgent{{Name: "auto", State: agentAutonomous}, {Name: "gone", State: agentAutonomous}, {Name: "w1", State: agentRead, known: 3}, {Name: "left", State: agentWithout}}}
	if err := plan.readGenerations(t.Context(), &searchClient{base: server.URL, http: server.Client()}); err != nil {
		t.Fatal(err)
	}
	if got := plan.nextGeneration(1); got != 10 {
		t.Errorf("generation %d", got)
	}
	if plan.Agents[1].State != agentAutonomous || len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0], "gone") {
		t.Errorf("%+v, %q", plan.Agents[1], plan.Warnings)
	}
}

func TestRebuildPlan_AgentsAgreeOnTheLostHub(t *testing.T) {
	for _, c := range []struct {
		hubs   []map[string]int
		wanted string
		want   string
		err    string
	}{
		{[]map[string]int{{"x": 2}, {"x": 1}, nil}, "", "x", ""},
		{[]map[string]int{{"x": 2}, {"y": 1}}, "", "", "several hubs: x on a0; y on a1"},
		{[]map[string]int{{"x": 2}, {"y": 1}}, "y", "y", ""},
		{[]map[string]int{{"x": 2}}, "z", "", "no agent has an object of this hub"},
		{[]map[string]int{nil}, "", "", "nothing to restore"},
	} {
		var plan rebuildPlan
		for i, hubs := range c.hubs {
			plan.Agents = append(plan.Agents, rebuildAgent{Name: fmt.Sprint("a", i), hubs: hubs})
		}
		err := plan.identify(c.wanted)
		if plan.Identity != c.want || c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%v, %q: %q %v", c.hubs, c.wanted, plan.Identity, err)
		}
	}
}

func TestRebuildPlan_RefusesAHubThatIsNotEmpty(t *testing.T) {
	app := func(name, annotations, destination string) *kind.Object {
		return parsedObject(t, `{"metadata":{"name":"`+name+`","namespace":"argocd","annotations":{`+annotations+`}},"spec":{"destination":{`+destination+`}}}`)
	}
	mine := `"argocd.argoproj.io/source-uid":"s","argocd.argoproj.io/principal-uid":"lost"`
	plan := rebuildPlan{Identity: "lost", existing: map[kind.Resource][]*kind.Object{kind.Applications: {
		app("restored", mine, `"name":"a"`), app("of-the-hub", "", `"name":"in-cluster"`), app("also-of-the-hub", "", `"server":"https://kubernetes.default.svc"`),
		app("replica", mine+`,"argocd-agent.argoproj-labs.io/agent-name":"auto"`, `"name":"auto"`)}}}
	if err := plan.checkEmpty(); err != nil {
		t.Error(err)
	}
	plan.existing[kind.Applications] = append(plan.existing[kind.Applications], app("users", "", `"name":"a"`), app("other", strings.Replace(mine, "lost", "x", 1), `"name":"a"`))
	if err := plan.checkEmpty(); err == nil || !strings.Contains(err.Error(), "2 Applications") || !strings.Contains(err.Error(), "argocd/users") {
		t.Errorf("%v", err)
	}
}

func TestRebuildPlan_WarnsAboutWhatUsersMustCheck(t *testing.T) {
	a := agentWith("a", projectPart("p", "x"), [3]string{kind.ApplicationScope, "web",
		`{"metadata":{"annotations":{"notifications.argoproj.io/subscribe.on-sync.slack":"x"}},"spec":{"destination":{"name":"in-cluster"},"project":"shop"},"uid":"u"}`})
	a.replicas[1].Changed, a.replicas[1].Lost = true, []string{"spec.new"}
	plan := planOf(t, rebuildFlags{}, nil, a)
	for _, want := range []string{"was changed on the workload cluster", "lacks fields that the workload cluster did not store: spec.new", "notifications.argoproj.io/subscribe.on-sync.slack"} {
		if !slices.ContainsFunc(plan.Warnings, func(w string) bool { return strings.Contains(w, want) && strings.Contains(w, "a/web of agent a") }) {
			t.Errorf("no warning %q in %q", want, plan.Warnings)
		}
	}
}
