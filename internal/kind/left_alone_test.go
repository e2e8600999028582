package kind

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

const ignoreLabel = `"argocd-agent.argoproj-labs.io/ignore-sync":"true"`

// kindCase is an object of a kind that crosses, with room for labels.
type kindCase struct {
	kind    Kind
	before  string // up to the labels
	after   string
	content string
}

// kindCases returns an object of each kind in an Argo CD namespace.
func kindCases(namespace, applications string) []kindCase {
	meta := func(name, namespace string) string {
		return `{"metadata":{"name":"` + name + `","namespace":"` + namespace + `","uid":"u","labels":{`
	}
	return []kindCase{
		{ApplicationKind{}, meta("a", applications), `}},"spec":{"project":"p","destination":{"name":"one"}}}`,
			`{"uid":"u","spec":{"project":"p","destination":{"name":"in-cluster"}}}`},
		{AppProjectKind{}, meta("p", namespace), `}},"spec":{"sourceNamespaces":["*"],"destinations":[{"name":"*","namespace":"*"}]}}`,
			`{"uid":"u","spec":{}}`},
		{RepositoryKind{}, meta("r", namespace) + `"argocd.argoproj.io/secret-type":"repository",`, `}},"data":{"url":"eA=="}}`,
			`{"uid":"u","metadata":{"labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{}}`},
		{GPGKeyKind{}, meta(gpgKeys, namespace), `}},"data":{"k":"v"}}`,
			`{"uid":"u","data":{"k":"v"}}`},
	}
}

func TestKinds_LeaveIgnoredObjectsUnchanged(t *testing.T) {
	hub := managedHub()
	hub.Settings.ShareUnscopedRepositories = true
	for _, c := range kindCases("argocd", "one-ns") {
		if _, ok := c.kind.Publish(object(t, c.before+`"x":"y"`+c.after), hub); !ok {
			t.Errorf("%s: not published", c.kind.Scope())
		}
		if _, ok := c.kind.Publish(object(t, c.before+ignoreLabel+c.after), hub); ok {
			t.Errorf("%s: published although it is labelled ignore-sync", c.kind.Scope())
		}
	}
	for _, c := range kindCases("argo", "argo") {
		o := object(t, c.before+ignoreLabel+c.after)
		if _, ok := c.kind.ReadReplica(o, managedSpoke()); ok {
			t.Errorf("%s: counts although it is labelled ignore-sync", c.kind.Scope())
		}
		_, err := c.kind.Merge(o, named(o.Name()), []byte(c.content), nil, Ownership{}, managedSpoke())
		expectRejected(t, c.kind.Scope(), err, engine.NotAllowed)
	}
}

func TestKinds_DoNotPublishUnselectedObjects(t *testing.T) {
	hub := managedHub()
	hub.Settings.ShareUnscopedRepositories = true
	hub.Settings.LabelSelector, _ = ParseSelector("team=x")
	for _, c := range kindCases("argocd", "one-ns") {
		if _, ok := c.kind.Publish(object(t, c.before+`"team":"x"`+c.after), hub); !ok {
			t.Errorf("%s: not published", c.kind.Scope())
		}
		if _, ok := c.kind.Publish(object(t, c.before+`"team":"y"`+c.after), hub); ok {
			t.Errorf("%s: published although it is not selected", c.kind.Scope())
		}
	}
}

func TestStatus_OnlyOfReplicatedApplications(t *testing.T) {
	selecting := managedHub()
	selecting.Settings.LabelSelector, _ = ParseSelector("team=x")
	app := func(labels, annotations string) *Object {
		return object(t, `{"metadata":{"name":"a","namespace":"one-ns","labels":{`+labels+`},"annotations":{`+annotations+`}},"spec":{"destination":{"name":"one"}}}`)
	}
	for _, c := range []struct {
		name string
		o    *Object
		w    *Env
		want bool
	}{
		{"selected", app(`"team":"x"`, ``), selecting, true},
		{"not selected", app(`"team":"y"`, ``), selecting, false},
		{"ignored", app(ignoreLabel, ``), managedHub(), false},
		{"a copy", app(``, ourCopy), autoHub(), true},
		{"a copy that is ignored", app(ignoreLabel, ourCopy), autoHub(), false},
		{"no copy", app(``, ``), autoHub(), false},
	} {
		if _, ok := StatusKey(c.o, c.w); ok != c.want {
			t.Errorf("%s: %v", c.name, ok)
		}
	}
}

// Credentials go where their project goes.
func TestRepository_NotPublishedWithoutProject(t *testing.T) {
	spec := `"spec":{"sourceNamespaces":["*"],"destinations":[{"name":"*","namespace":"*"}]}}`
	selecting := managedHub()
	selecting.Settings.LabelSelector, _ = ParseSelector("team=x")
	for _, c := range []struct {
		name, meta string
		w          *Env
		want       bool
	}{
		{"placed", `"namespace":"argocd"`, managedHub(), true},
		{"in another namespace", `"namespace":"elsewhere"`, managedHub(), false},
		{"not selected", `"namespace":"argocd"`, selecting, false},
		{"ignored", `"namespace":"argocd","labels":{` + ignoreLabel + `}`, managedHub(), false},
		{"of an autonomous agent", `"namespace":"argocd"`, autoHub(), false},
	} {
		if got := PlacedProject(object(t, `{"metadata":{"name":"p",`+c.meta+`},`+spec), c.w); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestRepository_SelectsSecrets(t *testing.T) {
	shared := managedHub()
	shared.Settings.ShareUnscopedRepositories = true
	autonomous := autoHub()
	autonomous.Settings.ShareUnscopedRepositories = true
	secret := func(meta string) *Object {
		return object(t, `{"metadata":{"name":"r","uid":"u","labels":{"argocd.argoproj.io/secret-type":"repository"},`+meta+`},"data":{"url":"eA=="}}`)
	}
	for _, c := range []struct {
		name string
		o    *Object
		w    *Env
		want bool
	}{
		{"in Argo CD's namespace", secret(`"namespace":"argocd"`), shared, true},
		{"in another namespace", secret(`"namespace":"elsewhere"`), shared, false},
		{"being deleted", secret(`"namespace":"argocd","deletionTimestamp":"2026-01-01T00:00:00Z"`), shared, false},
		{"for an autonomous agent", secret(`"namespace":"argocd"`), autonomous, false},
	} {
		if _, ok := (RepositoryKind{}).Publish(c.o, c.w); ok != c.want {
			t.Errorf("%s: %v", c.name, ok)
		}
	}
}

func TestApplication_OutsideAgentNamespace(t *testing.T) {
	anywhere := managedHub()
	anywhere.Settings.AllowedNamespaces = []string{"*"}
	if _, ok := (ApplicationKind{}).Publish(object(t, `{"metadata":{"name":"a","namespace":"two-ns","uid":"u"},"spec":{}}`), anywhere); ok {
		t.Error("an Application in the namespace of another agent is sent")
	}
	spoke := managedSpoke()
	spoke.Settings.AllowedNamespaces = []string{"*"}
	if _, ok := (ApplicationKind{}).ReadReplica(object(t, `{"metadata":{"name":"a","namespace":"team","uid":"u"},"spec":{}}`), spoke); ok {
		t.Error("an Application outside Argo CD's namespace counts as a copy in namespace mapping")
	}
}

func TestMergeCascade_OnlyReplicatedApplications(t *testing.T) {
	content := []byte(`{"uid":"u","deleting":true,"metadata":{"labels":{"team":"y"},"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`)
	app := func(labels string) *Object {
		return object(t, `{"metadata":{"name":"a","namespace":"argo","labels":{`+labels+`},"annotations":{`+ourMark+`}},"spec":{}}`)
	}
	if o, err := MergeCascade(app(``), content, managedSpoke()); err != nil || !HasCascade(o) {
		t.Errorf("%v", err)
	}
	_, err := MergeCascade(app(ignoreLabel), content, managedSpoke())
	expectRejected(t, "ignored", err, engine.NotAllowed)
	selecting := managedSpoke()
	selecting.Settings.LabelSelector, _ = ParseSelector("team=x")
	_, err = MergeCascade(app(`"team":"x"`), content, selecting)
	expectRejected(t, "outside the selector", err, engine.NotAllowed)
}

func TestKinds_AutonomousAgentKeepsIgnoredObjects(t *testing.T) {
	selecting := autoSpoke()
	selecting.Settings.LabelSelector, _ = ParseSelector("team=x")
	for _, c := range kindCases("argo", "argo")[:2] { // Applications and AppProjects
		for labels, want := range map[string]bool{`"team":"x"`: true, `"team":"y"`: false, `"team":"x",` + ignoreLabel: false} {
			if _, ok := c.kind.Publish(object(t, c.before+labels+c.after), selecting); ok != want {
				t.Errorf("%s with labels %s: %v", c.kind.Scope(), labels, ok)
			}
		}
	}
}

func TestSameRules_DetectsChangedRules(t *testing.T) {
	before := object(t, `{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"destinations":[],"sourceNamespaces":[],"sourceRepos":[]}}`)
	for after, same := range map[string]bool{
		`{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"destinations":[],"sourceNamespaces":[],"sourceRepos":["*"]}}`:                    true,
		`{"metadata":{"name":"p","labels":{"a":"c"}},"spec":{"destinations":[],"sourceNamespaces":[],"sourceRepos":[]}}`:                       false,
		`{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"destinations":[{}],"sourceNamespaces":[],"sourceRepos":[]}}`:                     false,
		`{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"destinations":[],"sourceNamespaces":["*"],"sourceRepos":[]}}`:                    false,
		`{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"destinations":[],"sourceNamespaces":[],"permitOnlyProjectScopedClusters":true}}`: false,
	} {
		if got := SameRules(before, object(t, after)); got != same {
			t.Errorf("%s: %v", after, got)
		}
	}
}
