package kind

import (
	"bytes"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

const childContent = `{"metadata":{"annotations":{"notifications.argoproj.io/subscribe.x.slack":"ops"},"finalizers":["resources-finalizer.argocd.argoproj.io"],"labels":{"team":"a"}},"spec":{"destination":{"name":"one","namespace":"x"},"project":"default","source":{}},"uid":"u-1"}`

func childHub() *Env {
	w := managedHub()
	w.Agent.Children = true
	return w
}

func TestChild_HubTakesOnlySpecAndLabels(t *testing.T) {
	o := merge(t, ChildKind{}, nil, named("child"), childContent, childHub())
	if len(o.Finalizers()) > 0 || o.Annotation("notifications.argoproj.io/subscribe.x.slack") != "" {
		t.Errorf("it has what takes effect on the hub: %s", o.Raw())
	}
	if o.Label("team") != "a" || o.Label(IgnoreSync) != "true" || !IsChildReplica(o) || o.Namespace() != "one-ns" {
		t.Errorf("it is %s", o.Raw())
	}
}

func TestChild_IsRejectedOnHub(t *testing.T) {
	for name, c := range map[string]struct {
		key     engine.Key
		content string
		change  func(*Env)
		code    engine.Code
	}{
		"another destination":           {named("child"), strings.Replace(childContent, `"name":"one"`, `"name":"two"`, 1), nil, engine.NotAllowed},
		"a server":                      {named("child"), strings.Replace(childContent, `"name":"one"`, `"name":"one","server":"https://x"`, 1), nil, engine.NotAllowed},
		"no spec":                       {named("child"), `{"uid":"u-1"}`, nil, engine.Invalid},
		"no UID":                        {named("child"), `{"spec":{}}`, nil, engine.Invalid},
		"another namespace":             {engine.Key{Namespace: "argocd", Name: "child"}, childContent, nil, engine.Invalid},
		"not allowed":                   {named("child"), childContent, func(w *Env) { w.Agent.Children = false }, engine.NotAllowed},
		"an autonomous agent":           {named("child"), childContent, func(w *Env) { w.Agent.Mode = Autonomous }, engine.WrongMode},
		"on a workload cluster":         {named("child"), childContent, func(w *Env) { w.Side = Spoke }, engine.WrongMode},
		"AppProjects not read":          {named("child"), childContent, func(w *Env) { w.Rules = func(string) (*ProjectRules, bool) { return nil, false } }, engine.Busy},
		"AppProject is missing":         {named("child"), childContent, func(w *Env) { w.Find = func(Ref) *Object { return nil } }, engine.NotAllowed},
		"outside of the hub's selector": {named("child"), childContent, func(w *Env) { w.Settings.LabelSelector = selecting("b") }, engine.NotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			w := childHub()
			if c.change != nil {
				c.change(w)
			}
			_, err := ChildKind{}.Merge(nil, c.key, []byte(c.content), nil, Ownership{}, w)
			expectRejected(t, "merge", err, c.code)
		})
	}
}

// selecting selects the label team with a value.
type selecting string

func (s selecting) Matches(labels map[string]string) bool { return labels["team"] == string(s) }

func TestChild_ReplicaWithoutLabelDiffers(t *testing.T) {
	w := childHub()
	o := merge(t, ChildKind{}, nil, named("child"), childContent, w)
	right, ok := ChildKind{}.ReadReplica(o, w)
	if !ok || right.Key != named("child") || !right.Ownership.Owned {
		t.Fatalf("it is read as %+v, %v", right, ok)
	}
	without := object(t, strings.Replace(string(o.Raw()), `"`+IgnoreSync+`":"true"`, `"`+IgnoreSync+`":"no"`, 1))
	if read, ok := (ChildKind{}).ReadReplica(without, w); !ok || bytes.Equal(read.Content, right.Content) {
		t.Error("a replica that can be sent counts as equal")
	}
	// It is not sent by this release either, whether or not children are shown.
	for _, children := range []bool{true, false} {
		w.Agent.Children = children
		if item, ok := (ApplicationKind{}).Publish(without, w); ok {
			t.Errorf("it is sent: %s", item.Content)
		}
	}
	if _, p, _ := Place(o, w); p != NotPlaced {
		t.Errorf("after the permission has ended it is %s", p)
	}
}

func TestChild_NamesInTreeOfParent(t *testing.T) {
	list := `[{"group":"argoproj.io","kind":"Application","namespace":"argo","name":"child"},{"group":"argoproj.io","kind":"Application","namespace":"other","name":"child"}]`
	onHub := `[{"group":"argoproj.io","kind":"Application","namespace":"one-ns","name":"child"},{"group":"argoproj.io","kind":"Application","namespace":"other","name":"child"}]`
	w := childHub()
	expectJSON(t, "tree", TreeOnHub([]byte(`{"nodes":`+list+`}`), w), `{"nodes":`+onHub+`}`)
	spoke := managedSpoke()
	spoke.Agent.Children = true
	parent := `{"metadata":{"name":"parent","namespace":"argo","uid":"u","annotations":{"argocd.argoproj.io/source-uid":"s","argocd.argoproj.io/principal-uid":"hub-1"}},"status":{"resources":` + list + `}}`
	item, ok := StatusKind{}.Publish(object(t, parent), spoke)
	if !ok {
		t.Fatal("no status")
	}
	expectJSON(t, "status", item.Content, `{"status":{"resources":`+onHub+`}}`)
	spoke.Agent.Mapping = ByDestination
	item, _ = StatusKind{}.Publish(object(t, parent), spoke)
	expectJSON(t, "status with destination mapping", item.Content, `{"status":{"resources":`+list+`}}`)
}

func TestChild_TrackedByLabel(t *testing.T) {
	w := managedSpoke()
	for name, c := range map[string]struct {
		metadata string
		parent   string
	}{
		"label":                   {`"labels":{"app.kubernetes.io/instance":"parent"}`, "argo/parent"},
		"label, other namespace":  {`"labels":{"app.kubernetes.io/instance":"team_parent"}`, "team/parent"},
		"annotation":              {`"annotations":{"argocd.argoproj.io/tracking-id":"parent:argoproj.io/Application:argo/child"}`, "argo/parent"},
		"annotation before label": {`"labels":{"app.kubernetes.io/instance":"x"},"annotations":{"argocd.argoproj.io/tracking-id":"parent:argoproj.io/Application:argo/child"}`, "argo/parent"},
		"copied annotation":       {`"labels":{"app.kubernetes.io/instance":"parent"},"annotations":{"argocd.argoproj.io/tracking-id":"parent:argoproj.io/Application:argo/other"}`, ""},
		"neither":                 {`"labels":{}`, ""},
	} {
		ref, ok := ParentOf(object(t, `{"metadata":{"name":"child","namespace":"argo",`+c.metadata+`}}`), w)
		got := ""
		if ok {
			got = ref.Namespace + "/" + ref.Name
		}
		if got != c.parent {
			t.Errorf("%s: the parent is %q, want %q", name, got, c.parent)
		}
	}
}
