package agent

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/policy"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestReplicas_RefusedByPolicies(t *testing.T) {
	a := &agent{policies: newPolicies(nil)}
	ask := func() string {
		near, far := net.Pipe()
		defer near.Close()
		go func() {
			defer far.Close()
			a.serveReplicas(t.Context(), far)
		}()
		_ = near.SetDeadline(time.Now().Add(10 * time.Second))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://agent/?hub=u", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := request.Write(near); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(near), request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		reason, _ := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("status %d", response.StatusCode)
		}
		return string(reason)
	}
	if got := ask(); !strings.Contains(got, "not read yet") {
		t.Errorf("before AgentPolicies are read: %q", got)
	}
	for want, spec := range map[string]v1alpha1.PolicySpec{
		"liveAccess.read": {LiveAccess: &v1alpha1.LiveAccess{Secrets: true}},
		"spec.adoption":   {Adoption: "x"},
	} {
		d := decidePolicies(policy.Env{Mode: kind.Managed}, []readPolicy{{AgentPolicy: v1alpha1.AgentPolicy{Spec: spec}}}, time.Unix(0, 0))
		a.policies.decided.Store(&d)
		if got := ask(); !strings.Contains(got, want) {
			t.Errorf("%s: %q", want, got)
		}
	}
}

// A hub that skips the first page has a line too. A request that only counts has none.
func TestReplicas_EachPageIsAudited(t *testing.T) {
	var out bytes.Buffer
	log, err := audit.Open(t.Context(), audit.Config{Target: "-", Stdout: &out, Side: audit.Spoke, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d := decidePolicies(policy.Env{Mode: kind.Managed}, nil, time.Unix(0, 0))
	a := &agent{policies: newPolicies(nil), cfg: Config{Audit: log}, runner: kube.NewRunner(nil, kube.RunnerConfig{Reconciler: reconcile.New(reconcile.Config{})})}
	a.policies.decided.Store(&d)
	ended, cancel := context.WithCancel(t.Context())
	cancel() // the core does not run
	for _, query := range []string{"", "?hub=u", "?hub=u&after=0"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://agent/"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, refused := a.replicas(ended, request); refused != "the agent stops" {
			t.Errorf("%q: %s", query, refused)
		}
	}
	log.Close()
	if n := strings.Count(out.String(), `"action":"read replicas"`); n != 2 {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}
