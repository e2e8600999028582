package podrun

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestClientSource_QueriesServer(t *testing.T) {
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	events := make(chan string)
	mux := http.NewServeMux()
	answer := func(pattern string, f func(r *http.Request) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(f(r))
		})
	}
	answer("GET /api/v1/namespaces/ns/secrets/s", func(*http.Request) any {
		return map[string]any{"kind": "Secret", "apiVersion": "v1", "data": map[string]string{"k": "dg=="}}
	})
	answer("GET /api/v1/namespaces/ns/configmaps/c", func(*http.Request) any {
		return map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "data": map[string]string{"k": "v"}}
	})
	answer("POST /api/v1/namespaces/ns/serviceaccounts/sa/token", func(r *http.Request) any {
		var request authenticationv1.TokenRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		if s := request.Spec; *s.ExpirationSeconds != 600 || len(s.Audiences) != 1 || s.Audiences[0] != "vault" {
			t.Errorf("asked for %+v", s)
		}
		request.Status = authenticationv1.TokenRequestStatus{Token: "t", ExpirationTimestamp: metav1.NewTime(expires)}
		return request
	})
	watch := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		select {
		case event := <-events:
			_, _ = io.WriteString(w, event) // the watch ends and is opened again
		case <-r.Context().Done():
		}
	}
	mux.HandleFunc("GET /api/v1/namespaces/ns/secrets", watch)
	mux.HandleFunc("GET /api/v1/namespaces/ns/configmaps", watch)
	server := httptest.NewServer(mux)
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	must(t, err)
	source := FromClient(client)

	secret, err := source.Secret(t.Context(), "ns", "s")
	if err != nil || string(secret.Data["k"]) != "v" {
		t.Errorf("secret %v, %v", secret, err)
	}
	cm, err := source.ConfigMap(t.Context(), "ns", "c")
	if err != nil || cm.Data["k"] != "v" {
		t.Errorf("config map %v, %v", cm, err)
	}
	if _, err := source.Secret(t.Context(), "ns", "absent"); !apierrors.IsNotFound(err) {
		t.Errorf("an absent Secret: %v", err)
	}
	token, err := source.Token(t.Context(), "ns", "sa", TokenRequest{Audience: "vault", Seconds: 600})
	if err != nil || token.Value != "t" || !token.Expires.Equal(expires) {
		t.Errorf("token %v, %v", token, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	notified := make(chan struct{}, 10)
	var wg sync.WaitGroup
	watcher, ok := source.(Watcher)
	if !ok {
		t.Fatal("the source cannot watch")
	}
	wg.Go(func() { watcher.Watch(ctx, "ns", func() { notified <- struct{}{} }) })
	for range 3 { // more than there are watches: one was opened again
		events <- `{"type":"MODIFIED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"}}}` + "\n"
		<-notified
	}
	cancel()
	wg.Wait()
}
