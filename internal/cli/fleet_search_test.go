package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestSearchForwarder_UsesCredentialsOfKubeconfig(t *testing.T) {
	_, reach := newSearch(t)
	p := &Program{Now: time.Now}
	p.global.kubeconfig = reach[1]
	hub, err := p.hub()
	if err != nil {
		t.Fatal(err)
	}
	f := &searchForwarder{hub: hub, flags: searchFlags{server: reach[3], serverCA: reach[5]}}
	get := func(path string) (int, string, http.Header) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		r.Header.Set("Authorization", "Bearer of-the-browser")
		r.Header.Set("Cookie", "secret=1")
		r.Header.Set("Impersonate-User", "admin")
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		return w.Code, w.Body.String(), w.Header()
	}
	if code, body, _ := get("/v1/counts"); f.Available() || code != http.StatusServiceUnavailable || !strings.Contains(body, "cannot be reached") {
		t.Errorf("before it is connected: %d %s", code, body)
	}
	ctx, end := context.WithCancel(t.Context())
	tried, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f.run(ctx, func() { close(tried) })
	}()
	<-tried
	code, body, header := get("/v1/counts?query=health%3DDegraded&groupBy=agent&limit=9")
	if !f.Available() || code != http.StatusOK || strings.TrimSpace(body) != `{"total":1,"groups":[{"value":"w1","count":1}]}` || len(header) > 1 {
		t.Errorf("%d %s %v", code, body, header)
	}
	if code, body, _ := get("/v1/counts?query=helth%3DDegraded&limit=9"); code != http.StatusBadRequest || !strings.Contains(body, `"position":1`) {
		t.Errorf("error of the principal: %d %s", code, body)
	}
	f.mu.Lock()
	f.client.base = "https://127.0.0.1:1" // as if its pod had ended
	f.mu.Unlock()
	if code, body, _ := get("/v1/counts"); code != http.StatusBadGateway || strings.Contains(body, "127.0.0.1") || f.Available() {
		t.Errorf("without the pod: %d %s", code, body)
	}
	end()
	<-ended

	f.flags.server = "127.0.0.1:1"
	ctx, end = context.WithCancel(t.Context())
	tried = make(chan struct{})
	go f.run(ctx, func() { close(tried) })
	<-tried
	end()
	if f.Available() {
		t.Error("a principal without search API is available")
	}
}
