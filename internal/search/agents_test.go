package search

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/fleet/fleettest"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// newAgentServer is newTestServer with Agents a and b. The texts of both contain secrets.
func newAgentServer(t *testing.T) (*Server, *testAPI) {
	t.Helper()
	s, api := newTestServer(t)
	s.cfg.Registry = fleettest.NewRegistry(t)
	s.cfg.Registry.OnChange(s.agentChanged)
	for i, name := range []string{"a", "b"} {
		apply(t, s, fleettest.Agent(name, i+1, func(a *v1alpha1.Agent) {
			a.Spec.Owners = []string{"secret-owner"}
			a.Status.Connected, a.Status.Since, a.Status.Applications = true, &metav1.Time{Time: time.Unix(100, 0)}, 2
			a.Status.Holds = []v1alpha1.Hold{{ID: "secret-id", Scope: "application", Count: 3, Reason: "secret-reason"}}
			a.Status.Conditions = []metav1.Condition{{Type: "Synced", Status: "False", Reason: "Differs", Message: "secret-web of " + name}}
		}))
	}
	return s, api
}

func apply(t *testing.T, s *Server, agent v1alpha1.Agent) {
	t.Helper()
	if err := s.cfg.Registry.Apply(t.Context(), reconcile.Observed{Resource: fleet.AgentResource, Object: fleettest.Object(t, agent)}); err != nil {
		t.Fatal(err)
	}
}

// streamed is an agents stream of a user.
type streamed struct {
	*testing.T
	code  int
	lines *bufio.Scanner
}

func openStream(t *testing.T, url, user, parameters string) *streamed {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/agents/stream"+parameters, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer token-"+user)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return &streamed{t, answer.StatusCode, bufio.NewScanner(answer.Body)}
}

// next returns the names of the next event with rows or deletions.
func (s *streamed) next() string {
	s.Helper()
	for s.lines.Scan() {
		data, ok := strings.CutPrefix(s.lines.Text(), "data: ")
		if !ok {
			continue
		}
		var n struct {
			Rows    []agentrows.Row
			Deleted []string
			About   *agentrows.About
		}
		if err := json.Unmarshal([]byte(data), &n); err != nil {
			s.Fatal(err)
		}
		names := n.Deleted
		for _, r := range n.Rows {
			names = append(names, fmt.Sprint(r.Name, r.Diverged))
		}
		if len(names) > 0 {
			return strings.Join(names, " ")
		}
	}
	return fmt.Sprint("end ", s.lines.Err())
}

func TestAgentStream_ShowsAgentsThatCallerMayGet(t *testing.T) {
	s, _ := newAgentServer(t)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	admin, team, one := openStream(t, server.URL, "admin", ""), openStream(t, server.URL, "team", ""), openStream(t, server.URL, "admin", "?agent=b,none")
	for _, test := range []struct {
		stream *streamed
		want   string
	}{{admin, "a0 b0"}, {team, "a0"}, {one, "b0"}} {
		if got := test.stream.next(); test.stream.code != http.StatusOK || got != test.want {
			t.Errorf("%d %s, want %s", test.stream.code, got, test.want)
		}
	}
	apply(t, s, fleettest.Agent("b", 5, func(a *v1alpha1.Agent) { a.Status.Diverged = 7 }))
	if got := admin.next() + one.next(); got != "b7b7" {
		t.Errorf("after a change of b: %s", got)
	}
	apply(t, s, fleettest.Agent("a", 6, func(a *v1alpha1.Agent) { a.Status.Diverged = 8 }))
	if got := team.next(); got != "a8" { // and nothing of b
		t.Errorf("after a change of a: %s", got)
	}
	for _, user := range []string{"stranger", "blind"} {
		if refused := openStream(t, server.URL, user, ""); refused.code != http.StatusForbidden {
			t.Errorf("%s: %d", user, refused.code)
		}
	}
	for parameters, code := range map[string]int{"?agent=b": 403, "?query=agent%3Da": 400, "?agent=" + strings.Repeat("a,", maxReviewedNames): 400} {
		if refused := openStream(t, server.URL, "team", parameters); refused.code != code {
			t.Errorf("%.20s: %d", parameters, refused.code)
		}
	}
	for range maxWatchesPerUser - 1 {
		openStream(t, server.URL, "team", "")
	}
	if refused := openStream(t, server.URL, "team", ""); refused.code != http.StatusTooManyRequests {
		t.Errorf("above the limit: %d", refused.code)
	}
}

func TestTimeline_ShowsWhatHappenedToAgent(t *testing.T) {
	s, _ := newAgentServer(t)
	code, body := get(t, s, "team", "/v1/agents/a/timeline")
	if code != http.StatusOK || !strings.Contains(body, `"type":"Connected"`) || !strings.HasSuffix(strings.TrimSpace(body), `{"time":1000000,"type":"Created"}]}`) {
		t.Errorf("%d %s", code, body)
	}
	for _, test := range []struct {
		user, path string
		code       int
	}{
		{"team", "/v1/agents/b/timeline", 403},
		{"team", "/v1/agents/nosuch/timeline", 403}, // the same as for one that exists
		{"admin", "/v1/agents/nosuch/timeline", 404},
		{"admin", "/v1/agents/%2e%2e/timeline", 400},
		{"admin", "/v1/agents/A%0aB/timeline", 400},
		{"admin", "/v1/agents/NAME/timeline", 400},
		{"admin", "/v1/agents//timeline", 404},
		{"admin", "/v1/agents/a/b/timeline", 404},
		{"admin", "/v1/agents/a%2Fb/timeline", 404},
		{"admin", "/v1/agents/a", 404},
		{"admin", "/v1/agents/a/timeline?limit=1", 400},
		{"", "/v1/agents/a/timeline", 401},
	} {
		if code, body := get(t, s, test.user, test.path); code != test.code || strings.Contains(body, "secret") {
			t.Errorf("%s %s: %d %s", test.user, test.path, code, body)
		}
	}
	if err := s.cfg.Registry.Apply(t.Context(), reconcile.Deleted{Ref: kind.Ref{Resource: fleet.AgentResource, Namespace: "argocd", Name: "a"}, Revision: 9}); err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, s, "admin", "/v1/agents/a/timeline"); code != http.StatusNotFound {
		t.Errorf("deleted agent: %d", code)
	}
}

func TestExtension_GetsItsApplicationAndAgentOnly(t *testing.T) {
	s, _ := newAgentServer(t)
	secret := strings.Repeat("s", minSecret)
	if err := s.access.extension.Load(map[string][]byte{"token": []byte(secret)}); err != nil {
		t.Fatal(err)
	}
	request := func(application, path string) (int, string) {
		return get(t, s, "", path, extensionHeader, secret, applicationHeader, application, projectHeader, "shop", usernameHeader, "me")
	}
	code, body := request("a:web", "/v1/application")
	var got struct {
		Application struct{ Namespace, Name, Agent string }
		Agent       agentrows.Row
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, body, err)
	}
	if got.Application.Name != "web" || got.Agent.Name != "a" || !got.Agent.Connected || got.Agent.Applications != 2 || got.Agent.Mode != "managed" || len(got.Agent.Conditions) != 1 {
		t.Errorf("%+v", got)
	}
	if strings.Contains(body, "secret") {
		t.Errorf("the row has texts about other Applications: %s", body)
	}
	if code, body := request("shared:of-none", "/v1/application"); code != http.StatusOK || strings.Contains(body, `"agent"`) {
		t.Errorf("without an agent: %d %s", code, body)
	}
	for path, code := range map[string]int{
		"/v1/application?query=agent%3Db": 400, "/v1/application?name=secret-web": 400, "/v1/agents/stream": 403, "/v1/agents/a/timeline": 403, "/v1/agents/b/timeline": 403,
		"/v1/counts?query=agent%3Db": 200, "/v1/about": 200,
	} {
		if got, body := request("a:web", path); got != code || strings.Contains(body, "secret") || strings.Contains(body, `"total":1`) {
			t.Errorf("%s: %d %s", path, got, body)
		}
	}
	if code, body := request("a:none", "/v1/application"); code != http.StatusNotFound {
		t.Errorf("no such Application: %d %s", code, body)
	}
	if code, body := get(t, s, "admin", "/v1/application"); code != http.StatusBadRequest {
		t.Errorf("another caller: %d %s", code, body)
	}
	if code, _ := get(t, s, "", "/v1/about", extensionHeader, secret+"x"); code != http.StatusUnauthorized {
		t.Errorf("wrong secret: %d", code)
	}
}

func TestAbout_NamesHubToUsersOnly(t *testing.T) {
	s, _ := newAgentServer(t)
	s.ArgoConfig(t.Context(), fleettest.Object(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argocd-cm"},
		"data": map[string]any{"url": "https://secret-host.example/argo"}}))
	if code, body := get(t, s, "", "/v1/about"); code != http.StatusOK || strings.TrimSpace(body) != `{"hub":"","command":"argocd-agentctl","argocd":"","login":"token","applications":true,"user":""}` {
		t.Errorf("without credentials: %d %s", code, body)
	}
	if code, body := get(t, s, "team", "/v1/about"); code != http.StatusOK ||
		strings.TrimSpace(body) != `{"hub":"namespace argocd","command":"argocd-agentctl","argocd":"https://secret-host.example/argo","login":"token","applications":true,"user":"team"}` {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(t, s, "", "/v1/about", "Authorization", "Bearer wrong"); code != http.StatusUnauthorized || strings.Contains(body, "secret") {
		t.Errorf("invalid token: %d %s", code, body)
	}
	s.ArgoConfig(t.Context(), nil)
	if _, body := get(t, s, "team", "/v1/about"); strings.Contains(body, "secret-host") {
		t.Errorf("without ConfigMap: %s", body)
	}
}

func TestOrigins_OnlyAllowedOnesReadResponses(t *testing.T) {
	s, _ := newAgentServer(t)
	request := func(method, path, origin string) (int, http.Header) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
		r.Header.Set("Authorization", "Bearer token-admin")
		r.Header.Set("Origin", origin)
		if method == http.MethodOptions {
			r.Header.Del("Authorization")
			r.Header.Set("Access-Control-Request-Method", http.MethodGet)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code, w.Header()
	}
	const allowed = "https://argocd.example"
	if code, header := request(http.MethodGet, "/v1/counts", allowed); code != http.StatusOK || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("by default: %d %v", code, header)
	}
	s.cfg.AllowedOrigins = []string{allowed}
	for _, path := range []string{"/v1/counts", "/v1/agents/nosuch/timeline", "/v1/other"} {
		if _, header := request(http.MethodGet, path, allowed); header.Get("Access-Control-Allow-Origin") != allowed || header.Get("Vary") != "Origin" {
			t.Errorf("%s: %v", path, header)
		}
	}
	code, header := request(http.MethodOptions, "/v1/agents/stream", allowed)
	if code != http.StatusNoContent || header.Get("Access-Control-Allow-Headers") != "Authorization, Last-Event-ID" || header.Get("Access-Control-Allow-Methods") != "GET" {
		t.Errorf("preflight: %d %v", code, header)
	}
	for _, origin := range []string{"https://argocd.example.evil", "http://argocd.example", "https://argocd.example:8443", "null", "", "*", "https://ARGOCD.example"} {
		for _, method := range []string{http.MethodGet, http.MethodOptions, http.MethodPost} {
			code, header := request(method, "/v1/counts", origin)
			if header.Get("Access-Control-Allow-Origin") != "" || method != http.MethodGet && code != http.StatusMethodNotAllowed {
				t.Errorf("%s from %q: %d %v", method, origin, code, header)
			}
		}
	}
	for name := range header {
		if name == "Access-Control-Allow-Credentials" {
			t.Error("browsers may send credentials on their own")
		}
	}
	if code, _ := request(http.MethodPost, "/v1/counts", allowed); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
}

func TestPage_IsServedOutsideOfAPI(t *testing.T) {
	s, _ := newAgentServer(t)
	s.cfg.Page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "page "+r.URL.Path) })
	for path, want := range map[string]string{"/": "200 page /", "/extension.js": "200 page /extension.js", "/v1/applications": "401", "/v1/": "404", "/v1/../": "404"} {
		code, body := get(t, s, "", path)
		if got := fmt.Sprint(code, " ", body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// A user who reads the objects of a hub from an agent is named, whatever the audit log of the agent has.
func TestReplicas_AuditLogNamesTheUser(t *testing.T) {
	var out, processLog bytes.Buffer
	log, err := audit.Open(t.Context(), audit.Config{Target: "-", Stdout: &out, Side: audit.Hub, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s, api := newTestServer(t)
	s.cfg.Audit, s.cfg.Log = log, slog.New(slog.NewTextHandler(&processLog, nil))
	api.set(func(a *testAPI) { a.rights["root get secrets argocd/"] = true })
	s.cfg.Replicas = func(_ context.Context, agent, _, _ string) (reconcile.ReplicaPage, error) {
		if agent == "gone" {
			return reconcile.ReplicaPage{}, errors.New("agent gone is not connected")
		}
		return reconcile.ReplicaPage{}, nil
	}
	get(t, s, "root", "/v1/agents/a/replicas") // counts only
	get(t, s, "root", "/v1/agents/a/replicas?hub=u")
	get(t, s, "root", "/v1/agents/a/replicas?hub=u&after=x")
	get(t, s, "root", "/v1/agents/gone/replicas?hub=u")
	get(t, s, "admin", "/v1/agents/a/replicas?hub=u")
	log.Close()
	var lines []string
	for line := range strings.Lines(out.String()) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s %s %s %s", r.Agent, r.Type, r.Action, r.Caller, r.CallerFrom, r.Object.Name, r.Result, r.Reason))
	}
	want := []string{"a live read replicas root search u ok ", "a live read replicas root search u ok ", "gone live read replicas root search u failed agent gone is not connected",
		`a live read replicas admin search u refused user "admin" cannot get Secrets in namespace argocd`}
	if !slices.Equal(lines, want) {
		t.Errorf("%q", lines)
	}
	if n := strings.Count(processLog.String(), "user=root"); n != 3 {
		t.Errorf("the log names the user %d times:\n%s", n, processLog.String())
	}
}

// Replicas include credentials of repositories.
func TestReplicas_OnlyForCallersWhoCanGetSecrets(t *testing.T) {
	s, api := newTestServer(t)
	api.set(func(a *testAPI) { a.rights["root get secrets argocd/"] = true })
	s.cfg.Replicas = func(_ context.Context, agent, hub, after string) (reconcile.ReplicaPage, error) {
		if agent == "gone" {
			return reconcile.ReplicaPage{}, errors.New("agent gone is not connected")
		}
		return reconcile.ReplicaPage{Session: agent + " " + hub + " " + after}, nil
	}
	for _, test := range []struct {
		user, path string
		code       int
		want       string
	}{
		{"root", "/v1/agents/a/replicas?hub=u&after=x", 200, `"session":"a u x"`},
		{"root", "/v1/agents/gone/replicas", 502, "not connected"},
		{"root", "/v1/agents/A/replicas", 400, "valid name"},
		{"root", "/v1/agents/a/replicas?limit=1", 400, "unknown parameter"},
		{"admin", "/v1/agents/a/replicas?hub=u", 403, "cannot get Secrets"},
		{"", "/v1/agents/a/replicas", 401, "credentials"},
	} {
		if code, body := get(t, s, test.user, test.path); code != test.code || !strings.Contains(body, test.want) {
			t.Errorf("%s %s: %d %s", test.user, test.path, code, body)
		}
	}
}
