package resource

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unique"
)

func TestHub_DisconnectedAgentIsAnImmediateStatus(t *testing.T) {
	s := newStage(t, fakeServer(t, answer), options{})
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s.leave(&NotConnectedError{Agent: "w1", Since: since})
	begin := time.Now()
	response, body := s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p", nil)
	status := statusOf(t, response, body)
	if status.Code != http.StatusServiceUnavailable || status.Message != "agent w1 is disconnected since 2026-01-02T03:04:05Z" {
		t.Errorf("got %s", body)
	}
	if response.Header.Get("Retry-After") != "" {
		t.Error("client-go would try ten times before it says anything")
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %s", took)
	}
	s.mu.Lock()
	s.away = nil
	s.mu.Unlock()
	if response, _ := s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p", nil); response.StatusCode != http.StatusOK {
		t.Errorf("after it came back: %s", response.Status)
	}
}

func TestHub_FailuresAreExplained(t *testing.T) {
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/namespaces/a/pods/elsewhere" {
			w.Header().Set("Location", "https://evil.example/")
			w.WriteHeader(http.StatusFound)
			return
		}
		panic(http.ErrAbortHandler)
	}), options{})
	for _, test := range []struct {
		client *http.Client
		path   string
		code   int
		text   string
	}{
		{s.clientAs(t, "w2"), "/version", http.StatusForbidden, `no agent "w2" is registered`},
		{s.client, "/api/v1/namespaces/a/pods/elsewhere", http.StatusBadGateway, "redirects to another host"},
		{s.client, "/api/v1/namespaces/a/pods/p", http.StatusBadGateway, "agent w1 got no response from its API server"},
	} {
		response, body := s.ask(t, test.client, http.MethodGet, test.path, nil)
		if status := statusOf(t, response, body); status.Code != test.code || !strings.Contains(status.Message, test.text) {
			t.Errorf("%s: got %s", test.path, body)
		}
	}
	s.leave(errors.New("out of tunnels"))
	response, body := s.ask(t, s.client, http.MethodGet, "/version", nil)
	if status := statusOf(t, response, body); status.Code != http.StatusBadGateway || !strings.Contains(status.Message, "out of tunnels") {
		t.Errorf("got %s", body)
	}
}

// documents is an API server with discovery of several types.
func documents(w http.ResponseWriter, r *http.Request) {
	accept := r.Header.Get("Accept")
	w.Header().Set("Content-Type", "application/json")
	text := `{"path":"` + r.URL.Path + `"}`
	if strings.Contains(accept, "as=APIGroupDiscoveryList") {
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		text = `{"aggregated":"` + r.URL.Path + `"}`
	}
	w.Header().Set("Etag", `"1"`)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		_, _ = io.WriteString(zip, text)
		_ = zip.Close()
		return
	}
	_, _ = io.WriteString(w, text)
}

func TestDiscoveryCache_ServesWhileTheAgentIsDisconnected(t *testing.T) {
	s := newStage(t, fakeServer(t, documents), options{})
	s.ask(t, s.client, http.MethodGet, "/openapi/v2", nil, "Accept", "application/json")
	s.ask(t, s.client, http.MethodGet, "/apis", nil, "Accept", "application/json")
	s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p", nil)
	if err := s.hub.PrefetchDiscovery(t.Context(), "w1"); err != nil {
		t.Fatal(err)
	}
	s.leave(&NotConnectedError{Agent: "w1"})
	for _, test := range []struct {
		path, accept, encoding, want string
	}{
		{"/version", "application/json, */*", "", `{"path":"/version"}`},
		{"/version", "", "", `{"path":"/version"}`},
		{"/apis", aggregatedDiscovery, "", `{"aggregated":"/apis"}`},
		{"/apis", aggregatedDiscovery, "identity", `{"aggregated":"/apis"}`},
		{"/apis", "application/json", "", ""},       // the index is not cached
		{"/openapi/v2", "application/json", "", ""}, // nor is this
		{"/api/v1/namespaces/a/pods/p", "", "", ""}, // no document
		{"/version?timeout=32s", "application/json", "", `{"path":"/version"}`},
		{"/version?x=y", "application/json", "", ""}, // another question
	} {
		var headers []string
		if test.accept != "" {
			headers = append(headers, "Accept", test.accept)
		}
		if test.encoding != "" {
			headers = append(headers, "Accept-Encoding", test.encoding)
		}
		response, body := s.ask(t, s.client, http.MethodGet, test.path, nil, headers...)
		if test.want == "" {
			if status := statusOf(t, response, body); status.Code != http.StatusServiceUnavailable {
				t.Errorf("%s: got %s", test.path, body)
			}
			continue
		}
		if response.StatusCode != http.StatusOK || string(body) != test.want ||
			!strings.HasPrefix(response.Header.Get("Warning"), `299 argocd-agent "agent w1 has not been connected`) {
			t.Errorf("%s as %s: got %s, %q, %v", test.path, test.accept, response.Status, body, response.Header)
		}
	}
	response, _ := s.ask(t, s.client, http.MethodGet, "/apis", nil, "Accept", aggregatedDiscovery, "If-None-Match", `"1"`)
	if response.StatusCode != http.StatusNotModified {
		t.Errorf("a caller with the document gets it again: %s", response.Status)
	}
	s.hub.Forget("w1")
	if response, _ := s.ask(t, s.client, http.MethodGet, "/version", nil); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("of an agent that was removed something is left: %s", response.Status)
	}
}

func TestDiscoveryCache_ServesWhileTheAgentIsUnresponsive(t *testing.T) {
	hang := make(chan bool, 1)
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
			<-r.Context().Done()
		default:
			documents(w, r)
		}
	}), options{hub: func(c *HubConfig) { c.CachedFirstByte = 50 * time.Millisecond }})
	s.ask(t, s.client, http.MethodGet, "/version", nil)
	hang <- true
	response, body := s.ask(t, s.client, http.MethodGet, "/version", nil)
	if response.StatusCode != http.StatusOK || response.Header.Get("Warning") == "" {
		t.Errorf("got %s: %s", response.Status, body)
	}
}

func TestDiscoveryCache_IsBounded(t *testing.T) {
	c := &discoveryCache{documents: map[documentKey]document{}}
	body := unique.Make(strings.Repeat("x", maxDocument))
	for i := range 2 * maxDocuments / maxDocument {
		c.put(documentKey{fmt.Sprint("agent", i), "/apis"}, document{body: body})
		c.put(documentKey{"agent0", "/apis"}, document{body: body}) // replaces its own
	}
	if c.size != maxDocuments || len(c.documents) != maxDocuments/maxDocument {
		t.Errorf("%d documents have %d bytes", len(c.documents), c.size)
	}
	for i := range 2 * maxDocuments / maxDocument {
		c.forget(fmt.Sprint("agent", i))
	}
	if c.size != 0 || len(c.documents) != 0 {
		t.Errorf("%d documents with %d bytes are left", len(c.documents), c.size)
	}
}
