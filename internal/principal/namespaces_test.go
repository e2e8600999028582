package principal

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/fleet/fleettest"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// A task that failed is not retried forever after the agent was deleted.
func TestNamespaces_NotCreatedForDeletedAgent(t *testing.T) {
	var requests []string
	allowed := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method)
		switch {
		case r.Method == http.MethodGet:
			notFound(w, r)
		case !allowed:
			w.WriteHeader(http.StatusForbidden)
		default:
			fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
		}
	}))
	defer server.Close()
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	registry := fleettest.NewRegistry(t, fleettest.Agent("w1", 1), fleettest.Agent("w2", 2))
	pending := map[string]func(context.Context) error{}
	n := &namespaces{create: NamespaceCreate{Enable: true}, client: client, registry: registry, addTask: func(name string, do func(context.Context) error) { pending[name] = do }, log: slog.New(slog.DiscardHandler), ensured: map[string]string{}}
	for _, name := range []string{"w1", "w2"} {
		n.ensure(kind.Agent{Name: name, Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: name})
	}
	run := func() (failed int) {
		for _, do := range pending {
			if do(t.Context()) != nil {
				failed++
			}
		}
		return failed
	}
	if n := run(); n != 2 {
		t.Fatalf("%d tasks failed", n)
	}
	if err := registry.Apply(t.Context(), reconcile.Deleted{Ref: kind.Ref{Resource: fleet.AgentResource, Namespace: "argocd", Name: "w1"}, Revision: 9}); err != nil {
		t.Fatal(err)
	}
	requests, allowed = nil, true
	if n := run(); n != 0 || !slices.Equal(requests, []string{http.MethodGet, http.MethodPost}) {
		t.Errorf("%d tasks failed, requests %q", n, requests)
	}
}
