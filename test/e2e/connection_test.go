package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// poison lets the spoke's API server reject Applications with the label poison=true.
const poison = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-poison}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - {apiGroups: [argoproj.io], apiVersions: [v1alpha1], operations: [CREATE, UPDATE], resources: [applications]}
  validations:
    - expression: "!has(object.metadata.labels) || !('poison' in object.metadata.labels) || object.metadata.labels['poison'] != 'true'"
      message: this cluster does not take poison
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: e2e-poison}
spec:
  policyName: e2e-poison
  validationActions: [Deny]
`

func TestRejectedApplication_IsReportedAndDelaysNoOther(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	if err := spoke.Apply(t.Context(), poison); err != nil {
		t.Fatal(err)
	}
	bindings := unstructuredResource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings")
	binding := spoke.object(bindings, "", "e2e-poison")
	t.Cleanup(func() { binding.discard(t) })
	spec := appSpec{repo: w.RepoURL("plain"), destination: "managed", namespace: "poison"}
	probe := spec
	probe.labels = map[string]string{"poison": "true"}
	await(t, "the policy to work", func() error { // the API server needs a moment to apply it
		if err := spoke.app(lab.ArgoCDNamespace, "poison-probe").tryCreate(probe.object(), metav1.DryRunAll); err == nil {
			return errors.New("it lets poison pass")
		}
		return nil
	})

	bad := w.hub.app("managed", "poisoned")
	bad.create(t, probe.object())
	bad.becomes(t, shows("AgentError", "this cluster does not take poison"))
	for i := range 10 { // other items are replicated
		name := fmt.Sprintf("not-rejected-%d", i)
		w.hub.app("managed", name).create(t, spec.object())
		spoke.app(lab.ArgoCDNamespace, name).becomes(t)
	}
	spoke.app(lab.ArgoCDNamespace, "poisoned").isAbsent(t)

	w.principal.restart(t) // the reason is still shown afterwards
	w.connected(t)
	bad.becomes(t, shows("AgentError", "this cluster does not take poison"))

	bad.edit(t, func(u *unstructured.Unstructured) { setLabel(u, "poison", "false") })
	spoke.app(lab.ArgoCDNamespace, "poisoned").becomes(t)
	bad.becomes(t, showsNo("AgentError"), outOfSync)

	other := w.hub.app("managed", "poisoned-too") // it does not change, but the policy of the cluster does
	other.create(t, probe.object())
	other.becomes(t, shows("AgentError", "this cluster does not take poison"))
	binding.delete(t)
	spoke.app(lab.ArgoCDNamespace, "poisoned-too").becomes(t)
	other.becomes(t, showsNo("AgentError"), outOfSync)
}

// TestConnection_HalfOpenIsReplaced drops all bytes of the connection without closing it, as a firewall does.
func TestConnection_HalfOpenIsReplaced(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	agent.with(t, "--keep-alive-ping-interval", "10s")
	mark := w.principal.logOffset(t)
	agent.link.HalfOpen()
	app := w.hub.app("managed", "half-open")
	app.create(t, appSpec{repo: w.RepoURL("plain"), destination: "managed", namespace: "half-open"}.object())
	agent.spoke.app(lab.ArgoCDNamespace, "half-open").becomes(t)
	app.becomes(t, outOfSync)
	w.principal.waitForLog(t, mark, "Agent connected", "managed")
}

// TestConnection_SurvivesBlackhole drops all bytes of old and new connections.
func TestConnection_SurvivesBlackhole(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	agent.with(t, "--keep-alive-ping-interval", "10s")
	mark := agent.logOffset(t)
	if err := agent.link.Cut(faultproxy.Blackhole); err != nil {
		t.Fatal(err)
	}
	agent.disconnected(t)
	app, copied := w.hub.app("managed", "swallowed"), agent.spoke.app(lab.ArgoCDNamespace, "swallowed")
	app.create(t, appSpec{repo: w.RepoURL("plain"), destination: "managed", namespace: "swallowed"}.object())
	agent.waitForLog(t, mark, "no answer within") // of a new connection
	copied.isAbsent(t)
	if err := agent.link.Restore(); err != nil {
		t.Fatal(err)
	}
	copied.becomes(t)
	app.becomes(t, outOfSync)
}

func TestStatus_OneMegabyteArrives(t *testing.T) {
	w := shared(t)
	hubApp, copied := w.hub.app("managed", "huge"), w.managed().spoke.app(lab.ArgoCDNamespace, "huge")
	hubApp.create(t, appSpec{repo: w.RepoURL("plain"), destination: "managed", namespace: "huge"}.object())
	hubApp.becomes(t, outOfSync)

	message := strings.Repeat("x", 1000)
	copied.edit(t, func(u *unstructured.Unstructured) {
		history := []any{}
		for i := range 1000 {
			history = append(history, map[string]any{"id": int64(i), "revision": message, "deployedAt": "2026-01-01T00:00:00Z"})
		}
		set(u, "status.history", history)
	})
	hubApp.becomes(t, history(1000))
	hubApp.is(t, showsNo("AgentError"), showsNo("AgentTruncatedWarning"))
}

func TestStatus_TooLargeIsTruncatedAndReported(t *testing.T) {
	w := shared(t)
	hubApp, copied := w.hub.app("managed", "too-huge"), w.managed().spoke.app(lab.ArgoCDNamespace, "too-huge")
	hubApp.create(t, appSpec{repo: w.RepoURL("plain"), destination: "managed", namespace: "too-huge"}.object())
	hubApp.becomes(t, outOfSync)
	const half = 700 << 10
	hubApp.edit(t, func(u *unstructured.Unstructured) { // changes of the hub are replicated, too
		setAnnotation(u, "notified.notifications.argoproj.io", strings.Repeat("n", 250<<10))
	})
	copied.edit(t, func(u *unstructured.Unstructured) {
		set(u, "status.operationState", map[string]any{
			"phase": "Succeeded", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z",
			"operation": map[string]any{"sync": map[string]any{}},
			"syncResult": map[string]any{"revision": "r", "resources": []any{map[string]any{
				"group": "", "version": "v1", "kind": "ConfigMap", "namespace": "x", "name": "x", "message": strings.Repeat("m", half)}}},
		})
		set(u, "status.history", []any{map[string]any{"id": int64(0), "revision": strings.Repeat("h", half), "deployedAt": "2026-01-01T00:00:00Z"}})
	})
	hubApp.becomes(t, shows("AgentTruncatedWarning", "too large"), field("status.operationState.phase", "Succeeded"), history(1))
}

func TestShutdown_DrainsOnSIGTERM(t *testing.T) {
	w := shared(t)
	mark := w.principal.logOffset(t)
	if code := w.managed().terminate(t); code != 0 {
		t.Errorf("the agent ended with %d", code)
	}
	w.principal.waitForLog(t, mark, "Agent disconnected", "managed")
	mark = w.autonomous().logOffset(t)
	if code := w.principal.terminate(t); code != 0 {
		t.Errorf("the principal ended with %d", code)
	}
	w.autonomous().waitForLog(t, mark, "Disconnected from the hub")
}
