package search

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/fleet/fleettest"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/query"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func application(t *testing.T, namespace, name, destination string) *kind.Object {
	t.Helper()
	return fleettest.Object(t, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"namespace": namespace, "name": name, "uid": namespace + name, "resourceVersion": "1"},
		"spec":     map[string]any{"project": "default", "destination": map[string]any{"name": destination, "namespace": "x"}}})
}

func TestFollow_KeepsAgentOfEveryApplication(t *testing.T) {
	r := reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "hub"})
	s := New(Config{Namespace: "argocd", Registry: fleet.NewRegistry(fleet.RegistryConfig{}), Reconciler: r, Log: slog.New(slog.DiscardHandler)})
	step := func(want string, inputs ...reconcile.Input) {
		t.Helper()
		for _, in := range inputs {
			r.Step(1, in)
			s.Follow(in)
		}
		page, err := s.snapshot().List(query.Request{Limit: 10}, query.Scope{Namespace: query.Any, Project: query.Any, Agent: query.Any}, s.clock())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range page.Items {
			got = append(got, fmt.Sprintf("%s/%s@%s", a.Namespace, a.Name, a.Agent))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	observed := func(namespace, name, destination string) reconcile.Input {
		return reconcile.Observed{Resource: kind.Applications, Object: application(t, namespace, name, destination)}
	}
	w1 := kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1"}
	step("w1/a@", observed("w1", "a", "w1"))
	step("w1/a@w1", reconcile.Register{Agent: w1})
	step("w1/a@w1 w1/b@w1 w2/c@", observed("w1", "b", "other"), observed("w2", "c", "w2")) // b is frozen
	step("w1/a@w1 w2/c@", reconcile.Deleted{Ref: kind.Ref{Resource: kind.Applications, Namespace: "w1", Name: "b"}})
	moved := w1
	moved.HubNamespace = "w2"
	step("w1/a@ w2/c@w1", reconcile.Register{Agent: moved})
	step("w1/a@ w2/c@", reconcile.Unregister{Agent: "w1"})
	step("w1/d@ w2/c@", reconcile.List{Resource: kind.Applications, Namespace: "w1", Objects: []*kind.Object{application(t, "w1", "d", "w1")}})
	step("w1/d@ w2/c@", reconcile.List{Resource: kind.AppProjects})
	step("", reconcile.List{Resource: kind.Applications})
}

func TestInSync_IsTheLatestKnownTime(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	agent := func(revision int, confirmed int64) v1alpha1.Agent {
		return fleettest.Agent("w1", revision, func(a *v1alpha1.Agent) { a.Status.LastConfirmed = &metav1.Time{Time: at(confirmed)} })
	}
	registry := fleettest.NewRegistry(t)
	s := New(Config{Namespace: "argocd", Registry: registry, Log: slog.New(slog.DiscardHandler)})
	apply := func(in reconcile.Input) {
		t.Helper()
		if err := registry.Apply(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		s.agentChanged("w1")
	}
	is := func(want int64) {
		t.Helper()
		if got := s.clock().InSync("w1"); got.IsZero() != (want == 0) || want != 0 && got.Unix() != want {
			t.Errorf("%v, want %d", got, want)
		}
	}
	s.InSync("w1", at(50)) // no such agent
	is(0)
	apply(reconcile.Observed{Resource: fleet.AgentResource, Object: fleettest.Object(t, agent(1, 100))})
	is(100)
	s.InSync("w1", at(200))
	is(200)
	s.InSync("w1", at(150))
	apply(reconcile.Observed{Resource: fleet.AgentResource, Object: fleettest.Object(t, agent(2, 120))}) // written before
	is(200)
	apply(reconcile.Deleted{Ref: kind.Ref{Resource: fleet.AgentResource, Namespace: "argocd", Name: "w1"}, Revision: 3})
	is(0)
}
