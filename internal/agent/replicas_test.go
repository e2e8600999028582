package agent

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/policy"
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
