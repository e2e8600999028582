package agent

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/kube"
)

func TestOwnUser_AsksUntilAnswered(t *testing.T) {
	asked, code := 0, http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Method != http.MethodPost || r.URL.Path != "/apis/authentication.k8s.io/v1/selfsubjectreviews" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"system:serviceaccount:argocd:agent"}}}`)
	}))
	defer server.Close()
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	user := newOwnUser(client)
	if got, err := user(t.Context()); err == nil {
		t.Errorf("%q without an answer", got)
	}
	code = http.StatusCreated
	for range 2 {
		if got, err := user(t.Context()); err != nil || got != "system:serviceaccount:argocd:agent" {
			t.Errorf("%q %v", got, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
