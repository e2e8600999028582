package kind

import (
	"bytes"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// hubOf returns what the hub knows of an agent.
func hubOf(agent string, mapping Mapping) *Env {
	w := newEnv(Hub, Managed, mapping)
	w.Agent.Name, w.Agent.HubNamespace, w.Agent.Server = agent, agent+"-ns", "https://proxy:9090?agentName="+agent
	w.Settings.SyncArgoSettings = true
	return w
}

// parts returns what agents have of an object of the hub.
func partsOf(t *testing.T, k Kind, o *Object, envs ...*Env) []Part {
	t.Helper()
	var parts []Part
	for _, w := range envs {
		item, ok := k.Publish(o, w)
		if !ok || item.Unsendable != "" {
			t.Fatalf("%s is not sent to %s", o.Name(), w.Agent.Name)
		}
		parts = append(parts, Part{Env: w, Key: item.Key, Content: item.Content})
	}
	return parts
}

func TestRestore_IsTheInverseOfPublish(t *testing.T) {
	one, two := hubOf("one", ByNamespace), hubOf("two", ByNamespace)
	byDestination := hubOf("one", ByDestination)
	const rules = `"sourceRepos":["https://git/x"],"clusterResourceWhitelist":[{"group":"*","kind":"Namespace"}],"description":"d","unknownField":{"a":1}`
	project := func(spec string) string {
		return `{"metadata":{"name":"shop","namespace":"argocd","uid":"lost","labels":{"team":"x"},"annotations":{"note":"n"}},"spec":{` + rules + `,` + spec + `}}`
	}
	for _, c := range []struct {
		name string
		k    Kind
		text string
		envs []*Env
	}{
		{"Application", ApplicationKind{}, `{"metadata":{"name":"a","namespace":"one-ns","uid":"lost","labels":{"l":"1"},"annotations":{"note":"n"},"finalizers":["resources-finalizer.argocd.argoproj.io"]},
			"spec":{"project":"p","destination":{"server":"https://proxy:9090?agentName=one","namespace":"x"},"syncPolicy":{"automated":{}},"source":{"repoURL":"u"}}}`, []*Env{one}},
		{"Application by destination", ApplicationKind{}, `{"metadata":{"name":"a","namespace":"argocd","uid":"lost"},"spec":{"project":"p","destination":{"name":"one"}}}`, []*Env{byDestination}},
		{"project of two agents", AppProjectKind{}, project(`"destinations":[{"server":"*","namespace":"a"},{"name":"two","namespace":"b-*"}],"sourceNamespaces":["*-ns"]`), []*Env{one, two}},
		{"project with a denied namespace", AppProjectKind{}, project(`"destinations":[{"server":"*","namespace":"!kube-system"},{"server":"*","namespace":"*"}],"sourceNamespaces":["*"]`), []*Env{one, two}},
		{"project with a namespace denied by name", AppProjectKind{}, project(`"destinations":[{"name":"*","namespace":"!kube-system"},{"name":"*","namespace":"*"}],"sourceNamespaces":["*"]`), []*Env{one, two}},
		{"project with sync windows", AppProjectKind{}, project(`"destinations":[{"name":"*","namespace":"*"}],"sourceNamespaces":["*"],"syncWindows":[
			{"kind":"deny","schedule":"1","clusters":["one"]},{"kind":"deny","schedule":"2","applications":["*"]},{"kind":"allow","schedule":"3","clusters":["t*"],"applications":["a"]},{"kind":"allow","schedule":"4","clusters":["*"]}]`), []*Env{one, two}},
		{"project with ServiceAccounts", AppProjectKind{}, project(`"destinations":[{"name":"*","namespace":"*"}],"sourceNamespaces":["*"],"destinationServiceAccounts":[
			{"server":"https://proxy:9090?agentName=one","namespace":"a","defaultServiceAccount":"s1"},{"server":"*","namespace":"*","defaultServiceAccount":"s"}]`), []*Env{one, two}},
		{"project by destination", AppProjectKind{}, project(`"destinations":[{"name":"*","namespace":"*"}],"sourceNamespaces":["argocd","team-*"]`), []*Env{byDestination, hubOf("two", ByDestination)}},
		{"repository", RepositoryKind{}, `{"metadata":{"name":"r","namespace":"argocd","uid":"lost","labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"project":"cA==","url":"dQ=="}}`, []*Env{one, two}},
		{"GPG keys", GPGKeyKind{}, `{"metadata":{"name":"argocd-gpg-keys-cm","namespace":"argocd","uid":"lost"},"data":{"4AEE18F83AFDEB23":"key"}}`, []*Env{one, two}},
		{"settings", SettingsKind{}, `{"metadata":{"name":"argocd-cm","namespace":"argocd","uid":"lost"},"data":{"resource.exclusions":"x","url":"hub only"}}`, []*Env{one, two}},
	} {
		parts := partsOf(t, c.k, object(t, c.text), c.envs...)
		got, err := Restore(c.k, nil, parts)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !IsRestored(got, c.envs[0]) {
			t.Errorf("%s: no ownership: %s", c.name, got.Raw())
		}
		for _, part := range parts {
			item, ok := c.k.Publish(got, part.Env)
			if !ok || item.Key != part.Key || !bytes.Equal(item.Content, part.Content) {
				t.Errorf("%s, agent %s:\n got %s\nwant %s\nfrom %s", c.name, part.Env.Agent.Name, item.Content, part.Content, got.Raw())
			}
		}
		if again, err := Restore(c.k, got, parts); err != nil || again != got {
			t.Errorf("%s: restored again: %v", c.name, err)
		}
	}
}

func TestRestore_RefusesWhatIsNotCertain(t *testing.T) {
	one, two := hubOf("one", ByNamespace), hubOf("two", ByNamespace)
	part := func(w *Env, key engine.Key, content string) Part {
		return Part{Env: w, Key: key, Content: []byte(content)}
	}
	app, project, repo := engine.Key{Name: "a"}, engine.Key{Name: "p"}, engine.Key{Name: "r"}
	spec := func(more string) string {
		return `{"uid":"u","spec":{"destinations":[{"name":"in-cluster","namespace":"*","server":"https://kubernetes.default.svc"}]` + more + `}}`
	}
	secret := func(url string) string {
		return `{"uid":"u","metadata":{"labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"url":"` + url + `"}}`
	}
	byDestination := hubOf("one", ByDestination)
	for _, c := range []struct {
		name  string
		k     Kind
		parts []Part
		want  string
	}{
		{"roles", AppProjectKind{}, []Part{part(one, project, spec(`,"roles":[{"name":"admin"}]`))}, "roles"},
		{"scoped clusters", AppProjectKind{}, []Part{part(one, project, spec(`,"permitOnlyProjectScopedClusters":true`))}, "roles, or settings"},
		{"another cluster", AppProjectKind{}, []Part{part(one, project, `{"uid":"u","spec":{"destinations":[{"name":"two","namespace":"*"}]}}`)}, "another cluster"},
		{"another server", AppProjectKind{}, []Part{part(one, project, `{"uid":"u","spec":{"destinations":[{"server":"*","namespace":"*"}]}}`)}, "another cluster"},
		{"sync window of another cluster", AppProjectKind{}, []Part{part(one, project, spec(`,"syncWindows":[{"clusters":["two"]}]`))}, "another cluster"},
		{"ServiceAccount of another cluster", AppProjectKind{}, []Part{part(one, project, spec(`,"destinationServiceAccounts":[{"server":"*"}]`))}, "another cluster"},
		{"namespaces", AppProjectKind{}, []Part{part(one, project, spec(`,"sourceNamespaces":["*"]`))}, "sourceNamespaces"},
		{"different rules", AppProjectKind{}, []Part{part(one, project, spec(`,"sourceRepos":["a"]`)), part(two, project, spec(`,"sourceRepos":["b"]`))}, "agents one and two have different content"},
		{"different UIDs", AppProjectKind{}, []Part{part(one, project, spec("")), part(two, project, strings.Replace(spec(""), `"u"`, `"v"`, 1))}, "agents one and two have different content"},
		{"different credentials", RepositoryKind{}, []Part{part(one, repo, secret("a")), part(two, repo, secret("b"))}, "agents one and two have different content"},
		{"another Secret", RepositoryKind{}, []Part{part(one, repo, strings.Replace(secret("a"), "repository", "cluster", 1))}, "not a repository"},
		{"an Application of two agents", ApplicationKind{}, []Part{part(byDestination, engine.Key{Namespace: "argocd", Name: "a"}, `{"uid":"u","spec":{"destination":{"name":"in-cluster"}}}`),
			part(hubOf("two", ByDestination), engine.Key{Namespace: "argocd", Name: "a"}, `{"uid":"u","spec":{"destination":{"name":"in-cluster"}}}`)}, "both have it"},
		{"an Application of another cluster", ApplicationKind{}, []Part{part(one, app, `{"uid":"u","spec":{"destination":{"name":"two"}}}`)}, "destination"},
		{"an Application with a server", ApplicationKind{}, []Part{part(one, app, `{"uid":"u","spec":{"destination":{"name":"in-cluster","server":"https://two"}}}`)}, "destination"},
		{"an Application that was being deleted", ApplicationKind{}, []Part{part(one, app, `{"uid":"u","deleting":true,"spec":{"destination":{"name":"in-cluster"}}}`)}, "being deleted"},
		{"a name of the hub", ApplicationKind{}, []Part{part(one, engine.Key{Namespace: "two-ns", Name: "a"}, `{"uid":"u","spec":{"destination":{"name":"in-cluster"}}}`)}, "namespace"},
		{"ownership", ApplicationKind{}, []Part{part(one, app, `{"uid":"u","metadata":{"annotations":{"argocd-agent.argoproj-labs.io/agent-name":"two"}},"spec":{"destination":{"name":"in-cluster"}}}`)}, "never replicated"},
		{"ignored by the hub", ApplicationKind{}, []Part{part(one, app, `{"uid":"u","metadata":{"labels":{"argocd-agent.argoproj-labs.io/ignore-sync":"true"}},"spec":{"destination":{"name":"in-cluster"}}}`)}, "never replicated"},
		{"a ConfigMap of the hub", GPGKeyKind{}, []Part{part(one, engine.Key{Name: "argocd-rbac-cm"}, `{"uid":"u","data":{"policy.default":"role:admin"}}`)}, "not one that the hub may write"},
		{"an autonomous agent", ApplicationKind{}, []Part{part(autoHub(), app, `{"uid":"u","spec":{"destination":{"name":"in-cluster"}}}`)}, "not managed"},
		{"a kind without objects of the hub", StatusKind{}, []Part{part(one, app, `{"uid":"u"}`)}, "cannot be restored"},
	} {
		if o, err := Restore(c.k, nil, c.parts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q, got %v", c.name, err, c.want, o)
		}
	}
}

func TestRestore_ExistingObjects(t *testing.T) {
	one := hubOf("one", ByNamespace)
	const pristine = `{"metadata":{"name":"default","namespace":"argocd","uid":"new","resourceVersion":"7"},"spec":` + newDefaultProject + `}`
	fresh := object(t, pristine)
	lost := object(t, strings.Replace(pristine, `"new"`, `"lost"`, 1))
	one.HubArgoNamespace = "argocd"
	one.Agent.HubNamespace = "argocd"
	k := AppProjectKind{}

	same, err := Restore(k, fresh, partsOf(t, k, lost, one))
	if err != nil || string(same.Get("spec")) != newDefaultProject || PublishedUID(same, one) != "lost" || same.ResourceVersion() != "7" {
		t.Errorf("the same default project: %v %v", same, err)
	}
	narrow := object(t, `{"metadata":{"name":"default","namespace":"argocd","uid":"lost"},"spec":{"sourceRepos":["https://git/x"],"destinations":[{"name":"*","namespace":"a"}]}}`)
	parts := partsOf(t, k, narrow, one)
	got, err := Restore(k, fresh, parts)
	if err != nil {
		t.Fatal(err)
	}
	if item, ok := k.Publish(got, one); !ok || !bytes.Equal(item.Content, parts[0].Content) || got.ResourceVersion() != "7" {
		t.Errorf("the default project of the lost hub: %s", got.Raw())
	}
	edited := object(t, `{"metadata":{"name":"default","namespace":"argocd","uid":"new"},"spec":{"sourceRepos":["https://git/other"]}}`)
	if got, err := Restore(k, edited, parts); err != nil || !bytes.Equal(got.Get("spec"), edited.Get("spec")) {
		t.Errorf("a default project that users wrote is overwritten: %v %v", got, err)
	}
	replica := edited.withAnnotation(SourceUID, "x").withAnnotation(PrincipalUID, "hub-1").withAnnotation(AgentNameAnnotation, "two")
	if _, err := Restore(k, replica, parts); err == nil {
		t.Error("the replica of an agent becomes an object of the hub")
	}

	keys := []Part{{Env: one, Key: engine.Key{Name: gpgKeys}, Content: []byte(`{"uid":"lost","data":{"A":"1"}}`)}}
	empty := object(t, `{"metadata":{"name":"argocd-gpg-keys-cm","namespace":"argocd","uid":"new","labels":{"app":"x"}}}`)
	if got, err := Restore(GPGKeyKind{}, empty, keys); err != nil || string(got.Get("data")) != `{"A":"1"}` || got.Label("app") != "x" {
		t.Errorf("GPG keys of an empty ConfigMap: %v %v", got, err)
	}
	other := object(t, `{"metadata":{"name":"argocd-gpg-keys-cm","namespace":"argocd","uid":"new"},"data":{"A":"2"}}`)
	if _, err := Restore(GPGKeyKind{}, other, keys); err == nil {
		t.Error("a key of the hub is overwritten")
	}
}

// The policy of a workload cluster protects namespaces, so that it stores a project in another form than the hub wrote it.
func TestRestore_ProjectThatTheClusterNarrowed(t *testing.T) {
	one := hubOf("one", ByNamespace)
	k := AppProjectKind{}
	lost := object(t, `{"metadata":{"name":"p","namespace":"argocd","uid":"lost"},"spec":{"destinations":[{"name":"*","namespace":"*"},{"name":"one","namespace":"x"}],"sourceNamespaces":["*"]}}`)
	part := partsOf(t, k, lost, one)[0]
	narrowed := Part{Env: one, Key: part.Key, Content: bytes.Replace(part.Content, []byte(`"namespace":"*"`), []byte(`"namespace":"!argocd"`), 1), Written: engine.VersionOf(part.Content)}
	if bytes.Equal(narrowed.Content, part.Content) {
		t.Fatal("nothing was narrowed")
	}
	got, err := Restore(k, nil, []Part{narrowed})
	if err != nil {
		t.Fatal(err)
	}
	if item, ok := k.Publish(got, one); !ok || !bytes.Equal(item.Content, part.Content) || !narrowed.Matches(item.Content) {
		t.Errorf("restored as %s", got.Raw())
	}
	// What the hub wrote cannot be found, so the narrow form is restored.
	narrowed.Written = engine.VersionOf([]byte("other"))
	if got, err = Restore(k, nil, []Part{narrowed}); err != nil {
		t.Fatal(err)
	}
	if item, ok := k.Publish(got, one); !ok || !bytes.Equal(item.Content, narrowed.Content) {
		t.Errorf("restored as %s, want what publishes %s", got.Raw(), narrowed.Content)
	}
}
