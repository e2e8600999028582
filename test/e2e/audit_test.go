package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// auditLine is a line of the audit log of a principal or agent.
type auditLine struct {
	Side, Agent, Type, Action, Caller, CallerFrom, Impersonates, Result, Code, Setting, Reason, RequestID string
	Object                                                                                                struct{ Resource, Namespace, Name string }
}

// apiAudit is a line of the audit log of an API server.
type apiAudit struct {
	AuditID, Verb, RequestURI string
	User                      apiUser
	ImpersonatedUser          *apiUser
	ResponseStatus            struct{ Code int }
}

type apiUser struct {
	Username string
	Groups   []string
	Extra    map[string][]string
}

func readLines[T any](t testing.TB, file string) (out []T) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	whole := b[:strings.LastIndexByte(string(b), '\n')+1]
	for line := range strings.Lines(string(whole)) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		out = append(out, one)
	}
	return out
}

// findLine waits for a line of a log that matches.
func findLine[T any](t testing.TB, file, what string, match func(T) bool) (found T) {
	t.Helper()
	await(t, what+" in "+filepath.Base(file), func() error {
		for _, line := range readLines[T](t, file) {
			if match(line) {
				found = line
				return nil
			}
		}
		text, _ := os.ReadFile(file)
		return fmt.Errorf("it has\n%s", text[max(0, len(text)-4000):])
	})
	return found
}

// TestAuditLog_RecordsActionsOnBothSides checks the lines of commands, live writes, refusals and confirmations. It needs no
// Argo CD.
func TestAuditLog_RecordsActionsOnBothSides(t *testing.T) {
	t.Parallel()
	hubLog, spokeLog := filepath.Join(t.TempDir(), "hub.log"), filepath.Join(t.TempDir(), "spoke.log")
	w := own(t, setup{lab: lab.New(t, lab.Options{Bare: true, Audited: true, Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}}), flags: []string{"--audit-log", hubLog},
		agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed", flags: []string{"--enable-resource-proxy=true", "--resource-proxy-level", "all", "--resource-proxy-exec=false", "--audit-log", spokeLog}}}})
	agent := w.managed()
	// onBoth waits for one line of each side and returns the one of the spoke.
	onBoth := func(action, name, hubResult, spokeResult string) auditLine {
		t.Helper()
		of := func(result string) func(auditLine) bool {
			return func(l auditLine) bool { return l.Action == action && l.Object.Name == name && l.Result == result }
		}
		hub := findLine(t, hubLog, action+" of "+name, of(hubResult))
		spoke := findLine(t, spokeLog, action+" of "+name, of(spokeResult))
		if hub.Side != "hub" || spoke.Side != "spoke" || hub.Agent != "managed" || spoke.Agent != "managed" || hub.RequestID == "" || hub.RequestID != spoke.RequestID {
			t.Errorf("%s of %s:\n%+v\n%+v", action, name, hub, spoke)
		}
		return spoke
	}

	app := w.hub.app("managed", "audited")
	app.create(t, simple("managed"))
	replica := agent.spoke.app(lab.ArgoCDNamespace, "audited")
	replica.becomes(t)
	app.patch(t, `{"operation":{"sync":{},"initiatedBy":{"username":"alice"}}}`)
	if line := onBoth("sync", "audited", "ok", "ok"); line.Caller != "alice" || line.CallerFrom != "operation" || line.Type != "command" {
		t.Errorf("%+v", line)
	}
	app.patch(t, `{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"hard"}}}`)
	if line := onBoth("refresh", "audited", "ok", "ok"); line.Caller != "unknown" {
		t.Errorf("%+v", line)
	}

	agent.spoke.configMap("written").create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap"})
	through := w.kubeconfig(t, "managed")
	w.throughHub(t, through, "-n", lab.ArgoCDNamespace, "patch", "configmap", "written", "--type", "merge", "-p", `{"data":{"password":"not in any log"}}`)
	live := onBoth("patch", "written", "ok", "ok")
	if live.Type != "live" || live.CallerFrom != "cluster-secret" || live.Caller != "unknown" { // the certificate has no user, as that of argocd-server
		t.Errorf("%+v", live)
	}
	// The audit log of the spoke's API server has the same ID.
	findLine(t, agent.spoke.AuditLog, "the patch", func(l apiAudit) bool {
		return l.AuditID == live.RequestID && l.Verb == "patch" && strings.Contains(l.RequestURI, "/configmaps/written")
	})

	if out, err := w.hubCommand(t, through, "-n", "x", "exec", "pod", "--", "true").CombinedOutput(); err == nil {
		t.Errorf("exec is not refused: %s", out)
	}
	if out, err := w.hubCommand(t, through, "-n", lab.ArgoCDNamespace, "create", "--raw", "/api/v1/namespaces/x/pods/p/exec?command=true", "-f", os.DevNull).CombinedOutput(); err == nil {
		t.Errorf("exec is not refused: %s", out)
	}
	if line := onBoth("create", "p", "failed", "refused"); line.Type != "exec" || line.Setting != "resource-proxy-exec" {
		t.Errorf("%+v", line)
	}

	t.Run("impersonation", func(t *testing.T) { impersonation(t, w, through, hubLog) })

	agent.limit(t, map[string]any{"destinationNamespaces": []any{"x"}})
	refused := w.hub.app("managed", "refused")
	refused.create(t, appSpec{repo: "https://git.example/x", destination: "managed", namespace: "kube-system"}.object())
	for _, file := range []string{hubLog, spokeLog} {
		line := findLine(t, file, "refusal", func(l auditLine) bool { return l.Object.Name == "refused" })
		if line.Type != "replication" || line.Result != "refused" || !strings.Contains(line.Reason, "destinationNamespaces") {
			t.Errorf("%+v", line)
		}
	}

	app.delete(t)
	replica.goes(t)
	for _, file := range []string{hubLog, spokeLog} {
		findLine(t, file, "deletion", func(l auditLine) bool {
			return l.Type == "command" && l.Action == "delete" && l.Object.Name == "audited" && l.Result == "ok"
		})
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "not in any log") || strings.Contains(string(text), "git.example") {
			t.Errorf("%v: content is in %s: %s", err, file, text)
		} else {
			t.Logf("%s:\n%s", filepath.Base(file), text)
		}
	}
}

// impersonation acts as the ServiceAccount that an AppProject of the hub names, as Argo CD does, against a real API server.
func impersonation(t *testing.T, w *testEnv, through, hubLog string) {
	t.Helper()
	agent := w.managed()
	const deployer, other = "system:serviceaccount:team:deployer", "system:serviceaccount:team:other"
	w.hub.project("accounts").create(t, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "spec": map[string]any{
		"sourceRepos": []any{"*"}, "sourceNamespaces": []any{"*"}, "destinations": []any{map[string]any{"name": "managed", "namespace": "team"}},
		"destinationServiceAccounts": []any{map[string]any{"server": "*", "namespace": "team", "defaultServiceAccount": "deployer"}}}})
	w.hub.app("managed", "accounts").create(t, appSpec{project: "accounts", repo: "https://git.example/x", destination: "managed", namespace: "team"}.object())
	agent.spoke.app(lab.ArgoCDNamespace, "accounts").becomes(t)
	agent.spoke.ensureNamespace(t, "team")
	agent.spoke.object(configMaps, "team", "deployed").create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap"})
	as := func(user string, args ...string) (string, error) {
		out, err := w.hubCommand(t, through, append([]string{"-n", "team", "--as", user}, args...)...).CombinedOutput()
		return string(out), err
	}
	denied := func(user, want string, args ...string) {
		t.Helper()
		await(t, "refusal of "+user, func() error {
			if out, err := as(user, args...); err == nil || !strings.Contains(out, want) {
				return fmt.Errorf("%s %q: %w: %s", user, args, err, out)
			}
			return nil
		})
	}
	get := []string{"get", "--raw", "/api/v1/namespaces/team/configmaps/deployed"}
	grant := func(manifest string) {
		t.Helper()
		if err := agent.spoke.Apply(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
	}
	role := func(name, rule, subject string) string {
		return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: %[1]s, namespace: team}, rules: [%[2]s]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %[1]s, namespace: team},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: "%[3]s"}]}
`, name, rule, subject)
	}

	// The agent itself could read and delete the ConfigMap.
	denied(other, "no AppProject of an Application on the workload cluster names it", get...)
	denied("alice", "is not a ServiceAccount", get...)
	denied(deployer, "cannot impersonate resource", get...)
	grant(role("agent-impersonates", `{apiGroups: [""], resources: [serviceaccounts], resourceNames: [deployer, other], verbs: [impersonate]}`, agent.spoke.RunAs.User))
	denied(deployer, `User "`+deployer+`" cannot get resource "configmaps"`, get...) // the account does not exist
	grant(role("deployer", `{apiGroups: [""], resources: [configmaps], verbs: [get]}`, deployer))
	await(t, "the permission of the account", func() error {
		out, err := as(deployer, get...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	denied(deployer, `User "`+deployer+`" cannot delete resource "configmaps"`, "delete", "--raw", "/api/v1/namespaces/team/configmaps/deployed")
	denied(other, "no AppProject", get...)
	findLine(t, agent.spoke.AuditLog, "the read as the account", func(l apiAudit) bool {
		return l.Verb == "get" && strings.HasSuffix(l.RequestURI, "/configmaps/deployed") && l.ImpersonatedUser != nil && l.ImpersonatedUser.Username == deployer && l.ResponseStatus.Code == 200
	})
	findLine(t, hubLog, "the deletion as the account", func(l auditLine) bool {
		return l.Action == "delete" && l.Object.Name == "deployed" && l.Impersonates == deployer && l.Result == "failed" && l.Code == "403"
	})
	agent.spoke.object(configMaps, "team", "deployed").is(t)
	// An agent of an older release would send such a path to its API server, which serves nothing there.
	if out, err := w.Command(t.Context(), "kubectl", "--kubeconfig", agent.spoke.Kubeconfig, "get", "--raw", "/impersonate.argocd-agent/"+deployer+"/api/v1/namespaces/team/configmaps/deployed").CombinedOutput(); err == nil || !strings.Contains(string(out), "NotFound") {
		t.Errorf("%v: %s", err, out)
	}
}
