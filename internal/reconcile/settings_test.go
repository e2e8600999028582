package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func projectRef(name string) kind.Ref {
	return kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: name}
}

func project(name, labels, more string) string {
	return fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":%q,"namespace":"argocd","labels":%s},"spec":{"sourceRepos":["*"],"sourceNamespaces":["*"]%s}}`, name, labels, more)
}

const onlyW1 = `,"destinations":[{"name":"w1","namespace":"*"}]`

func TestSettings_ProjectsInheritFromGlobalProjects(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, projectRef("team"), project("team", `{"tier":"prod"}`, onlyW1))
	p.user(kind.Hub, projectRef("other"), project("other", `{}`, onlyW1))
	p.user(kind.Hub, projectRef("global"), project("global", `{}`, `,"namespaceResourceBlacklist":[{"group":"","kind":"Secret"}]`))
	denied := func(project, what string) bool {
		return strings.Contains(string(p.stores[kind.Spoke].objects[projectRef(project)].Get("spec", "namespaceResourceBlacklist")), what)
	}
	if denied("team", "Secret") {
		t.Fatal("it inherits what is not set")
	}

	selector, err := kind.ParseSelector("tier=prod")
	if err != nil {
		t.Fatal(err)
	}
	p.step(kind.Hub, ArgoSettings{GlobalProjects: []kind.GlobalProject{{Name: "global", Selector: selector}}})
	p.settle()
	if !denied("team", "Secret") || denied("other", "Secret") {
		t.Error("a project does not inherit when it is set to, or inherits when it is not")
	}

	p.user(kind.Hub, projectRef("global"), project("global", `{}`, `,"namespaceResourceBlacklist":[{"group":"","kind":"ConfigMap"}]`))
	if !denied("team", "ConfigMap") || denied("team", "Secret") {
		t.Error("a change of the global project does not arrive")
	}

	p.user(kind.Hub, projectRef("other"), project("other", `{"tier":"prod"}`, onlyW1))
	if !denied("other", "ConfigMap") {
		t.Error("a project that is labelled later does not inherit")
	}

	p.step(kind.Hub, ArgoSettings{})
	p.settle()
	if denied("team", "ConfigMap") {
		t.Error("it still inherits")
	}
}

// A project that leaves because another one changed was not edited itself, so the
// deletion budget applies.
func TestSettings_ProjectLeavesWithInheritedDestination(t *testing.T) {
	for _, c := range []struct {
		name  string
		stay  int
		cause engine.Cause // of what is held
	}{{"as one of several", 2, ""}, {"as the last one", 0, engine.CauseLast}} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			p.connect()
			p.removeOnHub(projectRef("default"), true)
			p.step(kind.Hub, ArgoSettings{GlobalProjects: []kind.GlobalProject{{Name: "global", Selector: kind.LabelSelector{Selector: labels.Everything()}}}})
			p.user(kind.Hub, projectRef("team"), project("team", `{}`, ""))
			for i := range c.stay {
				name := fmt.Sprintf("other%d", i)
				p.user(kind.Hub, projectRef(name), project(name, `{}`, onlyW1))
			}
			p.user(kind.Hub, projectRef("global"), project("global", `{}`, onlyW1))
			if p.stores[kind.Spoke].objects[projectRef("team")] == nil {
				t.Fatal("the project did not go where the global one lets it")
			}
			p.advanceTime(70 * engine.Second)
			p.events = nil
			p.user(kind.Hub, projectRef("global"), project("global", `{}`, ""))
			p.advanceTime(10 * engine.Second)
			if there := p.stores[kind.Spoke].objects[projectRef("team")] != nil; there != (c.cause != "") {
				t.Errorf("the project is there: %v", there)
			}
			var cause engine.Cause
			for _, f := range p.events {
				if f.Type == engine.HoldStarted {
					cause = f.Held.Cause
				}
			}
			if cause != c.cause {
				t.Errorf("held by rule %q, want %q", cause, c.cause)
			}
		})
	}
}

func TestSettings_TrackingLabelIsNotReplicated(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	labelled := func(name string) {
		p.user(kind.Hub, ref("w1", name), strings.Replace(app("w1", name, "default", "r1"), `"metadata":{`, `"metadata":{"labels":{"track":"x","app.kubernetes.io/instance":"y"},`, 1))
	}
	labels := func(name string) map[string]string { return p.stores[kind.Spoke].objects[ref("argocd", name)].Labels() }
	labelled("a")
	if l := labels("a"); l["track"] != "x" || l["app.kubernetes.io/instance"] != "" {
		t.Fatalf("labels on the spoke: %v", l)
	}

	p.step(kind.Hub, ArgoSettings{InstanceLabel: "track"})
	p.step(kind.Spoke, FromPeer{Input: engine.Disconnected{Session: 1}})
	p.wires = [2][]engine.Message{}
	p.revision = 100
	p.connect()
	p.advanceTime(5 * engine.Second) // the hub lists again, to be as new as its store
	labelled("b")
	if l := labels("b"); l["track"] != "" || l["app.kubernetes.io/instance"] != "y" {
		t.Errorf("labels on the spoke: %v", l)
	}
	if l := labels("a"); l["app.kubernetes.io/instance"] != "y" {
		t.Errorf("labels of what was there before: %v", l)
	}
	writes := p.writes
	p.advanceTime(70 * engine.Second)
	if p.writes != writes {
		t.Error("the two sides do not agree on what is there")
	}
}
