package resource

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/audit"
)

// journal is an audit log of a test.
type journal struct {
	out bytes.Buffer
	log *audit.Log
}

func newJournal(t *testing.T, side audit.Side) *journal {
	t.Helper()
	j := new(journal)
	log, err := audit.Open(t.Context(), audit.Config{Target: "-", Stdout: &j.out, Side: side, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	j.log = log
	return j
}

// records closes the log and returns its lines.
func (j *journal) records(t *testing.T) (out []audit.Record) {
	t.Helper()
	j.log.Close()
	for line := range strings.Lines(j.out.String()) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func short(list []audit.Record) string {
	var out []string
	for _, r := range list {
		o := r.Object
		out = append(out, fmt.Sprintf("%s %s %s %s/%s/%s/%s by %s %s %s %s", r.Agent, r.Type, r.Action, o.Resource, o.Namespace, o.Name, o.Subresource, r.Caller, r.Result, r.Code, r.Setting))
	}
	return strings.Join(out, "\n")
}

// auditedStage starts a stage with audit logs. Each half sends to ended after a request.
func auditedStage(t *testing.T, policy Policy, server http.HandlerFunc) (s *stage, hub, spoke *journal, ended chan struct{}) {
	t.Helper()
	ended = make(chan struct{}, 100)
	hub, spoke = newJournal(t, audit.Hub), newJournal(t, audit.Spoke)
	s = newStage(t, fakeServer(t, server), options{
		hub: func(c *HubConfig) {
			c.Observe = func(RequestResult) { ended <- struct{}{} }
			c.Audit, c.User = hub.log, func(state *tls.ConnectionState) Caller {
				return Caller{User: "user of " + state.PeerCertificates[0].Subject.CommonName, Groups: []string{"a,b", "ü"}, From: "certificate"}
			}
		},
		agent: func(c *AgentConfig) {
			c.Audit, c.Policy, c.Observe = spoke.log, policy, func(RequestResult) { ended <- struct{}{} }
		},
	})
	return s, hub, spoke, ended
}

func TestAudit_LiveRequests(t *testing.T) {
	s, hub, spoke, ended := auditedStage(t, Policy{Level: LevelAll, NoExec: true, Secrets: SecretsPlain}, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/apps/v1/namespaces") {
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = io.WriteString(w, "{}")
	})
	const pod = "/api/v1/namespaces/a/pods/p"
	ask := func(method, path string) {
		s.ask(t, s.client, method, path, strings.NewReader(`{"data":{"password":"c2VjcmV0"}}`))
	}
	s.ask(t, s.client, http.MethodGet, pod, nil)
	s.ask(t, s.client, http.MethodGet, pod+"/log", nil)
	s.ask(t, s.client, http.MethodGet, "/apis", nil)
	ask(http.MethodPatch, pod+"?dryRun=All")
	ask(http.MethodPatch, "/api/v1/namespaces/a/secrets/s?fieldManager=x")
	ask(http.MethodPut, "/apis/apps/v1/namespaces/a/deployments/d/scale")
	ask(http.MethodPost, pod+"/exec?command=cat%20secret")
	ask(http.MethodPost, "/healthz/x")
	s.ask(t, s.clientAs(t, "shared"), http.MethodGet, pod, nil)
	for range 2*8 + 1 {
		await(t, "end", ended)
	}

	want := strings.Join([]string{
		"%s live patch secrets/a/s/ by user of w1 ok 200 ",
		"%s live update deployments/a/d/scale by user of w1 failed 409 ",
		"%s exec create pods/a/p/exec by user of w1 %s",
		"%s live post ///",
	}, "\n")
	hubRecords, spokeRecords := hub.records(t), spoke.records(t)
	if got, want := short(spokeRecords), fmt.Sprintf(want, "", "", "", "refused 403 resource-proxy-exec", ""); got != want+" by user of w1 ok 200 " {
		t.Errorf("spoke:\n%s", got)
	}
	want = fmt.Sprintf(want, "w1", "w1", "w1", "failed 403 ", "w1") + " by user of w1 ok 200 \n live get pods/a/p/ by unknown refused 401 "
	if got := short(hubRecords); got != want {
		t.Errorf("hub:\n%s", got)
	}
	for i, r := range spokeRecords {
		if r.RequestID == "" || r.RequestID != hubRecords[i].RequestID || r.CallerFrom != "certificate" {
			t.Errorf("%+v and %+v", r, hubRecords[i])
		}
	}
	for _, j := range []*journal{hub, spoke} {
		if text := j.out.String(); strings.Contains(text, "c2VjcmV0") || strings.Contains(text, "command=") || strings.Contains(text, "secret\"}") {
			t.Errorf("content is in the log: %s", text)
		}
	}
}

func TestAudit_ExecSessionBeginsAndEnds(t *testing.T) {
	s, hub, spoke, ended := auditedStage(t, Policy{Level: LevelAll}, func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, _ = io.Copy(conn, buf) // echo
	})
	conn, reader := s.terminal(t, "")
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.ReadByte(); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	await(t, "end", ended)
	await(t, "end", ended)
	for _, j := range []*journal{hub, spoke} {
		got := j.records(t)
		if len(got) != 2 || got[0].Result != audit.Begun || got[1].Result != audit.OK || got[0].Type != audit.Exec || got[0].RequestID != got[1].RequestID || got[0].Object.Subresource != "exec" {
			t.Errorf("%+v", got)
		}
	}
}

func TestAudit_ClientCannotNameAnotherCaller(t *testing.T) {
	seen := make(chan http.Header, 2)
	s, hub, spoke, ended := auditedStage(t, Policy{Level: LevelAll}, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	s.ask(t, s.client, http.MethodDelete, "/api/v1/namespaces/a/pods/p", nil, "X-Remote-User", "admin", "x-remote-group", "system:masters",
		"X-Remote-Extra-Request-Id", strings.Repeat("0", 32), "X-Remote-Extra-From", "kubeconfig", "Audit-Id", "chosen")
	header := await(t, "request", seen)
	await(t, "end", ended)
	await(t, "end", ended)
	for name := range header {
		if strings.HasPrefix(name, "X-Remote") {
			t.Errorf("%s arrived at the API server", name)
		}
	}
	for _, j := range []*journal{hub, spoke} {
		r := j.records(t)[0]
		if r.Caller != "user of w1" || r.CallerFrom != "certificate" || r.RequestID != header.Get("Audit-Id") || r.RequestID == strings.Repeat("0", 32) {
			t.Errorf("%+v, audit ID %s", r, header.Get("Audit-Id"))
		}
	}
}

func TestReadCaller_RejectsInvalidValues(t *testing.T) {
	long := strings.Repeat("x", maxUserLen+1)
	for title, c := range map[string]struct {
		set        func(http.Header)
		user, from string
		groups     int
	}{
		"nothing":       {func(http.Header) {}, "", "", 0},
		"user":          {func(h http.Header) { setCaller(h, Caller{User: "ü,\n", Groups: []string{"g"}, From: "f"}, "x") }, "ü,\n", "f", 1},
		"long user":     {func(h http.Header) { setCaller(h, Caller{User: long, From: "f"}, "x") }, "", "f", 0},
		"long group":    {func(h http.Header) { setCaller(h, Caller{User: "u", Groups: []string{"g", long}}, "x") }, "", "", 0},
		"many groups":   {func(h http.Header) { setCaller(h, Caller{User: "u", Groups: make([]string, maxUserGroups+1)}, "x") }, "", "", 0},
		"wrong escapes": {func(h http.Header) { h.Set(userHeader, "%zz") }, "", "", 0},
	} {
		header := http.Header{}
		c.set(header)
		got, id := readCaller(header)
		if got.User != c.user || got.From != c.from || c.user != "" && len(got.Groups) != c.groups || len(id) != 32 {
			t.Errorf("%s: %+v %s", title, got, id)
		}
	}
}
