package cli

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Users try `kubectl get pods` first, so the command warns if lists are denied.
func TestKubeconfig_WarnsIfListsAreDenied(t *testing.T) {
	for title, test := range map[string]struct {
		code   int
		answer string
		want   string // if empty, no warning
	}{
		"lists are allowed": {http.StatusOK, `{"kind": "PodList", "apiVersion": "v1", "items": []}`, ""},
		"the agent denies them": {http.StatusForbidden,
			`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "list pods in namespace \"web\" is forbidden: only single objects of Applications are open, not whole lists (the agent's setting resource-proxy-level decides)"}`,
			"`kubectl get pods` does not. To allow more, set --resource-proxy-level"},
		"RBAC denies them":          {http.StatusForbidden, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "pods is forbidden: User x cannot list"}`, ""},
		"the agent is disconnected": {http.StatusServiceUnavailable, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "message": "agent w1 is not connected"}`, ""},
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/namespaces/web/pods" {
				t.Errorf("%s: request for %s", title, r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(test.code)
			fmt.Fprintln(w, test.answer)
		}))
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		config, err := kubeconfigFor("w1", "web", "", nil, &clusterAccess{Server: server.URL, CA: ca, BearerToken: "x"})
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		p := &Program{Stderr: &stderr}
		p.warnListsDenied(t.Context(), config, "w1", "web")
		server.Close()
		if (stderr.Len() == 0) != (test.want == "") || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: warning %q, want %q", title, stderr.String(), test.want)
		}
	}
	var stderr bytes.Buffer
	(&Program{Stderr: &stderr}).warnListsDenied(t.Context(), &clientcmdapi.Config{}, "w1", "web") // no connection
	if stderr.Len() > 0 {
		t.Errorf("warning without knowledge: %q", stderr.String())
	}
}
