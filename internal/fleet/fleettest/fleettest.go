// Package fleettest has registries of Agents for tests of other packages.
package fleettest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Agent returns a managed Agent in namespace argocd.
func Agent(name string, revision int, change ...func(*v1alpha1.Agent)) v1alpha1.Agent {
	a := v1alpha1.Agent{Spec: v1alpha1.Spec{Mode: "managed"}}
	a.Name, a.Namespace, a.ResourceVersion = name, "argocd", fmt.Sprint(revision)
	a.CreationTimestamp = metav1.Unix(1_000_000, 0)
	for _, do := range change {
		do(&a)
	}
	return a
}

// NewRegistry returns a Registry of Argo CD namespace argocd that has seen these Agents.
func NewRegistry(t *testing.T, agents ...v1alpha1.Agent) *fleet.Registry {
	t.Helper()
	r := fleet.NewRegistry(fleet.RegistryConfig{Namespace: "argocd", Mapping: kind.ByNamespace, ProxyAddress: "proxy:9090", Log: slog.New(slog.DiscardHandler),
		Post: func(context.Context, reconcile.Input) error { return nil }})
	for _, a := range agents {
		if err := r.Apply(t.Context(), reconcile.Observed{Resource: fleet.AgentResource, Object: Object(t, a)}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Object returns a value as an object.
func Object(t *testing.T, v any) *kind.Object {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	o, err := kind.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
