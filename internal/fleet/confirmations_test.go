package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// serve gives the registry an API server that takes every patch.
func (d *testRegistry) serve(t *testing.T, patches *[]string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*patches = append(*patches, string(b))
		fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
	}))
	t.Cleanup(server.Close)
	var err error
	if d.cfg.Client, err = kube.NewClient(&rest.Config{Host: server.URL}); err != nil {
		t.Fatal(err)
	}
}

func TestConfirmations_CountOnce(t *testing.T) {
	d := newTestRegistry(t)
	var patches []string
	d.serve(t, &patches)
	jobs := taskList{}
	c := NewConfirmations(d.Registry, d.cfg.Post, jobs.add)
	held := func(id string) engine.Event {
		return engine.Event{Type: engine.HoldStarted, Scope: "applications", Held: &engine.Held{Scope: "applications", ID: id}}
	}
	unheld := engine.Event{Type: engine.HoldEnded, Scope: "applications", Held: &engine.Held{Scope: "applications", ID: "x1"}}

	// The word is there before the agent says that it holds something.
	d.see(agent("a", 1, "managed", confirming("x1")))
	d.posted = nil
	c.HandleEvent("a", held("x1"))
	jobs.run(t)
	d.says("confirm a x1")
	// The connection breaks before it is done: it holds for the next one too.
	c.HandleEvent("a", engine.Event{Type: engine.Closed})
	c.HandleEvent("a", unheld) // sent at the start of a session
	c.HandleEvent("a", held("x1"))
	jobs.run(t)
	d.says("confirm a x1")
	if len(patches) > 0 {
		t.Errorf("taken off before it was done: %q", patches)
	}
	c.HandleEvent("a", unheld)
	jobs.run(t)
	if len(patches) != 1 || !strings.Contains(patches[0], `"op":"test"`) || !strings.Contains(patches[0], `"x1"`) || !strings.Contains(patches[0], `"op":"remove"`) {
		t.Errorf("patches: %q", patches)
	}
	// Something else is not confirmed by it.
	c.HandleEvent("a", held("x2"))
	jobs.run(t)
	d.says()
	if len(jobs) > 0 {
		t.Error("tasks are left")
	}
}

func TestConfirmations_BothSidesHoldStore(t *testing.T) {
	d := newTestRegistry(t)
	c := NewConfirmations(d.Registry, d.cfg.Post, taskList{}.add)
	c.HandleEvent("a", engine.Event{Type: engine.HoldStarted, Held: &engine.Held{ID: "store-hub"}})
	c.HandleEvent("a", engine.Event{Type: engine.HoldStarted, Held: &engine.Held{ID: "store-agent"}})
	c.HandleEvent("a", engine.Event{Type: engine.HoldEnded, Held: &engine.Held{ID: "store-hub"}})
	if _, still := c.held["a"]["store-agent"]; !still || len(c.held["a"]) != 1 {
		t.Errorf("held: %v", c.held)
	}
}

// An agent that says ever new things about what it holds fills no memory here.
func TestConfirmations_HoldsPerAgentAreBounded(t *testing.T) {
	d := newTestRegistry(t)
	c := NewConfirmations(d.Registry, d.cfg.Post, taskList{}.add)
	p := engine.NewPeer(engine.Config{Hub: true, Scopes: []engine.ScopeConfig{{Name: "application"}}}, nil)
	step := func(in engine.Input) {
		for _, e := range p.Step(1, in) {
			if f, ok := e.(engine.Event); ok {
				c.HandleEvent("a", f)
			}
		}
	}
	one := engine.Range{Min: 1, Max: 1}
	step(engine.Connected{Session: 1})
	step(engine.Received{Session: 1, Message: engine.Hello{Epoch: engine.Epoch{Incarnation: 1}, Protocol: one, Projection: one}})
	step(engine.Begin{})
	for i := range 1000 {
		for _, scope := range []string{"", "application", "other"} {
			step(engine.Received{Session: 1, Message: engine.Held{Scope: scope, ID: fmt.Sprint("id-", scope, i)}})
		}
	}
	if n := len(c.held["a"]); n != 2 {
		t.Errorf("%d are remembered", n)
	}
}

// taskList records tasks.
type taskList map[string]func(context.Context) error

func (l taskList) add(name string, do func(context.Context) error) { l[name] = do }

// run runs all tasks.
func (l taskList) run(t *testing.T) {
	t.Helper()
	for name, do := range l {
		if err := do(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		delete(l, name)
	}
}
