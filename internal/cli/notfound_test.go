package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// at returns the cluster at an address.
func at(t *testing.T, address string) *cluster {
	t.Helper()
	config := &rest.Config{Host: address}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := kube.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{kube: clients, dynamic: objects, raw: raw, config: config, namespace: "argocd"}
}

func TestNotFound_RequiresStatusOfAPIServer(t *testing.T) {
	for title, test := range map[string]struct {
		code    int
		body    string
		missing bool
	}{
		"API server": {404, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"\"a\" not found","details":{"name":"a","kind":"%s"},"code":404}`, true},
		"proxy":      {404, "<html>404 Not Found</html>", false},
		"empty":      {404, "", false},
		"conflict":   {409, "<html>409 Conflict</html>", false},
	} {
		t.Run(title, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "text/html"}[test.missing])
				w.WriteHeader(test.code)
				if test.missing {
					fmt.Fprintf(w, test.body, "secrets")
				} else {
					fmt.Fprint(w, test.body)
				}
			}))
			defer server.Close()
			c := at(t, server.URL)
			if got, err := (secrets{c}).Get(t.Context(), "a"); got != nil || (err == nil) != test.missing {
				t.Errorf("Secret: %v, %v", got, err)
			}
			for _, revision := range []string{"", "7"} {
				if err := (secrets{c}).Put(t.Context(), &pki.Secret{Name: "a", Revision: revision}); err == nil || errors.Is(err, pki.ErrBusy) != (test.missing && revision != "") {
					t.Errorf("write of revision %q: %v", revision, err)
				}
			}
			if _, err := c.configMap(t.Context(), "a"); (err == nil) != test.missing {
				t.Errorf("ConfigMap: %v", err)
			}
			if _, err := (agents{c}).modeFor(t.Context(), "a", "managed"); (err == nil) != test.missing {
				t.Errorf("Agent: %v", err)
			}
		})
	}
}
