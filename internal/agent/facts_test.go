package agent

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// A fact that cannot be read, or cannot be a label, is not reported. The others are.
func TestFacts_ReportsWhatItCanRead(t *testing.T) {
	const node = `{"kind":"NodeList","items":[{"metadata":{"name":"n","labels":{"topology.kubernetes.io/region":"eu-1"}},"spec":{"providerID":"aws:///eu-1a/i-1"}}]}`
	tier := engine.Fact{Key: "tier", Value: "edge"}
	for name, c := range map[string]struct {
		version, nodes string
		want           []engine.Fact
	}{
		"everything": {`{"gitVersion":"v1.34.1+k3s1"}`, node,
			[]engine.Fact{{Key: providerFact, Value: "aws"}, {Key: kubernetesVersionFact, Value: "v1.34.1"}, tier, {Key: regionFact, Value: "eu-1"}}},
		"nothing is readable": {"", "", []engine.Fact{tier}},
		"no nodes":            {`{"gitVersion":"v1.34.1-eks-3"}`, `{"items":[]}`, []engine.Fact{{Key: kubernetesVersionFact, Value: "v1.34.1"}, tier}},
		"not labels":          {`{"gitVersion":"v 1"}`, `{"items":[{"metadata":{"name":"n"},"spec":{"providerID":"a b://x"}}]}`, []engine.Fact{tier}},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]string{"/version": c.version, "/api/v1/nodes": c.nodes}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := answers[r.URL.Path]
				if answer == "" {
					w.WriteHeader(http.StatusForbidden)
				}
				_, _ = w.Write([]byte(answer))
			}))
			defer server.Close()
			client, err := kube.NewClient(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			a := &agent{cfg: Config{Facts: map[string]string{"tier": "edge"}}, client: client, log: slog.New(slog.DiscardHandler)}
			if got := a.facts(context.Background()); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
