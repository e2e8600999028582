package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// onHub runs kubectl as administrator of the hub.
func (w *testEnv) onHub(t testing.TB, input string, args ...string) (string, error) {
	t.Helper()
	kubectl := w.Command(t.Context(), "kubectl")
	cmd := exec.CommandContext(t.Context(), kubectl.Path, append([]string{"--kubeconfig", w.hub.Kubeconfig, "-n", lab.ArgoCDNamespace}, args...)...)
	cmd.Env, cmd.Stdin = kubectl.Env, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// agentShows reports whether an Agent has a condition.
func agentShows(of, status, text string) condition {
	return func(u *unstructured.Unstructured) error {
		all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range all {
			c := c.(map[string]any)
			if c["type"] == of && c["status"] == status && strings.Contains(c["message"].(string), text) {
				return nil
			}
		}
		return fmt.Errorf("there is no condition %s that is %s and says %q", of, status, text)
	}
}

func truth(path string, value bool) condition {
	return func(u *unstructured.Unstructured) error {
		if got, _, _ := unstructured.NestedBool(u.Object, strings.Split(path, ".")...); got != value {
			return fmt.Errorf("%s is %v", path, got)
		}
		return nil
	}
}

// skipAfterFailure skips the remaining steps after a failure, because each step builds on the one before.
func skipAfterFailure(t *testing.T) {
	t.Helper()
	if t.Failed() {
		t.FailNow()
	}
}

// TestAgentObjects follows two agents: one from before the Agent resource existed, and a declared one. Each step builds
// on the one before.
func TestAgentObjects(t *testing.T) {
	t.Parallel()
	whole := t
	l := lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}})
	w := newEnv(t, setup{lab: l, flags: []string{"--require-registration"}, agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}}})
	t.Cleanup(w.close)
	m, spoke, object := w.managed(), w.managed().spoke, w.hub.agent("managed")

	t.Run("an existing cluster Secret becomes an Agent", func(t *testing.T) {
		w.hub.secret("cluster-managed").create(whole, map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{
				"labels":      map[string]any{"argocd.argoproj.io/secret-type": "cluster", "argocd-agent.argoproj-labs.io/agent-name": "managed", "team": "web"},
				"annotations": map[string]any{"argocd-agent.argoproj-labs.io/mode": "managed"}},
			"stringData": map[string]any{"name": "managed", "server": "https://elsewhere:9090?agentName=managed", "config": "{}"}})
		w.principal.start(t)
		m.start(t)
		m.connected(t)
		u := object.becomes(t, field("spec.mode", "managed"), truth("status.connected", true), agentShows("Registered", "True", ""), agentShows("Connected", "True", ""),
			agentShows("Synced", "True", ""), agentShows("Held", "False", ""))
		for _, path := range []string{"status.since", "status.clusterUID", "status.principal", "status.version", "status.protocol", "status.certificate.fingerprint",
			"status.certificate.expires", "status.lastConfirmed"} {
			if at(u, path) == "" {
				t.Errorf("%s is not known", path)
			}
		}
		if skew, known, _ := unstructured.NestedInt64(u.Object, "status", "clockSkewSeconds"); !known || max(skew, -skew) > 60 {
			t.Errorf("of one and the same clock it is said that it is wrong by %d s (known: %v)", skew, known)
		}
		w.hub.secret("cluster-managed").becomes(t, label("team", "web"), annotation("argocd.argoproj.io/skip-reconcile", "true"))
	})
	skipAfterFailure(t)
	t.Run("kubectl get agents has the main columns", func(t *testing.T) {
		w.hub.app("managed", "one").create(whole, simple("managed"))
		await(t, "the table to count", func() error {
			out, err := w.onHub(t, "", "get", "agents")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if got := strings.Fields(lines[0]); strings.Join(got, " ") != "NAME MODE CONNECTED SINCE APPLICATIONS DIVERGED VERSION" {
				t.Fatalf("columns: %q", got)
			}
			row := strings.Fields(lines[len(lines)-1])
			if len(row) != 7 || row[0] != "managed" || row[1] != "managed" || row[2] != "true" || row[4] != "1" || row[5] != "0" {
				return fmt.Errorf("row: %q", row)
			}
			return nil
		})
	})
	skipAfterFailure(t)
	t.Run("a suspended agent is disconnected with a reason until it is resumed", func(t *testing.T) {
		mark := m.logOffset(t)
		began := time.Now()
		object.patch(t, `{"spec":{"suspended":true}}`)
		m.waitForLog(t, mark, "Disconnected from the hub")
		t.Logf("cut off %v after it was asked for", time.Since(began))
		m.waitForLog(t, mark, "suspended on the hub")
		object.becomes(t, truth("status.connected", false), agentShows("Connected", "False", "suspended"), agentShows("Synced", "Unknown", ""))
		w.hub.app("managed", "in-between").create(whole, simple("managed"))
		m.waitForLog(t, m.logOffset(t), "suspended on the hub") // it connected again and was refused again
		spoke.app(lab.ArgoCDNamespace, "in-between").isAbsent(t)
		object.patch(t, `{"spec":{"suspended":false}}`)
		spoke.app(lab.ArgoCDNamespace, "in-between").becomes(t)
		object.becomes(t, truth("status.connected", true))
	})
	skipAfterFailure(t)
	t.Run("another mode is refused with a fix", func(t *testing.T) {
		out, err := w.onHub(t, "", "patch", "agents", "managed", "--type=merge", "-p", `{"spec":{"mode":"autonomous"}}`)
		if err == nil || !strings.Contains(out, "set suspended to true, then change the mode") {
			t.Errorf("%v: %s", err, out)
		}
		m.connected(t)
	})
	skipAfterFailure(t)
	t.Run("retiring an agent removes finalizers that wait for it", func(t *testing.T) {
		m.kill(t)
		object.becomes(t, truth("status.connected", false))
		waiting := w.hub.app("managed", "waiting")
		spec := simple("managed")
		spec["metadata"] = map[string]any{"finalizers": []any{"resources-finalizer.argocd.argoproj.io", "post-delete-finalizer.argocd.argoproj.io/cleanup"}}
		waiting.create(whole, spec)
		waiting.delete(t)
		waiting.becomes(t, func(u *unstructured.Unstructured) error {
			if u.GetDeletionTimestamp() == nil {
				return fmt.Errorf("it is not being deleted")
			}
			return nil
		})
		object.patch(t, `{"metadata":{"annotations":{"argocd-agent.argoproj-labs.io/retire":"true"}}}`)
		waiting.goes(t)
		later := w.hub.app("managed", "one") // an Application without a deletion stays and can be deleted
		later.edit(t, func(u *unstructured.Unstructured) {
			u.SetFinalizers([]string{"resources-finalizer.argocd.argoproj.io"})
		})
		later.delete(t)
		later.goes(t)
		w.hub.app("managed", "in-between").is(t)
		mark := m.logOffset(t)
		m.start(t)
		m.waitForLog(t, mark, "retired on the hub")
		object.patch(t, `{"metadata":{"annotations":{"argocd-agent.argoproj-labs.io/retire":null}}}`)
		m.connected(t)
	})
	skipAfterFailure(t)
	t.Run("a deleted agent is disconnected and revoked, and objects of users stay", func(t *testing.T) {
		mark := m.logOffset(t)
		w.hub.app("managed", "in-between").is(t)
		object.delete(t)
		m.waitForLog(t, mark, "deleted on the hub")
		object.goes(t)
		m.waitForLog(t, mark, "revoked")
		w.hub.configMap("argocd-agent-tls-blocklist").becomes(t)
		w.hub.app("managed", "in-between").is(t)
		spoke.app(lab.ArgoCDNamespace, "in-between").is(t)
		w.hub.secret("cluster-managed").is(t, label("team", "web"))
		m.kill(t)
	})
	skipAfterFailure(t)
	t.Run("only a declared agent is accepted", func(t *testing.T) {
		d := w.addAgent(t, agentSetup{name: "declared", cluster: "managed", mode: "managed"})
		d.start(t)
		d.waitForLog(t, 0, "not registered on the hub")
		w.hub.agent("declared").isAbsent(t)
		manifest := `
apiVersion: argocd-agent.argoproj-labs.io/v1alpha1
kind: Agent
metadata: {name: declared}
spec: {mode: managed, cluster: {labels: {env: prod}}}
`
		if out, err := w.onHub(t, manifest, "apply", "-f", "-"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		d.restart(t) // it would reconnect in a minute
		d.connected(t)
		w.hub.agent("declared").becomes(t, truth("status.connected", true))
		w.hub.secret("cluster-declared").becomes(t, label("env", "prod"), label("argocd-agent.argoproj-labs.io/agent-name", "declared"))
		out, err := w.onHub(t, manifest, "apply", "-f", "-")
		if err != nil || !strings.Contains(out, "unchanged") {
			t.Errorf("what is in Git is not what is there: %v: %s", err, out)
		}
	})
	skipAfterFailure(t)
	t.Run("a missing CRD is reported", func(t *testing.T) {
		crd := w.hub.object(unstructuredResource("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "", "agents.argocd-agent.argoproj-labs.io")
		crd.delete(t)
		crd.goes(t) // the finalizers of the Agents are removed
		w.principal.waitForLog(t, 0, "CRD of Agents is being deleted")
		w.hub.secret("cluster-declared").is(t, label("env", "prod"))
		mark := w.principal.logOffset(t)
		w.principal.restart(t)
		w.principal.waitForLog(t, mark, "does not serve agents", "install/crds/agents.yaml")
		if err := healthy(w.health); err == nil || !strings.Contains(err.Error(), "install/crds/agents.yaml") {
			t.Errorf("the probe says %v", err)
		}
		definition, err := os.ReadFile("../../install/crds/agents.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if out, err := w.onHub(t, string(definition), "apply", "-f", "-"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		await(t, "the principal to be ready", func() error { return healthy(w.health) })
		w.hub.agent("declared").becomes(t, field("spec.mode", "managed"), truth("status.connected", true)) // from its cluster Secret
		w.hub.secret("cluster-declared").becomes(t, label("env", "prod"))
	})
}
