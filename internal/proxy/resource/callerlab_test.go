package resource

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/lab"
)

// The agent of the tests can read and delete ConfigMaps, and has the permissions of the chart for callers and accounts.
// deployer and group developers can read ConfigMaps. User alice can do nothing.
const callerRBAC = `
{apiVersion: v1, kind: Namespace, metadata: {name: team}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: agent, namespace: team}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: team}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: agent, namespace: team}, rules: [
  {apiGroups: [""], resources: [configmaps], verbs: [get, delete]},
  {apiGroups: [""], resources: [serviceaccounts], resourceNames: [agent, deployer, absent], verbs: [impersonate]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: agent, namespace: team},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: agent}, subjects: [{kind: ServiceAccount, name: agent, namespace: team}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: callers}, rules: [
  {apiGroups: [authentication.k8s.io], resources: [userextras/argocd-agent-caller, userextras/argocd-agent-caller-from], verbs: [impersonate]},
  {apiGroups: [""], resources: [users], resourceNames: [alice], verbs: [impersonate]},
  {apiGroups: [""], resources: [groups], resourceNames: [developers], verbs: [impersonate]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: callers},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: callers}, subjects: [{kind: ServiceAccount, name: agent, namespace: team}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader, namespace: team}, rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: reader, namespace: team},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader},
  subjects: [{kind: ServiceAccount, name: deployer, namespace: team}, {kind: Group, apiGroup: rbac.authorization.k8s.io, name: developers}]}
`

// apiEvent is a line of the audit log of an API server.
type apiEvent struct {
	AuditID, Verb  string
	User           struct{ Username string }
	Impersonated   *apiUser `json:"impersonatedUser"`
	ResponseStatus struct{ Code int }
}

type apiUser struct {
	Username string
	Groups   []string
	Extra    map[string][]string
}

// callerStage is a stage in front of a real API server that writes an audit log. The agent has the permissions of callerRBAC.
type callerStage struct {
	*stage
	file   string
	caller atomic.Pointer[Caller]
	hub    *journal
}

func newCallerStage(t *testing.T, cluster *lab.Cluster, config *rest.Config, callers Callers) *callerStage {
	t.Helper()
	server, err := APIServerFor(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &callerStage{file: cluster.AuditLog, hub: newJournal(t, audit.Hub)}
	c.stage = newStage(t, server, options{
		hub: func(h *HubConfig) {
			h.Audit, h.User = c.hub.log, func(*tls.ConnectionState) Caller { return *c.caller.Load() }
		},
		agent: func(a *AgentConfig) {
			a.Callers, a.User = callers, func(context.Context) (string, error) { return ownUser, nil }
			a.MayImpersonate = func(_ context.Context, _, user string) bool { return user == teamDeployer || user == teamAbsent }
		}})
	return c
}

const (
	ownUser      = "system:serviceaccount:team:agent"
	teamDeployer = "system:serviceaccount:team:deployer"
	teamAbsent   = "system:serviceaccount:team:absent"
)

// request sends a request as a caller. It returns the code, the body and the line of the API server's audit log.
func (c *callerStage) request(t *testing.T, caller Caller, method string, headers ...string) (code int, body string, event apiEvent) {
	t.Helper()
	c.caller.Store(&caller)
	r, content := c.ask(t, c.client, method, "/api/v1/namespaces/team/configmaps/c", nil, headers...)
	id := r.Header.Get("Audit-Id")
	if id == "" {
		return r.StatusCode, string(content), event // refused by the agent
	}
	lab.Await(t, "line of request "+id, func(context.Context) error {
		text, err := os.ReadFile(c.file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, id) && strings.HasSuffix(line, "\n") {
				return json.Unmarshal([]byte(line), &event)
			}
		}
		return fmt.Errorf("there is none")
	})
	return r.StatusCode, string(content), event
}

// TestCallers_AgainstAPIServer checks with a real API server as whom requests are executed, and what its audit log shows.
func TestCallers_AgainstAPIServer(t *testing.T) {
	l := lab.New(t, lab.Options{Bare: true, Audited: true, Spokes: []lab.Spoke{}})
	cluster := l.Hub()
	if err := cluster.Apply(t.Context(), callerRBAC); err != nil {
		t.Fatal(err)
	}
	token, err := cluster.Client().CoreV1().ServiceAccounts("team").CreateToken(t.Context(), "agent", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(cluster.Admin())
	config.BearerToken = token.Status.Token
	alice := Caller{User: "alice", Groups: []string{"developers", "system:masters", "system:authenticated"}, From: FromKubeconfig}
	argocd := Caller{From: "cluster-secret"}

	t.Run("ignored", func(t *testing.T) {
		s := newCallerStage(t, cluster, config, CallersIgnored)
		if code, body, event := s.request(t, alice, http.MethodGet); code != http.StatusOK || event.User.Username != ownUser || event.Impersonated != nil {
			t.Errorf("%d %s %+v", code, body, event)
		}
	})
	t.Run("recorded", func(t *testing.T) {
		s := newCallerStage(t, cluster, config, CallersRecorded)
		for _, c := range []struct {
			caller     Caller
			user, from string
		}{
			{alice, "alice", FromKubeconfig}, {argocd, "unknown", "cluster-secret"}, {Caller{User: "CN=ü, O=x", From: "certificate"}, "CN=ü, O=x", "certificate"},
			{Caller{User: " two\nlines"}, "+two%0Alines", ""},
		} {
			code, body, event := s.request(t, c.caller, http.MethodGet)
			if code != http.StatusOK || event.User.Username != ownUser || event.Impersonated == nil || event.Impersonated.Username != ownUser {
				t.Fatalf("%d %s %+v", code, body, event)
			}
			extra := event.Impersonated.Extra
			if !slices.Equal(extra["argocd-agent-caller"], []string{c.user}) || c.from != "" && !slices.Equal(extra["argocd-agent-caller-from"], []string{c.from}) {
				t.Errorf("%v", extra)
			}
		}
	})
	t.Run("account of a project", func(t *testing.T) {
		s := newCallerStage(t, cluster, config, CallersRecorded)
		code, body, event := s.request(t, argocd, http.MethodGet, "Impersonate-User", teamDeployer)
		if code != http.StatusOK || event.Impersonated == nil || event.Impersonated.Username != teamDeployer || !slices.Equal(event.Impersonated.Extra["argocd-agent-caller"], []string{"unknown"}) {
			t.Errorf("%d %s %+v", code, body, event)
		}
		// The agent could delete it.
		if code, body, _ := s.request(t, argocd, http.MethodDelete, "Impersonate-User", teamDeployer); code != http.StatusForbidden || !strings.Contains(body, `cannot delete resource \"configmaps\"`) {
			t.Errorf("%d %s", code, body)
		}
		if code, body, _ := s.request(t, argocd, http.MethodGet, "Impersonate-User", teamAbsent); code != http.StatusForbidden || !strings.Contains(body, `User \"`+teamAbsent+`\" cannot get resource`) {
			t.Errorf("an account that does not exist: %d %s", code, body)
		}
	})
	t.Run("users", func(t *testing.T) {
		s := newCallerStage(t, cluster, config, CallersImpersonated)
		code, body, event := s.request(t, alice, http.MethodGet)
		if code != http.StatusOK || event.User.Username != ownUser || event.Impersonated == nil || event.Impersonated.Username != "alice" || slices.Contains(event.Impersonated.Groups, "system:masters") {
			t.Errorf("%d %s %+v", code, body, event)
		}
		if code, body, _ := s.request(t, alice, http.MethodDelete); code != http.StatusForbidden || !strings.Contains(body, `User \"alice\" cannot delete`) {
			t.Errorf("%d %s", code, body)
		}
		for user, want := range map[string]string{"bob": "cannot impersonate resource", "system:admin": "is not a user of the workload cluster", "": "is not a user"} {
			if code, body, _ := s.request(t, Caller{User: user, From: FromKubeconfig}, http.MethodGet); code != http.StatusForbidden || !strings.Contains(body, want) {
				t.Errorf("%q: %d %s", user, code, body)
			}
		}
		if code, body, _ := s.request(t, alice, http.MethodGet, "Impersonate-User", teamDeployer); code != http.StatusForbidden || !strings.Contains(body, "a user cannot impersonate a ServiceAccount") {
			t.Errorf("%d %s", code, body)
		}
		// Argo CD acts for many users. Its requests have the permissions of the agent, or of the account of a project.
		if code, body, event := s.request(t, argocd, http.MethodGet); code != http.StatusOK || event.Impersonated.Username != ownUser {
			t.Errorf("%d %s %+v", code, body, event)
		}
	})
}
