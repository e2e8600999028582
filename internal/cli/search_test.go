package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/query"
)

// searchAPI serves a model like the search API of the principal to one user, who sees everything.
type searchAPI struct {
	t     *testing.T
	model *query.Model
	gone  int // number of watches that must start again
}

func (a *searchAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer the-token" {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":"no valid credentials"}`))
		return
	}
	values := r.URL.Query()
	fail := func(code int, err error) {
		w.WriteHeader(code)
		body := map[string]any{"error": err.Error()}
		if e, ok := errors.AsType[*query.Error](err); ok {
			body["position"] = e.Position
		}
		_ = json.NewEncoder(w).Encode(body)
	}
	q, err := query.Parse(values.Get("query"))
	if err != nil {
		fail(http.StatusBadRequest, err)
		return
	}
	scope := query.Scope{Namespace: query.Any, Project: query.Any, Agent: query.Any}
	clock := query.Clock{Now: today, InSync: func(string) time.Time { return today.Add(-12 * time.Second) }}
	var limit int
	_, _ = fmt.Sscan(values.Get("limit"), &limit)
	var result any
	switch r.URL.Path {
	case "/v1/applications":
		// Small pages, so that the client needs several.
		var page searchPage
		page.Page, err = a.model.Snapshot().List(query.Request{Query: q, Sort: values.Get("sort"), Limit: min(limit, 2), Token: values.Get("page")}, scope, clock)
		if strings.HasPrefix(q.String(), "freshness>") {
			page.Unanswered = 1
		}
		result = page
	case "/v1/counts":
		result, err = a.model.Snapshot().Count(q, values.Get("groupBy"), limit, scope, clock)
	case "/v1/watch":
		if a.gone > 0 {
			a.gone--
			fail(http.StatusGone, query.ErrStartAgain)
			return
		}
		a.model.Set(query.Application{Namespace: "w1", Name: "new", Agent: "w1", Project: "shop", Health: "Degraded", Sync: "Synced"})
		a.model.Delete(query.Key{Namespace: "w2", Name: "web"})
		var changes query.Changes
		if changes, err = a.model.Since(values.Get("watch")); err == nil {
			result = changes.Update(q, scope, clock)
		}
	}
	if err != nil {
		fail(http.StatusBadRequest, err)
		return
	}
	_ = json.NewEncoder(w).Encode(result)
	if r.URL.Path == "/v1/watch" {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// newSearch returns a search API and the flags to reach it.
func newSearch(t *testing.T) (*searchAPI, []string) {
	t.Helper()
	api := &searchAPI{t: t, model: query.NewModel("test")}
	const commit = "4f2a9c1d00000000000000000000000000000000"
	for _, a := range []query.Application{
		{Namespace: "w1", Name: "web", Agent: "w1", Project: "shop", Health: "Healthy", Sync: "Synced", Operation: "Succeeded", Revisions: []string{commit}, Images: []string{"nginx:1.25.3"}, Changed: today.Add(-5 * time.Minute)},
		{Namespace: "w1", Name: "db", Agent: "w1", Project: "shop", Health: "Degraded", Sync: "OutOfSync", Operation: "Failed", Revisions: []string{"v1.2"}, Images: []string{"postgres:16"}, Conditions: []string{"SyncError"}, Changed: today.Add(-2 * time.Hour)},
		{Namespace: "w2", Name: "web", Agent: "w2", Project: "shop", Health: "Healthy\x1b[2J", Sync: "OutOfSync", Operation: "Error", Revisions: []string{commit, "15.4.1"}, Images: []string{"nginx:1.19.0"}, Truncated: true},
	} {
		api.model.Set(a)
	}
	server := httptest.NewTLSServer(api)
	t.Cleanup(server.Close)
	folder := t.TempDir()
	ca, config := filepath.Join(folder, "ca.pem"), filepath.Join(folder, "kubeconfig")
	for file, content := range map[string]string{
		ca: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
		config: `{"apiVersion":"v1","kind":"Config","current-context":"hub","contexts":[{"name":"hub","context":{"cluster":"hub","user":"me","namespace":"argocd"}}],
			"clusters":[{"name":"hub","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"me","user":{"token":"the-token"}}]}`,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return api, []string{"--kubeconfig", config, "--server", strings.TrimPrefix(server.URL, "https://"), "--server-ca", ca}
}

func TestSearch_PrintsResults(t *testing.T) {
	_, reach := newSearch(t)
	var got strings.Builder
	for _, args := range [][]string{
		{"image~nginx:1.2*"}, {"project=shop revision!=4f2a9c1"}, {"sync=OutOfSync", "--sort", "-changed", "-o", "wide"}, {"freshness>1s", "--limit", "0"}, {"freshness<1h", "--group-by", "agent"},
		{"operation=Failed,Error", "--group-by", "agent", "-o", "json"}, {"health!=Healthy project=shop", "-o", "json"}, {"--count"}, {"nosuch"}, {"--limit", "1"}, {"--limit", "0", "-o", "name"},
		{"--group-by", "image", "--limit", "1"},
		{"helth=Healthy"}, {"health=Healthy changed>soon"}, {"--sort", "image"}, {"--watch", "--count"}, {"--limit", "-1"},
	} {
		var out, errs bytes.Buffer
		p := &Program{Stdout: &out, Stderr: &errs, Now: func() time.Time { return today }}
		code := p.Run(t.Context(), append(append([]string{"search"}, args...), reach...))
		fmt.Fprintf(&got, "$ argocd-agentctl search %s\n%s%s", strings.Join(args, " "), out.String(), errs.String())
		if code != 0 {
			fmt.Fprintf(&got, "[exit code %d]\n", code)
		}
		got.WriteString("\n")
	}
	checkGolden(t, "search.txt", got.String())
}

func TestSearch_RefusesServerThatItCannotVerify(t *testing.T) {
	_, reach := newSearch(t)
	var errs bytes.Buffer
	p := &Program{Stdout: &bytes.Buffer{}, Stderr: &errs, Now: time.Now}
	if code := p.Run(t.Context(), append([]string{"search"}, reach[:4]...)); code != 1 || !strings.Contains(errs.String(), "check --server and --server-ca") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

func TestSearch_WatchesChangesAndStartsAgain(t *testing.T) {
	api, reach := newSearch(t)
	api.gone = 1
	out := &syncBuffer{}
	errs := &syncBuffer{}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	p := &Program{Stdout: out, Stderr: errs, Now: func() time.Time { return today }}
	ended := make(chan int, 1)
	go func() { ended <- p.Run(ctx, append([]string{"search", "--watch"}, reach...)) }()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(out.String(), "removed  w2/web"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s%s", out.String(), errs.String())
		}
	}
	end()
	<-ended
	if text := out.String(); strings.Count(text, "AGENT") != 2 || !strings.Contains(text, "changed  w1/new  agent w1  Degraded  Synced") {
		t.Error(text)
	}
	if !strings.Contains(errs.String(), "no longer knows the changes") {
		t.Error(errs.String())
	}
}
