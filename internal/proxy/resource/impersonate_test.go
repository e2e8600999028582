package resource

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/audit"
)

const deployer = "system:serviceaccount:team:deployer"

// impersonationStage is a stage whose Application "web" has Deployment team/d, and whose project names an account.
func impersonationStage(t *testing.T, level Level) (s *stage, seen chan *http.Request, spoke *journal) {
	t.Helper()
	seen, spoke = make(chan *http.Request, 10), newJournal(t, audit.Spoke)
	s = newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/apps/v1" { // of the agent itself
			seen <- r
		}
		answer(w, r)
	}), options{agent: func(c *AgentConfig) {
		c.Policy, c.Audit = Policy{Level: level}, spoke.log
		c.MayImpersonate = func(_ context.Context, app, user string) bool {
			return app == "web" && user == deployer || app == "" && user == "system:serviceaccount:team:any"
		}
	}})
	s.index.Set("web", []Node{{Group: "apps", Kind: "Deployment", Namespace: "team", Name: "d"}})
	return s, seen, spoke
}

func TestImpersonation_IsPassedForListedAccounts(t *testing.T) {
	for _, level := range []Level{LevelApplications, LevelAll} {
		s, seen, spoke := impersonationStage(t, level)
		for _, path := range []string{"/apis/apps/v1/namespaces/team/deployments/d?x=1", "/apis/apps/v1/namespaces/team/deployments/d/scale"} {
			if r, body := s.ask(t, s.client, http.MethodPatch, path, strings.NewReader("{}"), "impersonate-user", deployer); r.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", r.Status, body)
			}
			r := await(t, "request", seen)
			if r.Header.Get("Impersonate-User") != deployer || r.RequestURI != path {
				t.Errorf("%s as %q", r.RequestURI, r.Header.Get("Impersonate-User"))
			}
		}
		if got := spoke.records(t); len(got) != 2 || got[0].Impersonates != deployer || got[0].Object.Name != "d" {
			t.Errorf("%+v", got)
		}
	}
}

// A request that names another identity must not be executed with the permissions of the agent.
func TestImpersonation_IsNeverDroppedSilently(t *testing.T) {
	for _, level := range []Level{LevelApplications, LevelAll} {
		s, seen, spoke := impersonationStage(t, level)
		const path = "/apis/apps/v1/namespaces/team/deployments/d"
		for _, c := range []struct {
			headers []string
			want    string
		}{
			{[]string{"Impersonate-User", "system:serviceaccount:team:other"}, "the AppProject of Application web on the workload cluster does not name it in destinationServiceAccounts"},
			{[]string{"Impersonate-User", "system:serviceaccount:team:any"}, "does not name it"},
			{[]string{"Impersonate-User", "admin"}, "is not a ServiceAccount"},
			{[]string{"Impersonate-User", ""}, "is not a ServiceAccount"},
			{[]string{"Impersonate-User", deployer + "/../x"}, "is not a ServiceAccount"},
			{[]string{"Impersonate-User", deployer, "Impersonate-User", deployer}, "more than one user"},
			{[]string{"Impersonate-User", deployer, "Impersonate-Group", "system:masters"}, "Impersonate-Group is not supported"},
			{[]string{"Impersonate-Group", "system:masters"}, "is not supported"},
			{[]string{"Impersonate-Uid", "1"}, "is not supported"},
			{[]string{"impersonate-extra-scopes", "x"}, "is not supported"},
		} {
			r, body := s.ask(t, s.client, http.MethodGet, path, nil, c.headers...)
			if r.StatusCode != http.StatusForbidden || !strings.Contains(string(body), c.want) {
				t.Errorf("%q: %s %s", c.headers, r.Status, body)
			}
		}
		if len(seen) > 0 {
			t.Error("a request was executed")
		}
		for _, r := range spoke.records(t) {
			if r.Result != audit.Refused || r.Setting != SettingImpersonation {
				t.Errorf("%+v", r)
			}
		}
	}
}

func TestImpersonation_ObjectOfNoApplication(t *testing.T) {
	s, seen, _ := impersonationStage(t, LevelAll)
	for user, code := range map[string]int{"system:serviceaccount:team:any": http.StatusOK, deployer: http.StatusForbidden} {
		r, body := s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/team/pods", nil, "Impersonate-User", user)
		if r.StatusCode != code {
			t.Errorf("%s: %s %s", user, r.Status, body)
		}
	}
	if r := await(t, "request", seen); r.Header.Get("Impersonate-User") != "system:serviceaccount:team:any" || len(seen) > 0 {
		t.Errorf("%v", r.Header)
	}
}

// The form in which the Hub sends such a request is no resource and no document for an agent of an older release, which
// would otherwise execute it with its own permissions.
func TestImpersonation_OlderAgentExecutesNothing(t *testing.T) {
	for _, path := range []string{"/api/v1/namespaces/a/pods/p", "/apis", "/apis/apps/v1", "/version", "/openapi/v3"} {
		r := httptest.NewRequest(http.MethodGet, impersonatePrefix+deployer+path, nil)
		query, status := checkRequest(r)
		if status != nil {
			t.Fatal(status.Message)
		}
		q := parse(r, query)
		d := decider{policy: &Policy{}, apps: &Index{}}
		if _, denied := d.decide(r, &q); denied == nil || q.Verb != "" {
			t.Errorf("%s is executed as %s", r.URL, q.String())
		}
	}
}

func TestImpersonation_PathIsReserved(t *testing.T) {
	s, seen, _ := impersonationStage(t, LevelAll)
	if r, _ := s.ask(t, s.client, http.MethodGet, impersonatePrefix+deployer+"/apis/apps/v1/namespaces/team/deployments/d", nil); r.StatusCode != http.StatusNotFound || len(seen) > 0 {
		t.Error(r.Status)
	}
	for path, bad := range map[string]bool{"/api": false, impersonatePrefix + deployer + "/api": false, impersonatePrefix + "admin/api": true, impersonatePrefix: true} {
		user, rest, status := cutImpersonation(path)
		if (status != nil) != bad || !bad && (rest != "/api" || (user != "") != strings.HasPrefix(path, impersonatePrefix)) {
			t.Errorf("%s: %q %q %v", path, user, rest, status)
		}
	}
}

// A cached document is not mixed up with one that an account sees.
func TestImpersonation_CachedDocumentWhileDisconnected(t *testing.T) {
	s, _, _ := impersonationStage(t, LevelAll)
	if r, body := s.ask(t, s.client, http.MethodGet, "/version", nil); r.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", r.Status, body)
	}
	s.leave(&NotConnectedError{Agent: "w1"})
	r, body := s.ask(t, s.client, http.MethodGet, "/version", nil, "Impersonate-User", deployer)
	if r.StatusCode != http.StatusOK || !strings.Contains(r.Header.Get("Warning"), "cached") {
		t.Errorf("%s %v %s", r.Status, r.Header, body)
	}
}
