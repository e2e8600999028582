package principal

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/node"
)

// desk is a registry of which one sees what it tells the node.
type desk struct {
	*registry
	t    *testing.T
	told []string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t}
	d.registry = &registry{ctx: t.Context(), namespace: "argocd", mapping: kind.ByNamespace, log: slog.New(slog.DiscardHandler),
		ready: make(chan struct{}), secrets: map[string]registration{}, agents: map[string]registration{}, refused: map[string]string{},
		post: func(_ context.Context, in node.Input) error {
			switch in := in.(type) {
			case node.Register:
				d.told = append(d.told, "register "+in.Agent.Name+" "+string(in.Agent.Mode)+" "+in.Agent.HubNamespace)
			case node.Unregister:
				d.told = append(d.told, "unregister "+in.Agent)
			case node.Confirm:
				d.told = append(d.told, "confirm "+in.Agent+" "+in.ID)
			}
			return nil
		}}
	return d
}

// secret makes a cluster Secret with annotations, given as name, value …
func secret(t *testing.T, name, agent string, revision int, annotations ...string) *kind.Object {
	t.Helper()
	all := map[string]string{}
	for pair := range slices.Chunk(annotations, 2) {
		all[kind.Prefix+pair[0]] = pair[1]
	}
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": name, "namespace": "argocd", "resourceVersion": fmt.Sprint(revision),
		"labels": map[string]string{agentLabel: agent}, "annotations": all}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := kind.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (d *desk) see(name, agent string, revision int, annotations ...string) {
	d.t.Helper()
	if err := d.take(d.t.Context(), node.Seen{Object: secret(d.t, name, agent, revision, annotations...)}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) lose(name string, revision uint64) {
	d.t.Helper()
	if err := d.take(d.t.Context(), node.Lost{Ref: kind.Ref{Name: name}, Revision: revision}); err != nil {
		d.t.Fatal(err)
	}
}

// says checks what the node was told since the last time.
func (d *desk) says(want ...string) {
	d.t.Helper()
	if strings.Join(d.told, "; ") != strings.Join(want, "; ") {
		d.t.Errorf("the node was told %q, want %q", d.told, want)
	}
	d.told = nil
}

func TestRegistrationEditsTakeEffect(t *testing.T) {
	d := newDesk(t)
	d.see("cluster-a", "a", 1, "mode", "managed")
	d.says("register a managed a")
	d.see("cluster-a", "a", 2, "mode", "managed")
	d.says() // nothing new
	d.see("cluster-a", "a", 3, "mode", "autonomous", "hub-namespace", "there")
	d.says("register a autonomous there")
	d.see("cluster-a", "a", 4, "mode", "typo")
	d.says() // what was in force stays
	d.see("cluster-a", "b", 5, "mode", "managed")
	d.says("unregister a", "register b managed b")
	d.see("cluster-a", "b", 6)
	d.says("unregister b") // to be claimed anew
	d.see("cluster-a", "b", 7, "mode", "managed", "hub-namespace", "a/../b")
	d.says()
}

func TestLateEventsOfASecretAreNoNews(t *testing.T) {
	d := newDesk(t)
	d.see("cluster-a", "a", 5, "mode", "managed") // the answer to our own write
	d.says("register a managed a")
	d.see("cluster-a", "a", 3)
	d.lose("cluster-a", 2) // that of its predecessor
	d.says()
	d.lose("cluster-a", 6)
	d.says("unregister a")
}

func TestAListShowsWhatHasGone(t *testing.T) {
	d := newDesk(t)
	d.see("cluster-a", "a", 1, "mode", "managed")
	d.see("cluster-b", "b", 2, "mode", "managed")
	d.told = nil
	if err := d.take(t.Context(), node.Blind{Reason: "no rights"}); err != nil || d.readable() == nil {
		t.Errorf("%v: Secrets can not be read, and it is ready", err)
	}
	if err := d.take(t.Context(), node.List{Revision: 9, Objects: []*kind.Object{secret(t, "cluster-b", "b", 2, "mode", "managed")}}); err != nil {
		t.Fatal(err)
	}
	d.says("unregister a")
	if err := d.readable(); err != nil {
		t.Error(err)
	}
}

func TestOfTwoSecretsOfAnAgentTheUsualOneCounts(t *testing.T) {
	d := newDesk(t)
	d.see("copy", "a", 1, "mode", "autonomous")
	d.see("cluster-a", "a", 2, "mode", "managed")
	d.see("copy", "a", 3, "mode", "autonomous", "hub-namespace", "x")
	d.says("register a autonomous a", "register a managed a")
	d.lose("cluster-a", 4)
	d.says("register a autonomous x")
}

func TestTwoAgentsDoNotShareANamespace(t *testing.T) {
	d := newDesk(t)
	d.see("cluster-a", "a", 1, "mode", "managed")
	d.see("cluster-b", "b", 2, "mode", "managed", "hub-namespace", "a")
	d.says("register a managed a")
	if why := d.refusal("b"); !strings.Contains(why, "agent a") {
		t.Errorf("refused because %q", why)
	}
	d.lose("cluster-a", 3)
	d.says("unregister a", "register b managed a")
	if why := d.refusal("b"); why != "" {
		t.Errorf("still refused because %q", why)
	}
	d.see("cluster-c", "c", 4, "mode", "autonomous", "hub-namespace", "argocd")
	d.see("cluster-argocd", "argocd", 5, "mode", "managed")
	d.says() // these would have the hub's own
	d.mapping = kind.ByDestination
	d.see("cluster-e", "e", 6, "mode", "managed", "hub-namespace", "a")
	d.says("register e managed a", "register argocd managed argocd")
}

func TestAnotherClusterUIDBeginsANewRelation(t *testing.T) {
	d := newDesk(t)
	d.see("cluster-a", "a", 1, "mode", "managed")
	d.see("cluster-a", "a", 2, "mode", "managed", "cluster-uid", "one") // recorded: no reason to cut anybody
	d.says("register a managed a", "register a managed a")
	d.see("cluster-a", "a", 3, "mode", "managed", "cluster-uid", "two")
	d.says("unregister a", "register a managed a")
	d.see("cluster-a", "a", 4, "mode", "managed")
	d.says("unregister a", "register a managed a")
}

// serve gives the registry an API server that takes every patch.
func (d *desk) serve(t *testing.T, patches *[]string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*patches = append(*patches, string(b))
		fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
	}))
	t.Cleanup(server.Close)
	var err error
	if d.client, err = kube.NewClient(&rest.Config{Host: server.URL}); err != nil {
		t.Fatal(err)
	}
}

func TestAConfirmationCountsOnceWheneverItCame(t *testing.T) {
	d := newDesk(t)
	var patches []string
	d.serve(t, &patches)
	jobs := newChores(d.log)
	c := &confirmations{held: map[string]map[string]string{}, registry: d.registry, chores: jobs, post: d.post}
	held := func(id string) engine.Fact {
		return engine.Fact{Event: engine.HeldEvent, Scope: "applications", Held: &engine.Held{Scope: "applications", ID: id}}
	}
	unheld := engine.Fact{Event: engine.Unheld, Scope: "applications", Held: &engine.Held{Scope: "applications", ID: "x1"}}

	// The word is there before the agent says that it holds something.
	d.see("cluster-a", "a", 1, "mode", "managed", "confirm", "x1")
	d.told = nil
	c.fact("a", held("x1"))
	jobs.workOff(t.Context())
	d.says("confirm a x1")
	// The connection breaks before it is done: it holds for the next one too.
	c.fact("a", engine.Fact{Event: engine.Closed})
	c.fact("a", unheld) // what a greeting begins with
	c.fact("a", held("x1"))
	jobs.workOff(t.Context())
	d.says("confirm a x1")
	if len(patches) > 0 {
		t.Errorf("taken off before it was done: %q", patches)
	}
	c.fact("a", unheld)
	jobs.workOff(t.Context())
	if len(patches) != 1 || !strings.Contains(patches[0], `"`+confirmAnnotation+`":null`) || !strings.Contains(patches[0], `"resourceVersion":"1"`) {
		t.Errorf("patches: %q", patches)
	}
	// Something else is not confirmed by it.
	c.fact("a", held("x2"))
	jobs.workOff(t.Context())
	d.says()
	if jobs.left() > 0 {
		t.Error("something is left to be done")
	}
}

func TestBothSidesMayDistrustTheOthersStore(t *testing.T) {
	d := newDesk(t)
	c := &confirmations{held: map[string]map[string]string{}, registry: d.registry, chores: newChores(d.log), post: d.post}
	c.fact("a", engine.Fact{Event: engine.HeldEvent, Held: &engine.Held{ID: "store-hub"}})
	c.fact("a", engine.Fact{Event: engine.HeldEvent, Held: &engine.Held{ID: "store-agent"}})
	c.fact("a", engine.Fact{Event: engine.Unheld, Held: &engine.Held{ID: "store-hub"}})
	if _, still := c.held["a"]["store-agent"]; !still || len(c.held["a"]) != 1 {
		t.Errorf("held: %v", c.held)
	}
}

func TestTheFirstClusterIsRecorded(t *testing.T) {
	d := newDesk(t)
	var patches []string
	d.serve(t, &patches)
	d.see("cluster-a", "a", 1, "mode", "managed")
	if err := d.recordCluster(t.Context(), "a", "uid-1"); err != nil {
		t.Fatal(err)
	}
	d.see("cluster-a", "a", 2, "mode", "managed", "cluster-uid", "uid-1")
	if err := d.recordCluster(t.Context(), "a", "uid-2"); err != nil {
		t.Fatal(err)
	}
	if len(patches) != 1 || !strings.Contains(patches[0], `"uid-1"`) {
		t.Errorf("patches: %q", patches)
	}
}
