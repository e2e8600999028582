package kind

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

const tenantProject = `{"destinations":[{"name":"one","namespace":"team-*"}],"sourceNamespaces":["one-*"]}`

// withProjects returns a world of the hub that has these AppProjects, by name and
// spec.
func withProjects(t testing.TB, w *Env, projects map[string]string) *Env {
	t.Helper()
	w.Find = func(r Ref) *Object {
		spec, ok := projects[r.Name]
		if !ok || r.Resource != AppProjects || r.Namespace != w.HubArgoNamespace {
			return nil
		}
		return object(t, `{"metadata":{"name":"`+r.Name+`","namespace":"argocd","uid":"p"},"spec":`+spec+`}`)
	}
	return w
}

func placedApp(t testing.TB, namespace, project, destination string) *Object {
	t.Helper()
	return object(t, `{"metadata":{"name":"x","namespace":"`+namespace+`","uid":"u","resourceVersion":"1","labels":{"team":"x"}},
		"spec":{"project":"`+project+`","destination":`+destination+`,"source":{"repoURL":"r"}}}`)
}

// An Application is published, reported and given commands only if its
// destination is the agent of its namespace.
func TestPlace_BindsApplicationToItsAgent(t *testing.T) {
	anywhere := func() *Env {
		w := newEnv(Hub, Managed, ByDestination)
		w.Settings.AllowedNamespaces = []string{"*"}
		return w
	}
	const server = "https://proxy:9090?agentName=one"
	for _, c := range []struct {
		name        string
		w           *Env
		destination string
		want        Placement
		why         string
	}{
		{"named", managedHub(), `{"name":"one","namespace":"n"}`, Placed, ""},
		{"by its URL", managedHub(), `{"server":"` + server + `","namespace":"n"}`, Placed, ""},
		{"an empty server counts as none", managedHub(), `{"name":"one","server":""}`, Placed, ""},
		{"another agent", managedHub(), `{"name":"two","namespace":"payments"}`, Frozen, `spec.destination is "two", which is not the cluster of agent "one"`},
		{"another agent's URL", managedHub(), `{"server":"https://proxy:9090?agentName=two"}`, Frozen, "agentName=two"},
		{"the hub, by name", managedHub(), `{"name":"in-cluster","namespace":"argocd"}`, Frozen, `is "in-cluster"`},
		{"the hub, by URL", managedHub(), `{"server":"https://kubernetes.default.svc","namespace":"argocd"}`, Frozen, "kubernetes.default.svc"},
		{"a cluster that Argo CD reaches directly", managedHub(), `{"server":"https://10.0.0.1"}`, Frozen, "10.0.0.1"},
		{"both, of the agent", managedHub(), `{"name":"one","server":"` + server + `"}`, Frozen, "has both a name"},
		{"both, one of another", managedHub(), `{"name":"one","server":"https://kubernetes.default.svc"}`, Frozen, "has both a name"},
		{"neither", managedHub(), `{"namespace":"n"}`, Frozen, "has neither"},
		{"not an object", managedHub(), `"one"`, Frozen, "has neither"},
		{"a longer URL", managedHub(), `{"server":"` + server + `x"}`, Frozen, "agentName=onex"},
		{"a URL with a slash, which Argo CD does not find", managedHub(), `{"server":"` + server + `/"}`, Frozen, "agentName=one/"},

		{"destination mapping, named", anywhere(), `{"name":"one"}`, Placed, ""},
		{"destination mapping, by its URL", anywhere(), `{"server":"` + server + `"}`, Placed, ""},
		{"destination mapping, another agent", anywhere(), `{"name":"two"}`, NotPlaced, ""},
		{"destination mapping, the hub", anywhere(), `{"server":"https://kubernetes.default.svc"}`, NotPlaced, ""},
		{"destination mapping, nothing", anywhere(), `{}`, NotPlaced, ""},
		{"destination mapping, both", anywhere(), `{"name":"one","server":"https://10.0.0.1"}`, Frozen, "has both a name"},
		{"destination mapping, another by name and this one by URL", anywhere(), `{"name":"two","server":"` + server + `"}`, NotPlaced, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			app := placedApp(t, "one-ns", "p", c.destination)
			_, placement, why := Place(app, c.w)
			if placement != c.want || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
				t.Errorf("%v: %q, want %v with %q", placement, why, c.want, c.why)
			}
			checkPlacement(t, app, c.w, c.want)
		})
	}
}

// checkPlacement checks that everything that depends on the placement of an
// Application of a managed agent agrees with it.
func checkPlacement(t *testing.T, app *Object, w *Env, want Placement) {
	t.Helper()
	item, published := ApplicationKind{}.Publish(app, w)
	if published != (want == Placed || want == Frozen) {
		t.Errorf("published: %v", published)
	}
	if frozen := published && IsFrozen(item.Content); frozen != (want == Frozen) {
		t.Errorf("published as frozen: %v", frozen)
	}
	if want == Frozen {
		expectJSON(t, "content", item.Content, `{"frozen":true,"uid":"u","metadata":{"annotations":{"argocd.argoproj.io/source-uid-mismatch-policy":"upsert"}}}`)
		if item.DependsOn != (engine.Key{}) || item.Extra != nil {
			t.Errorf("needs %v, extra %s", item.DependsOn, item.Extra)
		}
	}
	if _, reports := StatusKey(app, w); reports != (want == Placed) {
		t.Errorf("status is taken: %v", reports)
	}
	if _, held := (StatusKind{}).ReadReplica(app, w); held != (want == Placed) {
		t.Errorf("status is read: %v", held)
	}
	d := edit(app)
	d.top.Set("operation", []byte(`{"sync":{},"info":[{"name":"argocd-agent/command","value":"c1"}]}`))
	clicked, err := d.done()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := (CommandKind{}).Publish(clicked, w); ok != (want == Placed) {
		t.Errorf("command is delivered: %v", ok)
	}
	if _, ok := Pending(clicked, w); ok != (want == Placed) {
		t.Errorf("command is pending: %v", ok)
	}
}

// The principal enforces what a hub without an application controller does not:
// the AppProject's destinations and sourceNamespaces.
func TestPlace_RequiresPermissionOfProject(t *testing.T) {
	scoped := `{"destinations":[{"name":"*","namespace":"*"}],"sourceNamespaces":["*"],"permitOnlyProjectScopedClusters":true}`
	for _, c := range []struct {
		name        string
		project     string // spec; empty: there is none
		namespace   string // of the Application
		destination string
		change      func(*Env)
		want        Placement
		why         string
	}{
		{"permitted", tenantProject, "one-ns", `{"name":"one","namespace":"team-a"}`, nil, Placed, ""},
		{"no such project", ``, "one-ns", `{"name":"one","namespace":"team-a"}`, nil, Frozen, `AppProject "p" does not exist`},
		{"another agent's project", `{"destinations":[{"name":"two","namespace":"*"}],"sourceNamespaces":["*"]}`, "one-ns", `{"name":"one","namespace":"n"}`, nil, Frozen, `does not permit namespace "n" of the cluster of agent "one"`},
		{"a namespace that it does not permit", tenantProject, "one-ns", `{"name":"one","namespace":"kube-system"}`, nil, Frozen, `does not permit namespace "kube-system"`},
		{"a namespace that it denies", `{"destinations":[{"server":"*","namespace":"!kube-system"},{"server":"*","namespace":"*"}],"sourceNamespaces":["*"]}`, "one-ns", `{"name":"one","namespace":"kube-system"}`, nil, Frozen, `does not permit namespace "kube-system"`},
		{"by the URL of the cluster", `{"destinations":[{"server":"*agentName=one","namespace":"*"}],"sourceNamespaces":["*"]}`, "one-ns", `{"name":"one","namespace":"n"}`, nil, Placed, ""},
		{"no destination at all", `{"sourceNamespaces":["*"]}`, "one-ns", `{"name":"one","namespace":"n"}`, nil, Frozen, "does not permit"},
		{"no namespace of Applications", `{"destinations":[{"name":"*","namespace":"*"}]}`, "one-ns", `{"name":"one"}`, nil, Frozen, `does not permit Applications in namespace "one-ns"`},
		{"another namespace of Applications", `{"destinations":[{"name":"*","namespace":"*"}],"sourceNamespaces":["two-*","/^x$/"]}`, "one-ns", `{"name":"one"}`, nil, Frozen, `does not permit Applications in namespace "one-ns"`},
		{"a regular expression for them", `{"destinations":[{"name":"*","namespace":"*"}],"sourceNamespaces":["/^one-(ns|x)$/"]}`, "one-ns", `{"name":"one"}`, nil, Placed, ""},
		{"Argo CD's own namespace needs no mention", `{"destinations":[{"name":"*","namespace":"*"}]}`, "argocd", `{"name":"one"}`, func(w *Env) { w.Agent.HubNamespace = "argocd" }, Placed, ""},
		{"destination mapping, too", `{"destinations":[{"name":"*","namespace":"*"}],"sourceNamespaces":["two-*"]}`, "team-a", `{"name":"one"}`, func(w *Env) {
			w.Agent.Mapping, w.Settings.AllowedNamespaces = ByDestination, []string{"*"}
		}, Frozen, `does not permit Applications in namespace "team-a"`},
		{"only clusters of its own, and this is none", scoped, "one-ns", `{"name":"one"}`, nil, Frozen, "permits only clusters of its own"},
		{"only clusters of its own, and this is another project's", scoped, "one-ns", `{"name":"one"}`, func(w *Env) { w.Agent.Project = "q" }, Frozen, "permits only clusters of its own"},
		{"only clusters of its own, and this is one", scoped, "one-ns", `{"name":"one"}`, func(w *Env) { w.Agent.Project = "p" }, Placed, ""},
		{"a cluster of another project, of which Argo CD takes no notice", tenantProject, "one-ns", `{"name":"one","namespace":"team-a"}`, func(w *Env) { w.Agent.Project = "q" }, Placed, ""},
		{"the project is not selected", tenantProject, "one-ns", `{"name":"one","namespace":"team-a"}`, func(w *Env) {
			w.Settings.LabelSelector, _ = ParseSelector("team=x") // of which the Application is, below
		}, Frozen, `AppProject "p" is not sent to agents`},
		{"a global project permits it", `{"sourceNamespaces":["*"]}`, "one-ns", `{"name":"one","namespace":"shared"}`, func(w *Env) {
			w.GlobalProjects = []GlobalProject{{Name: "global", Selector: everything{}}}
		}, Placed, ""},
		{"a global project that is not there does not", `{"sourceNamespaces":["*"]}`, "one-ns", `{"name":"one","namespace":"shared"}`, func(w *Env) {
			w.GlobalProjects = []GlobalProject{{Name: "missing", Selector: everything{}}}
		}, Frozen, "does not permit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			projects := map[string]string{"global": `{"destinations":[{"name":"*","namespace":"shared"}]}`}
			if c.project != "" {
				projects["p"] = c.project
			}
			w := withProjects(t, managedHub(), projects)
			if c.change != nil {
				c.change(w)
			}
			app := placedApp(t, c.namespace, "p", c.destination)
			_, placement, why := Place(app, w)
			if placement != c.want || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
				t.Errorf("%v: %q, want %v with %q", placement, why, c.want, c.why)
			}
			checkPlacement(t, app, w, c.want)
			if project := w.find(AppProjects, "argocd", "p"); placement == Placed && !PlacedProject(project, w) {
				t.Error("the Application is placed, and its AppProject is not")
			}
		})
	}
}

type everything struct{}

func (everything) Matches(map[string]string) bool { return true }

func TestPlace_WaitsForProjects(t *testing.T) {
	w := managedHub()
	w.Rules = func(string) (*ProjectRules, bool) { return nil, false }
	app := placedApp(t, "one-ns", "p", `{"name":"one"}`)
	if _, p, why := Place(app, w); p != Undecided || why != "" {
		t.Errorf("%v: %q", p, why)
	}
	if item, ok := (ApplicationKind{}).Publish(app, w); ok {
		t.Errorf("published as %s", item.Content)
	}
	if _, ok := StatusKey(app, w); ok {
		t.Error("status is taken")
	}
	// What the destination alone decides needs no project.
	if _, p, _ := Place(placedApp(t, "one-ns", "p", `{"name":"two"}`), w); p != Frozen {
		t.Errorf("another destination: %v", p)
	}
}

func TestPlace_NoTreeForReplicaWithAnotherDestination(t *testing.T) {
	for destination, want := range map[string]Placement{
		`{"name":"one","namespace":"n"}`:                           Placed,
		`{"name":"two"}`:                                           Frozen,
		`{"name":"in-cluster"}`:                                    Frozen,
		`{"server":"https://kubernetes.default.svc"}`:              Frozen,
		`{"name":"one","server":"https://kubernetes.default.svc"}`: Frozen,
		`{}`: Frozen,
	} {
		app := object(t, `{"metadata":{"name":"a","namespace":"one-ns","uid":"u","annotations":{"argocd.argoproj.io/source-uid":"s",
			"argocd.argoproj.io/principal-uid":"hub-1","argocd-agent.argoproj-labs.io/agent-name":"one"}},"spec":{"project":"one-p","destination":`+destination+`}}`)
		w := withProjects(t, autoHub(), nil) // the spoke's rules count, not the hub's
		_, placement, _ := Place(app, w)
		if _, reports := StatusKey(app, w); placement != want || reports != (want == Placed) {
			t.Errorf("%s: %v, status is taken: %v", destination, placement, reports)
		}
		if held, ok := (ApplicationKind{}).ReadReplica(app, w); !ok || !held.Ownership.Owned {
			t.Errorf("%s: the edit would not be undone", destination)
		}
	}
}

// An agent that does not know frozen items refuses them and leaves alone what it
// has.
func TestFrozen_OlderAgentRejectsItem(t *testing.T) {
	item, _ := ApplicationKind{}.Publish(placedApp(t, "one-ns", "p", `{"name":"two"}`), managedHub())
	local := object(t, `{"metadata":{"name":"x","namespace":"argo","uid":"l",`+marked+`},"spec":{"project":"p","destination":{"name":"in-cluster"}}}`)
	for name, there := range map[string]*Object{"nothing there": nil, "something there": local} {
		_, err := ApplicationKind{}.Merge(there, item.Key, item.Content, nil, Ownership{Owned: true}, managedSpoke())
		expectRejected(t, name, err, engine.Invalid)
	}
	if Deleting(item.Content) {
		t.Error("it would be deleted with its resources")
	}
	if ContentAnnotation(item.Content, UIDMismatchPolicy) != "upsert" {
		t.Error("an Application of another UID would be deleted first")
	}
}

func TestFrozen_ConditionNamesReasonAndAction(t *testing.T) {
	app := placedApp(t, "one-ns", "p", `{"name":"two"}`)
	_, _, why := Place(app, managedHub())
	message := FrozenMessage(app, why)
	for _, part := range []string{"Frozen: ", `is "two"`, `Set spec.destination.name to "one"`, "stays as it is"} {
		if !strings.Contains(message, part) {
			t.Errorf("%q does not say %q", message, part)
		}
	}
	if strings.Contains(message, "finalizer") {
		t.Errorf("%q speaks of a deletion", message)
	}
	shown := SetCondition(app, ConditionError, message, day)
	if !ShowsFrozen(shown) || ShowsFrozen(app) || ShowsFrozen(SetCondition(app, ConditionError, "Invalid: x", day)) {
		t.Error("the condition is not distinguished from others")
	}
	deleted := object(t, `{"metadata":{"name":"x","namespace":"one-ns","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["resources-finalizer.argocd.argoproj.io"]},"spec":{}}`)
	if message := FrozenMessage(deleted, why); !strings.Contains(message, "remove its finalizer resources-finalizer.argocd.argoproj.io") {
		t.Errorf("%q does not say how to delete it", message)
	}
}

// Argo CD calls the hub's own cluster by this name.
func TestAgent_CannotBeNamedInCluster(t *testing.T) {
	expectRejected(t, "in-cluster", ValidateAgentName("in-cluster"), engine.Invalid)
	w := managedHub()
	w.Agent.Name = "in-cluster"
	if _, p, _ := Place(placedApp(t, "one-ns", "p", `{"name":"in-cluster"}`), w); p == Placed {
		t.Error("an Application for the hub's own cluster is placed")
	}
	w = managedHub()
	w.Agent.Server = "https://kubernetes.default.svc/"
	if _, p, _ := Place(placedApp(t, "one-ns", "p", `{"server":"https://kubernetes.default.svc"}`), w); p == Placed {
		t.Error("an Application for the hub's own URL is placed")
	}
}
