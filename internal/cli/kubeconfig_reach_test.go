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

// A new kubeconfig is tried with `kubectl get pods` first; who cannot list is told before.
func TestAKubeconfigThatCanNotListSaysSo(t *testing.T) {
	for title, test := range map[string]struct {
		code   int
		answer string
		want   string // empty: nothing is said
	}{
		"lists are open": {http.StatusOK, `{"kind": "PodList", "apiVersion": "v1", "items": []}`, ""},
		"the agent shuts them": {http.StatusForbidden,
			`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "list pods in namespace \"web\" is forbidden: only single objects of Applications are open, not whole lists (the agent's setting resource-proxy-level decides)"}`,
			"`kubectl get pods` does not; to open more, set --resource-proxy-level"},
		"its rights do": {http.StatusForbidden, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "pods is forbidden: User x cannot list"}`, ""},
		"it is away":    {http.StatusServiceUnavailable, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "message": "agent w1 is not connected"}`, ""},
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/namespaces/web/pods" {
				t.Errorf("%s: asked for %s", title, r.URL)
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
		var said bytes.Buffer
		p := &Program{Stderr: &said}
		p.warnOfLists(t.Context(), config, "w1", "web")
		server.Close()
		if (said.Len() == 0) != (test.want == "") || !strings.Contains(said.String(), test.want) {
			t.Errorf("%s: said %q, want %q", title, said.String(), test.want)
		}
	}
	var said bytes.Buffer
	(&Program{Stderr: &said}).warnOfLists(t.Context(), &clientcmdapi.Config{}, "w1", "web") // there is no way from here
	if said.Len() > 0 {
		t.Errorf("said %q without knowing", said.String())
	}
}
