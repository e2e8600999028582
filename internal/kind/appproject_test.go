package kind

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

func project(t *testing.T, spec string) *Object {
	t.Helper()
	return object(t, `{"metadata":{"name":"p","namespace":"argocd","uid":"u"},"spec":`+spec+`}`)
}

// The rule is that of Argo CD's AppProject.IsDestinationPermitted, quirks
// included.
func TestAppProject_SelectsAgent(t *testing.T) {
	for _, c := range []struct {
		destinations string
		want         bool
	}{
		{`[]`, false},
		{`[{"name":"one","namespace":"n"}]`, true},
		{`[{"name":"two","namespace":"n"}]`, false},
		{`[{"name":"o*","namespace":"n"}]`, true},
		{`[{"name":"{one,two}","namespace":"n"}]`, true},
		{`[{"server":"*","namespace":"*"}]`, true},
		{`[{"server":"https://proxy:9090?agentName=one","namespace":"*"}]`, true},
		{`[{"server":"*?agentName=o*","namespace":"*"}]`, true},
		{`[{"server":"*?agentName=two","namespace":"*"}]`, false},
		{`[{"server":"https://kubernetes.default.svc","namespace":"*"}]`, false},
		{`[{"name":"one"}]`, true}, // for an Application without a namespace
		{`[{"name":"!two","namespace":"*"}]`, true},
		{`[{"name":"!one","namespace":"*"}]`, false},
		{`[{"name":"*","namespace":"*"},{"name":"!one","namespace":"x"}]`, false},
		{`[{"name":"*","namespace":"*"},{"name":"!two","namespace":"*"}]`, true},
		{`[{"server":"*","namespace":"*"},{"server":"!*agentName=one","namespace":"*"}]`, false},
		{`[{"server":"*","namespace":"*"},{"server":"!*agentName=one","namespace":"kube-system"}]`, true},
		{`[{"server":"*","namespace":"kube-system"},{"server":"!*agentName=one","namespace":"kube-*"}]`, false},
		{`[{"server":"*","namespace":"!kube-system"}]`, true},
		{`[{"server":"*","namespace":"kube-system"},{"server":"*","namespace":"!kube-system"}]`, true},
		{`[{"server":"*","namespace":"team-a"},{"server":"*","namespace":"!*"}]`, false},
		{`[{"name":"one","namespace":"team-?[ab]"}]`, true},
	} {
		spec := `{"sourceNamespaces":["one-*"],"destinations":` + c.destinations + `}`
		if _, got := (AppProjectKind{}).Publish(project(t, spec), managedHub()); got != c.want {
			t.Errorf("%s: published is %v", c.destinations, got)
		}
	}
	for namespaces, want := range map[string]bool{
		`[]`: false, `["*"]`: true, `["one-ns"]`: true, `["two-*"]`: false, `["/^one-[a-z]+$/"]`: true, `["/^two/"]`: false, `["/(/","x"]`: false,
	} {
		spec := `{"sourceNamespaces":` + namespaces + `,"destinations":[{"name":"*","namespace":"*"}]}`
		if _, got := (AppProjectKind{}).Publish(project(t, spec), managedHub()); got != want {
			t.Errorf("sourceNamespaces %s: published is %v", namespaces, got)
		}
		if _, got := (AppProjectKind{}).Publish(project(t, spec), newEnv(Hub, Managed, ByDestination)); !got {
			t.Errorf("sourceNamespaces %s: not published in destination mapping", namespaces)
		}
	}
	elsewhere := object(t, `{"metadata":{"name":"p","namespace":"one-ns"},"spec":{"sourceNamespaces":["*"],"destinations":[{"name":"*","namespace":"*"}]}}`)
	if _, ok := (AppProjectKind{}).Publish(elsewhere, managedHub()); ok {
		t.Error("published from another namespace than Argo CD's")
	}
}

func TestAppProject_ProjectionForManagedAgent(t *testing.T) {
	before := `{"description":"d","unknown":{"x":[1.0]},"sourceRepos":["*"],"sourceNamespaces":["one-ns","two-ns"],
		"roles":[{"name":"r"}],"permitOnlyProjectScopedClusters":true,
		"destinations":[{"name":"one","namespace":"a","more":1},{"name":"two","namespace":"b"},{"server":"*","namespace":"!kube-system"},
			{"name":"one","server":"https://other","namespace":"a","more":1},{"server":"!*agentName=one","namespace":"secret"},{"name":"o*","namespace":"!x"}],
		"syncWindows":[{"kind":"deny","clusters":["two"],"applications":["x"]},{"kind":"deny","clusters":["two"]},{"kind":"allow","clusters":["two","o*"]},
			{"kind":"deny","namespaces":["n"]},{"kind":"deny","clusters":["two"],"applications":["x"],"andOperator":true}],
		"destinationServiceAccounts":[{"server":"*","namespace":"n","defaultServiceAccount":"s"},{"server":"https://other","namespace":"n"},{"server":"https://proxy*","namespace":"n","defaultServiceAccount":"shadowed"}]}`
	after := `{"description":"d","unknown":{"x":[1.0]},"sourceRepos":["*"],
		"destinations":[{"name":"in-cluster","server":"https://kubernetes.default.svc","namespace":"a","more":1},
			{"name":"in-cluster","server":"https://kubernetes.default.svc","namespace":"!kube-system"},
			{"server":"!https://kubernetes.default.svc","namespace":"secret"},{"name":"in-cluster","namespace":"!x"}],
		"syncWindows":[{"kind":"deny","applications":["x"]},{"kind":"allow","clusters":["in-cluster"]},{"kind":"deny","namespaces":["n"]}],
		"destinationServiceAccounts":[{"server":"https://kubernetes.default.svc","namespace":"n","defaultServiceAccount":"s"}]`
	item, ok := AppProjectKind{}.Publish(project(t, before), managedHub())
	if !ok || item.Key != named("p") {
		t.Fatalf("published %v as %v", ok, item.Key)
	}
	expectJSON(t, "namespace mapping", item.Content, `{"uid":"u","spec":`+after+`}}`)
	item, _ = AppProjectKind{}.Publish(project(t, before), newEnv(Hub, Managed, ByDestination))
	expectJSON(t, "destination mapping", item.Content, `{"uid":"u","spec":`+after+`,"sourceNamespaces":["one-ns","two-ns"]}}`)

	// On the spoke the rewritten project permits what the hub's permits.
	hub, spoke := cluster{"one", "https://proxy:9090?agentName=one"}, cluster{inClusterName, inClusterServer}
	there, here := readDestinations(rawjson.Get([]byte(before), "destinations")), readDestinations(rawjson.Get(item.Content, "spec", "destinations"))
	for _, namespace := range []string{"a", "b", "x", "secret", "kube-system", "anything", ""} {
		if hub.permits(there, namespace) != spoke.permits(here, namespace) {
			t.Errorf("namespace %q is permitted on one side only", namespace)
		}
	}
}

func TestAppProject_InheritsFromGlobalProjects(t *testing.T) {
	global := object(t, `{"metadata":{"name":"global","namespace":"argocd"},"spec":{"sourceRepos":["g"],"destinations":[{"name":"one","namespace":"*"}],"clusterResourceWhitelist":[{"kind":"Namespace"}],"roles":[{"name":"x"}]}}`)
	w := managedHub()
	selector, _ := ParseSelector("opt=in")
	w.GlobalProjects = []GlobalProject{{Name: "global", Selector: selector}}
	w.Find = func(r Ref) *Object {
		if r.Name == "global" {
			return global
		}
		return nil
	}
	p := object(t, `{"metadata":{"name":"p","namespace":"argocd","uid":"u","labels":{"opt":"in"}},"spec":{"sourceNamespaces":["*"],"sourceRepos":["own"]}}`)
	item, ok := AppProjectKind{}.Publish(p, w)
	if !ok {
		t.Fatal("not published, although the global project permits the agent")
	}
	expectJSON(t, "flattened", item.Content, `{"uid":"u","metadata":{"labels":{"opt":"in"}},"spec":{"sourceRepos":["own","g"],
		"destinations":[{"name":"in-cluster","server":"https://kubernetes.default.svc","namespace":"*"}],"clusterResourceWhitelist":[{"kind":"Namespace"}]}}`)
	if _, ok := (AppProjectKind{}).Publish(project(t, `{"sourceNamespaces":["*"]}`), w); ok {
		t.Error("a project that the selector does not match inherits")
	}
}

func TestAppProject_ProjectionOfAutonomousAgent(t *testing.T) {
	spoke := object(t, `{"metadata":{"name":"p","namespace":"argo","uid":"u"},"spec":{"sourceRepos":["*"],"sourceNamespaces":["team"],
		"destinations":[{"server":"*","namespace":"*"},{"name":"in-cluster","namespace":"n"},{"server":"!https://kubernetes.default.svc","namespace":"x"},{"name":"other","namespace":"n"}],
		"destinationServiceAccounts":[{"server":"*"}],"permitOnlyProjectScopedClusters":true,
		"syncWindows":[{"kind":"deny","clusters":["in-cluster"]}],
		"roles":[{"name":"dev","description":"d","groups":["g","bad\ngroup"],"jwtTokens":[{"iat":1}],"future":1,"policies":[
			"p, proj:p:dev, applications, sync, p/*, allow",
			"p,proj:p:dev,applications,get,p/team/web,deny",
			"p, proj:p:dev, applications, get, p/argo/api, allow",
			"p, proj:p:dev, repositories, get, p/repo, allow",
			"p, proj:p:dev, applications, action/apps/Deployment/restart, p/web, allow",
			"p, proj:p:other, applications, get, p/*, allow",
			"p, proj:p:dev, applications, get, q/*, allow",
			"p, proj:p:dev, applications, get, p/*, allow\ng, me, role:admin"]},{"name":"not a name"}]}}`)
	item, ok := AppProjectKind{}.Publish(spoke, autoSpoke())
	if !ok || item.Key != named("p") {
		t.Fatalf("published %v as %v", ok, item.Key)
	}
	expectJSON(t, "content", item.Content, `{"uid":"u","spec":{"sourceRepos":["*"],"sourceNamespaces":["one-ns"],
		"destinations":[{"name":"one","namespace":"*"},{"name":"one","namespace":"n"}],
		"syncWindows":[{"kind":"deny","clusters":["one"]}],
		"roles":[{"name":"dev","description":"d","groups":["g"],"policies":[
			"p, proj:one-p:dev, applications, sync, one-p/one-ns/*, allow",
			"p, proj:one-p:dev, applications, get, one-p/one-ns/team.web, deny",
			"p, proj:one-p:dev, applications, get, one-p/one-ns/api, allow",
			"p, proj:one-p:dev, repositories, get, one-p/repo, allow",
			"p, proj:one-p:dev, applications, action/apps/Deployment/restart, one-p/one-ns/web, allow"]}]}}`)
	hub := allowing(Allow{Roles: true})
	copied := merge(t, AppProjectKind{}, nil, item.Key, string(item.Content), hub)
	if copied.Namespace() != "argocd" || copied.Name() != "one-p" {
		t.Errorf("on the hub it is %s/%s", copied.Namespace(), copied.Name())
	}
	held, ok := AppProjectKind{}.ReadReplica(copied, hub)
	if !ok || held.Key != item.Key || !held.Ownership.Owned {
		t.Errorf("held as %v, %+v", held.Key, held.Ownership)
	}
	expectJSON(t, "reflected", held.Content, string(item.Content))
	two := autoHub()
	two.Agent.Name = "two"
	if _, ok := (AppProjectKind{}).ReadReplica(copied, two); ok {
		t.Error("another agent sees it")
	}
}

func TestAppProject_HubRejectsSpecBeyondAgent(t *testing.T) {
	base := rawjson.Object{{Key: "sourceNamespaces", Value: []byte(`["one-ns"]`)}, {Key: "destinations", Value: []byte(`[{"name":"one","namespace":"*"}]`)}}
	with := func(key, value string) string {
		spec := append(rawjson.Object(nil), base...)
		spec.Set(key, []byte(value))
		return `{"uid":"u","spec":` + string(spec.Bytes()) + `}`
	}
	role := func(policies string) string { return with("roles", `[{"name":"r","policies":`+policies+`}]`) }
	if _, err := (AppProjectKind{}).Merge(nil, named("p"), []byte(role(`["p, proj:one-p:r, applications, *, one-p/*, allow"]`)), nil, Ownership{}, autoHub()); err != nil {
		t.Fatalf("a proper project is refused: %v", err)
	}
	for name, content := range map[string]string{
		"every namespace":                  with("sourceNamespaces", `["*"]`),
		"another namespace too":            with("sourceNamespaces", `["one-ns","two-ns"]`),
		"no namespaces":                    with("sourceNamespaces", `null`),
		"another agent":                    with("destinations", `[{"name":"two","namespace":"*"}]`),
		"every agent":                      with("destinations", `[{"name":"*","namespace":"*"}]`),
		"every server":                     with("destinations", `[{"name":"one","server":"*","namespace":"*"}]`),
		"a denied name":                    with("destinations", `[{"name":"!two","namespace":"*"}]`),
		"service accounts":                 with("destinationServiceAccounts", `[{"server":"*"}]`),
		"another project's policy":         role(`["p, proj:default:r, applications, *, default/*, allow"]`),
		"another role's policy":            role(`["p, proj:one-p:admin, applications, *, one-p/*, allow"]`),
		"a policy that is two":             role(`["p, proj:one-p:r, applications, *, one-p/*, allow\ng, me, role:admin"]`),
		"a group rule":                     role(`["g, me, role:admin"]`),
		"a policy beyond projects":         role(`["p, proj:one-p:r, accounts, *, one-p/*, allow"]`),
		"a token":                          with("roles", `[{"name":"r","jwtTokens":[{"iat":1}]}]`),
		"an unknown field":                 with("roles", `[{"name":"r","rules":[]}]`),
		"a group that is two lines":        with("roles", `[{"name":"r","groups":["a\ng, me, role:admin"]}]`),
		"a role name that is more than it": with("roles", `[{"name":"r, x"}]`),
		"roles that are no list":           with("roles", `{}`),
	} {
		if _, err := (AppProjectKind{}).Merge(nil, named("p"), []byte(content), nil, Ownership{}, autoHub()); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	taken := object(t, `{"metadata":{"name":"one-p","namespace":"argocd"},"spec":{}}`)
	_, err := AppProjectKind{}.Merge(taken, named("p"), []byte(with("x", "1")), nil, Ownership{}, autoHub())
	expectRejected(t, "a project of the hub", err, engine.NameTaken)
	dashes := autoHub()
	dashes.Agent.Name = "o--ne"
	_, err = AppProjectKind{}.Target(named("p"), dashes)
	expectRejected(t, "an agent with two dashes", err, engine.Invalid)
}

func TestAppProject_AdoptsAndReleasesDefaultProject(t *testing.T) {
	local := object(t, `{"metadata":{"name":"default","namespace":"argo","uid":"l"},"spec":{"sourceRepos":["*"]},"status":{"jwtTokensByRole":{}}}`)
	merged, err := AppProjectKind{}.Merge(local, named("default"), []byte(`{"uid":"u","spec":{"sourceRepos":["x"]}}`), nil, Ownership{Adopted: true}, managedSpoke())
	if err != nil || !(AppProjectKind{}).Keeps(merged) || merged.Get("status") == nil {
		t.Fatalf("merged: %v", err)
	}
	released := AppProjectKind{}.Release(merged, managedSpoke())
	expectJSON(t, "released", released.Raw(), `{"metadata":{"name":"default","namespace":"argo","uid":"l"},"spec":{"sourceRepos":["x"]},"status":{"jwtTokensByRole":{}}}`)
}

func TestAppProject_TruncatesLongNames(t *testing.T) {
	long := strings.Repeat("a-very-long-name.", 14) + "end"
	w := autoHub()
	content := `{"uid":"u","spec":{"sourceNamespaces":["one-ns"],"destinations":[]}}`
	longer := named(strings.Repeat("x", 250))
	for _, k := range []engine.Key{named(long), longer, named(strings.Repeat("y-", 126) + "y")} {
		o := merge(t, AppProjectKind{}, nil, k, content, w)
		if len(o.Name()) > maxName || !isSubdomain(o.Name()) {
			t.Errorf("%s is no name", o.Name())
		}
		if got, ok := (AppProjectKind{}).Key(o, w); !ok || got != k {
			t.Errorf("%s came back as %s", k, got)
		}
	}
}
