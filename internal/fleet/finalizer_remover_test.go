package fleet

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Such an agent never hears that an Application is to go, and so never says that
// it went.
func TestFinalizerRemover_AgentWithoutApplications(t *testing.T) {
	const finalizer = "resources-finalizer.argocd.argoproj.io"
	application := func(name string, destination map[string]string) *kind.Object {
		return parsed(t, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "spec": map[string]any{"destination": destination},
			"metadata": map[string]any{"name": name, "namespace": "a", "uid": name, "resourceVersion": "5", "deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": []string{finalizer, "theirs"}}})
	}
	byName, byServer := application("by-name", map[string]string{"name": "a"}), application("by-server", map[string]string{"server": "https://proxy:9090?agentName=a"})
	local, unnamed := application("local", map[string]string{"server": "https://kubernetes.default.svc"}), application("unnamed", map[string]string{})
	all := []*kind.Object{byName, byServer, local, unnamed}

	var kept []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			var patch struct{ Metadata struct{ Finalizers []string } }
			if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
				t.Error(err)
			}
			kept = append(kept, patch.Metadata.Finalizers...)
		}
		_, _ = w.Write(byName.Raw())
	}))
	defer server.Close()
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	n := reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "hub"})
	d := newTestRegistry(t)
	r := NewFinalizerRemover(client, d.Registry, n, func(_ context.Context, do func(*reconcile.Reconciler)) error { do(n); return nil }, d.cfg.Log)
	scans, removals := keySet{}, keySet{}
	r.scans, r.removals = scans, removals
	d.cfg.Post = func(_ context.Context, in reconcile.Input) error { n.Step(0, in); return nil }
	tell := func(in reconcile.Input) {
		n.Step(0, in)
		r.Follow(in)
	}
	due := func() (keys []string) {
		for _, o := range all {
			if removals["a/"+o.Name()] {
				keys = append(keys, o.Name())
			}
		}
		return keys
	}

	d.see(agent("a", 1, "managed"))
	tell(reconcile.List{Resource: kind.Applications, Revision: 5, Objects: all})
	if got := due(); len(got) > 0 || len(scans) > 0 {
		t.Fatalf("%q are released although the agent will delete them", got)
	}
	onlyProjects := func(a *v1alpha1.Agent) { a.Spec.Kinds = []string{v1alpha1.KindAppProjects} }
	d.see(agent("a", 2, "managed", onlyProjects))
	if !scans["a"] {
		t.Error("those that wait already are not looked for")
	}
	for _, o := range all {
		tell(reconcile.Observed{Resource: kind.Applications, Object: o})
	}
	if got := due(); !slices.Equal(got, []string{"by-name", "by-server"}) {
		t.Errorf("%q are released", got)
	}
	if err := r.removeFinalizers(t.Context(), "a/by-name"); err != nil || !slices.Equal(kept, []string{"theirs"}) {
		t.Errorf("finalizers left: %q, %v", kept, err)
	}
	kept = nil
	d.see(agent("a", 3, "managed"))
	if err := r.removeFinalizers(t.Context(), "a/by-name"); err != nil || kept != nil {
		t.Errorf("finalizers removed although the agent replicates Applications: %v", err)
	}
	// Whatever is retired is gone, and all of its Applications may go.
	delete(scans, "a")
	d.see(agent("a", 4, "managed", onlyProjects, func(a *v1alpha1.Agent) { a.Annotations = map[string]string{v1alpha1.RetireAnnotation: "x"} }))
	if !scans["a"] || !r.abandoned(n, local) {
		t.Error("a retired agent's Applications wait")
	}
}

// keySet is a queue that records its keys.
type keySet map[string]bool

func (s keySet) Add(key string)            { s[key] = true }
func (s keySet) Run(context.Context) error { return nil }
