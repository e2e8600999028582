package kind

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestReduce_KeepsWhatDecides(t *testing.T) {
	o := object(t, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a","namespace":"w1","uid":"u","resourceVersion":"7","generation":3,
		"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x"],"labels":{"team":"a"},
		"annotations":{"argocd-agent.argoproj-labs.io/agent-name":"w1","kubectl.kubernetes.io/last-applied-configuration":"{}","notified.notifications.argoproj.io":"{}"}},
		"spec":{"project":"p","destination":{"name":"w1","namespace":"web"},"source":{"repoURL":"https://git/x"}},"status":{"health":{"status":"Healthy"}},"operation":{}}`)
	r := Reduce(o)
	if !r.IsReduced() || Reduce(r) != r {
		t.Fatal("it is not reduced")
	}
	if r.Name() != "a" || r.Namespace() != "w1" || r.UID() != "u" || r.ResourceVersion() != "7" || !r.IsDeleting() || r.Label("team") != "a" ||
		!slices.Equal(r.Finalizers(), []string{"x"}) || ProjectOf(r) != "p" || readDestination(r) != readDestination(o) {
		t.Errorf("something is missing: %s", r.Raw())
	}
	if got := r.Annotations(); len(got) != 1 || got[AgentNameAnnotation] != "w1" {
		t.Errorf("annotations: %v", got)
	}
	for _, path := range [][]string{{"status"}, {"operation"}, {"spec", "source"}} {
		if r.Get(path...) != nil {
			t.Errorf("%v is kept", path)
		}
	}
}

// An edit of an object without its content would write an object without it.
func TestReduce_CannotBeEdited(t *testing.T) {
	r := Reduce(object(t, `{"metadata":{"name":"a","namespace":"w1","uid":"u","resourceVersion":"7"},"spec":{"project":"p"}}`))
	for name, edit := range map[string]func() *Object{
		"annotation": func() *Object { return r.withAnnotation("a", "b") },
		"condition":  func() *Object { return SetCondition(r, ConditionError, "text", time.Now()) },
		"outage":     func() *Object { return ShowDisconnected(r, Disconnection{Agent: "w1", Since: time.Now()}) },
	} {
		if edit() != r {
			t.Errorf("%s: it is edited", name)
		}
	}
	if o, err := SetCommandID(r, "id"); err == nil {
		t.Errorf("it gets a command ID: %s", o.Raw())
	}
	if _, err := edit(r).done(); !errors.Is(err, errReduced) {
		t.Errorf("the reason is %v", err)
	}
}
