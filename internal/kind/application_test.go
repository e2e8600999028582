package kind

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestApplication_ProjectionForManagedAgent(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		{
			"destination becomes the cluster itself, everything else stays",
			`{"metadata":{"name":"a","namespace":"one-ns","uid":"u","resourceVersion":"7","generation":3,"managedFields":[],
			  "labels":{"team":"x"},"annotations":{"note":"y"},"ownerReferences":[{"name":"set"}]},
			  "spec":{"project":"p","destination":{"name":"one","namespace":"n","unknown":1.0},"source":{"repoURL":"r","unheard":{"of":[1,2]}}},
			  "status":{"health":{}},"operation":{}}`,
			`{"uid":"u","metadata":{"labels":{"team":"x"},"annotations":{"note":"y"}},
			  "spec":{"project":"p","destination":{"name":"in-cluster","namespace":"n","unknown":1.0},"source":{"repoURL":"r","unheard":{"of":[1,2]}}}}`,
		},
		{
			"what is never replicated is not there",
			`{"metadata":{"name":"a","namespace":"one-ns","uid":"u","labels":{"app.kubernetes.io/instance":"parent","argocd-agent.argoproj-labs.io/x":"y"},
			  "annotations":{"notified.notifications.argoproj.io":"{}","kubectl.kubernetes.io/last-applied-configuration":"{}",
			  "argocd.argoproj.io/tracking-id":"p","argocd.argoproj.io/installation-id":"i","argocd.argoproj.io/refresh":"hard",
			  "argocd.argoproj.io/hydrate":"normal","argocd.argoproj.io/refresh-timestamp":"t","argocd.argoproj.io/hydrate-timestamp":"t","argocd.argoproj.io/source-uid":"s","argocd.argoproj.io/principal-uid":"p",
			  "argocd-agent.argoproj-labs.io/alias":"a"}},"spec":{"destination":{"server":"https://proxy:9090?agentName=one"}}}`,
			`{"uid":"u","spec":{"project":"default","destination":{"name":"in-cluster"}}}`,
		},
		{
			"only finalizers that delete resources cross",
			`{"metadata":{"name":"a","namespace":"one-ns","uid":"u","finalizers":["post-delete-finalizer.argocd.argoproj.io","resources-finalizer.argocd.argoproj.io/foreground","example.org/x"]},"spec":{"destination":{"name":"one"}}}`,
			`{"uid":"u","metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io/foreground"]},"spec":{"project":"default","destination":{"name":"in-cluster"}}}`,
		},
		{
			"deleting with cascade is part of the content",
			`{"metadata":{"name":"a","namespace":"one-ns","uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["resources-finalizer.argocd.argoproj.io"]},"spec":{"destination":{"name":"one"}}}`,
			`{"uid":"u","deleting":true,"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]},"spec":{"project":"default","destination":{"name":"in-cluster"}}}`,
		},
		{
			"empty parts are what Argo CD's controller removes",
			`{"metadata":{"name":"a","namespace":"one-ns","uid":"u"},"spec":{"destination":{"name":"one"},"project":"","syncPolicy":{"syncOptions":[]},
			  "source":{"repoURL":"r","helm":{"values":"","parameters":[]},"kustomize":{"forceCommonLabels":true},"directory":{"recurse":false,"jsonnet":{"tlas":[]},"include":"*.yaml"}}}}`,
			`{"uid":"u","spec":{"project":"default","destination":{"name":"in-cluster"},"source":{"repoURL":"r","directory":{"include":"*.yaml"}}}}`,
		},
		{
			"automated: {} is auto-sync and stays",
			`{"metadata":{"name":"a","namespace":"one-ns","uid":"u"},"spec":{"destination":{"name":"one"},"syncPolicy":{"automated":{}},"source":{"helm":{"valuesObject":{}},"directory":{"recurse":true}}}}`,
			`{"uid":"u","spec":{"project":"default","destination":{"name":"in-cluster"},"syncPolicy":{"automated":{}},"source":{"helm":{"valuesObject":{}},"directory":{"recurse":true}}}}`,
		},
		{
			"several sources are left as they are",
			`{"metadata":{"name":"a","namespace":"one-ns","uid":"u"},"spec":{"destination":{"name":"one"},"sources":[{"helm":{}}],"source":{"helm":{}}}}`,
			`{"uid":"u","spec":{"project":"default","destination":{"name":"in-cluster"},"sources":[{"helm":{}}],"source":{"helm":{}}}}`,
		},
	} {
		item, ok := ApplicationKind{}.Publish(object(t, c.before), managedHub())
		if !ok {
			t.Errorf("%s: not published", c.name)
			continue
		}
		expectJSON(t, c.name, item.Content, c.after)
		if item.Key != named("a") {
			t.Errorf("%s: key is %v", c.name, item.Key)
		}
	}
}

func TestApplication_SelectsAgent(t *testing.T) {
	app := func(namespace, rest string) string {
		return `{"metadata":{"name":"a","namespace":"` + namespace + `"` + rest + `,"spec":{"project":"p","destination":{"name":"one"}}}`
	}
	byDestination := newEnv(Hub, Managed, ByDestination)
	anywhere := newEnv(Hub, Managed, ByDestination)
	anywhere.Settings.AllowedNamespaces = []string{"team-*", "/^x[0-9]+$/"}
	selecting := managedHub()
	selecting.Settings.LabelSelector, _ = ParseSelector("team=x")
	labels := newEnv(Hub, Managed, ByNamespace)
	labels.Settings.AllowedNamespaces = []string{"two*"}
	for _, c := range []struct {
		name   string
		object string
		w      *Env
		want   string // key; empty: not published
	}{
		{"in the agent's namespace", app("one-ns", `}`), managedHub(), "a"},
		{"in another namespace", app("two-ns", `}`), managedHub(), ""},
		{"in a namespace that is not allowed", app("one-ns", `}`), labels, ""},
		{"named as destination, in Argo CD's namespace", app("argocd", `}`), byDestination, "argocd/a"},
		{"named as destination, elsewhere", app("team-a", `}`), byDestination, ""},
		{"named as destination, in an allowed namespace", app("team-a", `}`), anywhere, "team-a/a"},
		{"allowed by a regular expression", app("x12", `}`), anywhere, "x12/a"},
		{"another destination", `{"metadata":{"name":"a","namespace":"argocd"},"spec":{"destination":{"name":"two"}}}`, byDestination, ""},
		{"ignore-sync", app("one-ns", `,"labels":{"argocd-agent.argoproj-labs.io/ignore-sync":"true"}}`), managedHub(), ""},
		{"ignore-sync: false", app("one-ns", `,"labels":{"argocd-agent.argoproj-labs.io/ignore-sync":"false"}}`), managedHub(), "a"},
		{"selected", app("one-ns", `,"labels":{"team":"x"}}`), selecting, "a"},
		{"not selected", app("one-ns", `,"labels":{"team":"y"}}`), selecting, ""},
		{"deleting without cascade", app("one-ns", `,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x/y"]}`), managedHub(), ""},
		{"the agent is autonomous", app("one-ns", `}`), autoHub(), ""},
		{"the spoke does not publish a managed one", app("argo", `}`), managedSpoke(), ""},
	} {
		item, ok := ApplicationKind{}.Publish(object(t, c.object), c.w)
		if got := item.Key.String(); ok != (c.want != "") || got != c.want {
			t.Errorf("%s: published %v as %q, want %q", c.name, ok, got, c.want)
		}
		if ok && item.DependsOn != named("p") {
			t.Errorf("%s: needs project %v", c.name, item.DependsOn)
		}
	}
}

const guestbook = `{"metadata":{"annotations":{"note":"y"},"finalizers":["resources-finalizer.argocd.argoproj.io"],"labels":{"team":"x"}},
	"spec":{"destination":{"name":"in-cluster","namespace":"n"},"project":"p","source":{"repoURL":"r"}},"uid":"u"}`

func TestApplication_MergesIntoSpokeReplica(t *testing.T) {
	created := merge(t, ApplicationKind{}, nil, named("a"), guestbook, managedSpoke())
	expectJSON(t, "created", created.Raw(), `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a","namespace":"argo",
		"labels":{"team":"x"},"annotations":{"note":"y","argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1"},
		"finalizers":["resources-finalizer.argocd.argoproj.io"]},
		"spec":{"destination":{"name":"in-cluster","namespace":"n"},"project":"p","source":{"repoURL":"r"}}}`)

	local := object(t, `{"unknown":{"top": 1.0},"metadata":{"name":"a","namespace":"argo","uid":"l","resourceVersion":"9","x":"y",
		"labels":{"app.kubernetes.io/instance":"parent","extra":"1","team":"old"},
		"annotations":{"argocd.argoproj.io/refresh":"normal","notified.notifications.argoproj.io":"{ }","extra":"2",
		  "argocd-agent.argoproj-labs.io/adopted":"true","argocd-agent.argoproj-labs.io/last-command":"{\"ids\":[\"i\"]}"},
		"finalizers":["post-delete-finalizer.argocd.argoproj.io","resources-finalizer.argocd.argoproj.io/background"]},
		"spec":{"project":"other","syncPolicy":{"automated":{}}},"status":{"sync": {"status":"Synced"}},"operation":{"sync":{ }}}`)
	merged := merge(t, ApplicationKind{}, local, named("a"), guestbook, managedSpoke())
	expectJSON(t, "merged", merged.Raw(), `{"unknown":{"top":1.0},"metadata":{"name":"a","namespace":"argo","uid":"l","resourceVersion":"9","x":"y",
		"labels":{"app.kubernetes.io/instance":"parent","team":"x"},
		"annotations":{"argocd.argoproj.io/refresh":"normal","notified.notifications.argoproj.io":"{ }","note":"y",
		  "argocd-agent.argoproj-labs.io/adopted":"true","argocd-agent.argoproj-labs.io/last-command":"{\"ids\":[\"i\"]}",
		  "argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1"},
		"finalizers":["post-delete-finalizer.argocd.argoproj.io","resources-finalizer.argocd.argoproj.io"]},
		"spec":{"destination":{"name":"in-cluster","namespace":"n"},"project":"p","source":{"repoURL":"r"}},
		"status":{"sync":{"status":"Synced"}},"operation":{"sync":{}}}`)
	for _, verbatim := range []string{"unknown", "status", "operation"} {
		if !bytes.Equal(merged.Get(verbatim), local.Get(verbatim)) {
			t.Errorf("%s is no longer verbatim: %s", verbatim, merged.Get(verbatim))
		}
	}
	held, ok := ApplicationKind{}.ReadReplica(merged, managedSpoke())
	if !ok || !held.Ownership.Owned || !held.Ownership.Adopted || held.Ownership.Source != "u" {
		t.Errorf("ownership is %+v", held.Ownership)
	}
	expectJSON(t, "reflected", held.Content, guestbook)
}

func TestApplication_NormalizedReplicaIsNotRewritten(t *testing.T) {
	content := `{"uid":"u","spec":{"destination":{"name":"in-cluster"},"project":"default","source":{"repoURL":"r"}}}`
	local := object(t, `{"metadata":{"name":"a","namespace":"argo","annotations":{"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1"}},
		"spec":{"destination":{"name":"in-cluster","server":""},"source":{"repoURL":"r","helm":{}},"syncPolicy":{}}}`)
	held, _ := ApplicationKind{}.ReadReplica(local, managedSpoke())
	expectJSON(t, "reflected", held.Content, content)
	if merged := merge(t, ApplicationKind{}, local, named("a"), content, managedSpoke()); !Same(local, merged) {
		t.Errorf("rewritten: %s", merged.Raw())
	}
}

func TestApplication_AddsNoFinalizerWhileTerminating(t *testing.T) {
	content := `{"deleting":true,"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"],"labels":{"new":"1"}},"spec":{"destination":{"name":"in-cluster"},"project":"p"},"uid":"u"}`
	local := object(t, `{"metadata":{"name":"a","namespace":"argo","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x/y"]},"spec":{}}`)
	merged := merge(t, ApplicationKind{}, local, named("a"), content, managedSpoke())
	if !slices.Equal(merged.Finalizers(), []string{"x/y"}) || merged.Label("new") != "1" {
		t.Errorf("merged: %s", merged.Raw())
	}
	_, err := ApplicationKind{}.Merge(local, named("a"), []byte(guestbook), nil, Ownership{}, managedSpoke())
	expectRejected(t, "deleted by hand", err, engine.Busy)
	_, err = ApplicationKind{}.Merge(nil, named("a"), []byte(content), nil, Ownership{}, managedSpoke())
	expectRejected(t, "deleting, and never there", err, engine.NoObject)
}

func TestApplication_ProjectionOfAutonomousAgent(t *testing.T) {
	w := autoSpoke()
	w.Settings.AllowedNamespaces = []string{"team"}
	spoke := `{"metadata":{"name":"a","namespace":"argo","uid":"u","labels":{"k":"v"},"finalizers":["resources-finalizer.argocd.argoproj.io"]},
		"spec":{"project":"default","destination":{"server":"https://kubernetes.default.svc","namespace":"n"},"source":{"repoURL":"r"}}}`
	item, _ := ApplicationKind{}.Publish(object(t, spoke), w)
	expectJSON(t, "content", item.Content, `{"uid":"u","metadata":{"labels":{"k":"v"}},
		"spec":{"project":"one-default","destination":{"name":"one","namespace":"n"},"source":{"repoURL":"r"}}}`)
	if item.Key != named("a") || item.DependsOn != named("default") {
		t.Errorf("item is %v, needs %v", item.Key, item.DependsOn)
	}
	item, ok := ApplicationKind{}.Publish(object(t, `{"metadata":{"name":"a","namespace":"team","uid":"u"},"spec":{}}`), w)
	if want := (engine.Key{Namespace: "team", Name: "a"}); !ok || item.Key != want {
		t.Errorf("outside Argo CD's namespace it is %v", item.Key)
	}
	ref, err := ApplicationKind{}.Target(item.Key, autoHub())
	if err != nil || ref.Namespace != "one-ns" || ref.Name != "team.a" {
		t.Errorf("on the hub it is %v (%v)", ref, err)
	}
	copied := merge(t, ApplicationKind{}, nil, item.Key, string(item.Content), autoHub())
	if key, ok := (ApplicationKind{}).Key(copied, autoHub()); !ok || key != item.Key {
		t.Errorf("its copy has the key %v", key)
	}
	if _, ok := (ApplicationKind{}).Publish(object(t, `{"metadata":{"name":"a","namespace":"elsewhere"},"spec":{}}`), w); ok {
		t.Error("published from a namespace that is not allowed")
	}
}

func TestApplication_HubKeepsMetadataOfUsers(t *testing.T) {
	first := `{"uid":"u","metadata":{"labels":{"a":"1","b":"1"},"annotations":{"x":"1"}},"spec":{"project":"one-p","destination":{"name":"one"}}}`
	second := `{"uid":"u","metadata":{"labels":{"b":"2"}},"spec":{"project":"one-p","destination":{"name":"one"}}}`
	copied := merge(t, ApplicationKind{}, nil, named("app"), first, autoHub())
	d := edit(copied)
	labels, annotations := members(copied.labels), members(copied.annotations)
	labels.Set("hub", []byte(`"mine"`))
	labels.Set("b", []byte(`"changed by hand"`))
	annotations.Set("notifications.argoproj.io/subscribe.x", []byte(`"me"`))
	setList(&d.meta, "labels", labels)
	setList(&d.meta, "annotations", annotations)
	d.top.Set("status", []byte(`{"health":{"status":"Healthy"}}`))
	touched, _ := d.done()

	held, _ := ApplicationKind{}.ReadReplica(touched, autoHub())
	expectJSON(t, "additions are not part of what is compared, changes are", held.Content,
		`{"uid":"u","metadata":{"labels":{"a":"1","b":"changed by hand"},"annotations":{"x":"1"}},"spec":{"project":"one-p","destination":{"name":"one"}}}`)

	merged := merge(t, ApplicationKind{}, touched, named("app"), second, autoHub())
	if l := merged.Labels(); len(l) != 2 || l["hub"] != "mine" || l["b"] != "2" {
		t.Errorf("labels are %v", l)
	}
	if merged.Annotation("x") != "" || merged.Annotation("notifications.argoproj.io/subscribe.x") != "me" {
		t.Errorf("annotations are %v", merged.Annotations())
	}
	expectJSON(t, "status", merged.Get("status"), `{"health":{"status":"Healthy"}}`)
	held, _ = ApplicationKind{}.ReadReplica(merged, autoHub())
	expectJSON(t, "reflected", held.Content, second)
	if !held.Ownership.Owned {
		t.Error("the copy is not the agent's")
	}
}

// An agent changed from managed to autonomous. The hub's Application becomes the replica only if the agent's was written
// from it.
func TestApplication_HubHandsOverToFormerReplica(t *testing.T) {
	spoke := func(annotations string) *Object {
		return object(t, `{"metadata":{"name":"a","namespace":"argo","uid":"s1","annotations":{`+annotations+`}},"spec":{"project":"p","source":{"repoURL":"r"}}}`)
	}
	hub := func(meta string) *Object {
		return object(t, `{"metadata":{"name":"a","namespace":"one-ns","uid":"h1"`+meta+`},"spec":{"project":"hub","destination":{"name":"one"}}}`)
	}
	fromHub := `"argocd.argoproj.io/source-uid":"h1","argocd.argoproj.io/principal-uid":"hub-1"`
	kept := `,"labels":{"l":"hub"},"finalizers":["resources-finalizer.argocd.argoproj.io","other/finalizer"]`
	for _, c := range []struct {
		name       string
		spoke, hub *Object
		code       engine.Code
	}{
		{"its former replica", spoke(fromHub), hub(kept), ""},
		{"an Application of the spoke's users", spoke(``), hub(kept), engine.NameTaken},
		{"the replica of another hub", spoke(`"argocd.argoproj.io/source-uid":"h1","argocd.argoproj.io/principal-uid":"hub-2"`), hub(kept), engine.NameTaken},
		{"the replica of another Application", spoke(`"argocd.argoproj.io/source-uid":"h2","argocd.argoproj.io/principal-uid":"hub-1"`), hub(kept), engine.NameTaken},
		{"the replica of another agent", spoke(fromHub), hub(`,"annotations":{"argocd.argoproj.io/source-uid":"x","argocd-agent.argoproj-labs.io/agent-name":"two"}`), engine.NameTaken},
		{"one of an ApplicationSet", spoke(fromHub), hub(`,"ownerReferences":[{"apiVersion":"argoproj.io/v1alpha1","kind":"ApplicationSet","name":"set"}]`), engine.NameTaken},
		{"one that is being deleted", spoke(fromHub), hub(kept + `,"deletionTimestamp":"2026-01-01T00:00:00Z"`), engine.Busy},
		{"one that is ignored", spoke(fromHub), hub(`,"labels":{"argocd-agent.argoproj-labs.io/ignore-sync":"true"}`), engine.NotAllowed},
	} {
		item, _ := ApplicationKind{}.Publish(c.spoke, autoSpoke())
		merged, err := ApplicationKind{}.Merge(c.hub, item.Key, item.Content, item.Extra, Ownership{}, autoHub())
		if c.code != "" {
			expectRejected(t, c.name, err, c.code)
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		held, _ := ApplicationKind{}.ReadReplica(merged, autoHub())
		expectJSON(t, c.name, held.Content, string(item.Content))
		if !held.Ownership.Owned || held.Ownership.Source != "s1" || merged.Label("l") != "hub" {
			t.Errorf("%s: ownership %+v, labels %v", c.name, held.Ownership, merged.Labels())
		}
		if f := merged.Finalizers(); len(f) != 1 || f[0] != "other/finalizer" {
			t.Errorf("%s: finalizers %v", c.name, f)
		}
	}
}

// The argocd-agent of argoproj-labs made the copies on the hub.
func TestHub_TakesOverCopiesOfExistingInstallation(t *testing.T) {
	app := `{"uid":"u","metadata":{},"spec":{"project":"one-p","destination":{"name":"one"}}}`
	copied := func(annotations string) *Object {
		return object(t, `{"metadata":{"name":"a","namespace":"one-ns","uid":"h","labels":{"l":"hub"},"annotations":{`+annotations+`}},"spec":{"project":"p"}}`)
	}
	merged := merge(t, ApplicationKind{}, copied(`"argocd.argoproj.io/source-uid":"u"`), named("a"), app, autoHub())
	if held, _ := (ApplicationKind{}).ReadReplica(merged, autoHub()); !held.Ownership.Owned || merged.UID() != "h" || merged.Label("l") != "hub" {
		t.Errorf("ownership %+v of %s", held.Ownership, merged.UID())
	}
	for name, annotations := range map[string]string{
		"of another agent":     `"argocd.argoproj.io/source-uid":"u","argocd-agent.argoproj-labs.io/agent-name":"two"`,
		"of another principal": `"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-2"`,
		"of another source":    `"argocd.argoproj.io/source-uid":"v"`,
		"of a user":            ``,
	} {
		_, err := ApplicationKind{}.Merge(copied(annotations), named("a"), []byte(app), nil, Ownership{}, autoHub())
		expectRejected(t, name, err, engine.NameTaken)
	}

	project := `{"uid":"u","spec":{"sourceNamespaces":["one-ns"],"destinations":[{"name":"one","namespace":"*"}]}}`
	former := func(uid string) *Object {
		return object(t, `{"metadata":{"name":"one-p","namespace":"argocd","uid":"h","annotations":{"argocd.argoproj.io/source-uid":"`+uid+`"}},"spec":{}}`)
	}
	merged = merge(t, AppProjectKind{}, former("u"), named("p"), project, autoHub())
	if held, _ := (AppProjectKind{}).ReadReplica(merged, autoHub()); !held.Ownership.Owned {
		t.Errorf("the project is not the agent's: %+v", held.Ownership)
	}
	_, err := AppProjectKind{}.Merge(former("v"), named("p"), []byte(project), nil, Ownership{}, autoHub())
	expectRejected(t, "a project of another source", err, engine.NameTaken)
}

func TestApplication_HubRejectsSpecBeyondAgent(t *testing.T) {
	spec := func(s string) string { return `{"uid":"u","spec":` + s + `}` }
	good := spec(`{"project":"one-p","destination":{"name":"one"}}`)
	other := object(t, `{"metadata":{"name":"a","namespace":"one-ns"},"spec":{}}`)
	ofTwo := object(t, `{"metadata":{"name":"a","namespace":"one-ns","annotations":{"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1","argocd-agent.argoproj-labs.io/agent-name":"two"}},"spec":{}}`)
	ofTeam := merge(t, ApplicationKind{}, nil, engine.Key{Namespace: "team", Name: "a"}, good, autoHub())
	for _, c := range []struct {
		name    string
		local   *Object
		key     engine.Key
		content string
		code    engine.Code
	}{
		{"another agent's project", nil, named("a"), spec(`{"project":"two-p","destination":{"name":"one"}}`), engine.NotAllowed},
		{"an agent whose name starts alike", nil, named("a"), spec(`{"project":"one-two-p","destination":{"name":"one"}}`), engine.NotAllowed},
		{"a project of the hub", nil, named("a"), spec(`{"project":"default","destination":{"name":"one"}}`), engine.NotAllowed},
		{"another destination", nil, named("a"), spec(`{"project":"one-p","destination":{"name":"two"}}`), engine.NotAllowed},
		{"a server", nil, named("a"), spec(`{"project":"one-p","destination":{"name":"one","server":"https://kubernetes.default.svc"}}`), engine.NotAllowed},
		{"a server that is not text", nil, named("a"), spec(`{"project":"one-p","destination":{"name":"one","server":["x"]}}`), engine.NotAllowed},
		{"no destination", nil, named("a"), spec(`{"project":"one-p"}`), engine.NotAllowed},
		{"no spec", nil, named("a"), `{"uid":"u"}`, engine.Invalid},
		{"a spec that is a list", nil, named("a"), spec(`[]`), engine.Invalid},
		{"no UID", nil, named("a"), `{"spec":{"project":"one-p","destination":{"name":"one"}}}`, engine.Invalid},
		{"a name taken by the hub's own", other, named("a"), good, engine.NameTaken},
		{"a copy of another object by an existing installation", object(t, `{"metadata":{"name":"a","namespace":"one-ns","annotations":{"argocd.argoproj.io/source-uid":"v"}},"spec":{}}`),
			named("a"), good, engine.NameTaken},
		{"a name taken by another agent's", ofTwo, named("a"), good, engine.NameTaken},
		{"two sources of one name", ofTeam, named("team.a"), good, engine.NameTaken},
		{"a name that is none", nil, named("../a"), good, engine.Invalid},
		{"a namespace that is none", nil, engine.Key{Namespace: "a.b", Name: "c"}, good, engine.Invalid},
		{"labels that are not text", nil, named("a"), `{"uid":"u","metadata":{"labels":{"a":1}},"spec":{"project":"one-p","destination":{"name":"one"}}}`, engine.Invalid},
		{"a key twice", nil, named("a"), `{"uid":"u","spec":{"project":"one-p","project":"two-p","destination":{"name":"one"}}}`, engine.Invalid},
		{"not JSON", nil, named("a"), `{`, engine.Invalid},
	} {
		_, err := ApplicationKind{}.Merge(c.local, c.key, []byte(c.content), nil, Ownership{}, autoHub())
		expectRejected(t, c.name, err, c.code)
	}
}

func TestApplication_SpokeRejectsExcludedItems(t *testing.T) {
	narrow := managedSpoke()
	narrow.Settings.LabelSelector, _ = ParseSelector("team=y")
	_, err := ApplicationKind{}.Merge(nil, named("a"), []byte(guestbook), nil, Ownership{}, narrow)
	expectRejected(t, "outside the selector", err, engine.NotAllowed)

	left := object(t, `{"metadata":{"name":"a","namespace":"argo","labels":{"argocd-agent.argoproj-labs.io/ignore-sync":"true"}},"spec":{}}`)
	_, err = ApplicationKind{}.Merge(left, named("a"), []byte(guestbook), nil, Ownership{}, managedSpoke())
	expectRejected(t, "labelled ignore-sync", err, engine.NotAllowed)

	byDestination := newEnv(Spoke, Managed, ByDestination)
	_, err = ApplicationKind{}.Merge(nil, engine.Key{Namespace: "kube-system", Name: "a"}, []byte(guestbook), nil, Ownership{}, byDestination)
	expectRejected(t, "a namespace that is not allowed", err, engine.NotAllowed)
	_, err = ApplicationKind{}.Merge(nil, named("a"), []byte(guestbook), nil, Ownership{}, byDestination)
	expectRejected(t, "a key without a namespace", err, engine.Invalid)
	_, err = ApplicationKind{}.Merge(nil, engine.Key{Namespace: "argo", Name: "a"}, []byte(guestbook), nil, Ownership{}, managedSpoke())
	expectRejected(t, "a key with a namespace", err, engine.Invalid)
	_, err = ApplicationKind{}.Merge(nil, named("a"), []byte(`{"uid":"u","spec":{"project":"p","destination":{"name":"elsewhere"}}}`), nil, Ownership{}, managedSpoke())
	expectRejected(t, "another cluster", err, engine.NotAllowed)
	_, err = ApplicationKind{}.Merge(nil, named("a"), []byte(guestbook), nil, Ownership{}, autoSpoke())
	expectRejected(t, "an autonomous agent", err, engine.WrongMode)
}

func TestStripFinalizers_RemovesArgoCDFinalizers(t *testing.T) {
	o := object(t, `{"metadata":{"name":"a","finalizers":["x/y","resources-finalizer.argocd.argoproj.io","resources-finalizer.argocd.argoproj.io/background"]}}`)
	if !HasCascade(o) {
		t.Error("cascade is not seen")
	}
	stripped, changed := StripCascade(o)
	if !changed || HasCascade(stripped) || !slices.Equal(stripped.Finalizers(), []string{"x/y"}) {
		t.Errorf("stripped: %s", stripped.Raw())
	}
	if again, changed := StripCascade(stripped); changed || again != stripped {
		t.Error("there was nothing left to strip")
	}
	bare, changed := StripFinalizers(stripped)
	if !changed || bare.Get("metadata", "finalizers") != nil {
		t.Errorf("bare: %s", bare.Raw())
	}
}

func TestRelease_RemovesOurMetadata(t *testing.T) {
	local := object(t, `{"metadata":{"name":"a","namespace":"argo","annotations":{"note":"mine"}},"spec":{"project":"p"}}`)
	merged, err := ApplicationKind{}.Merge(local, named("a"), []byte(guestbook), nil, Ownership{Adopted: true}, managedSpoke())
	if err != nil || !(ApplicationKind{}).Keeps(merged) {
		t.Fatalf("not adopted: %v", err)
	}
	released := ApplicationKind{}.Release(WithAlias(merged, Alias{Alias: engine.Alias{Written: engine.Version{Hi: 1}, Stored: engine.Version{Lo: 2}}}), managedSpoke())
	if a := released.Annotations(); len(a) != 1 || a["note"] != "y" {
		t.Errorf("annotations are %v", a)
	}
	if !reflect.DeepEqual(ReadOwnership(released, managedSpoke()), Ownership{}) {
		t.Error("still marked")
	}
}

func TestOwnership_KeepsAliasUntilNextWrite(t *testing.T) {
	alias := Alias{Alias: engine.Alias{Written: engine.VersionOf([]byte("a")), Stored: engine.VersionOf([]byte("b"))},
		Lost: []string{"spec.x", `metadata.labels["a/b"]`}, Release: "r", Schema: "s"}
	created, err := ApplicationKind{}.Merge(nil, named("a"), []byte(guestbook), nil, Ownership{Alias: alias}, managedSpoke())
	if err != nil {
		t.Fatal(err)
	}
	if got := ReadOwnership(created, managedSpoke()).Alias; !got.Equal(alias) {
		t.Errorf("alias is %v", got)
	}
	again := merge(t, ApplicationKind{}, created, named("a"), guestbook, managedSpoke())
	if got := ReadOwnership(again, managedSpoke()).Alias; !got.Equal(Alias{}) {
		t.Errorf("alias is still %v", got)
	}
	foreign := managedSpoke()
	foreign.PrincipalUID = "hub-2"
	if ownership := ReadOwnership(created, foreign); ownership.Owned || !ownership.Foreign {
		t.Errorf("to another hub the ownership is %+v", ownership)
	}
}

func TestContent_ReportsUIDAndDeletion(t *testing.T) {
	content := []byte(`{"deleting":true,"metadata":{"annotations":{"argocd.argoproj.io/adoption-policy":"never"}},"uid":"u"}`)
	if !Deleting(content) || ContentUID(content) != "u" || ContentAnnotation(content, AdoptionPolicy) != "never" {
		t.Error("content is not read")
	}
	if Deleting([]byte(guestbook)) || ContentAnnotation([]byte(guestbook), AdoptionPolicy) != "" {
		t.Error("content says what it does not say")
	}
	if p := ProjectOf(object(t, `{"metadata":{"name":"a"},"spec":{}}`)); p != "default" {
		t.Errorf("the project is %q", p)
	}
}
