package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent/argocd-agent/lab"
)

var agentPolicies = schema.GroupVersionResource{Group: "argocd-agent.argoproj-labs.io", Version: "v1alpha1", Resource: "agentpolicies"}

// limit creates an AgentPolicy on the agent's cluster until the end of the test. The agent uses it when limit returns.
func (a *agent) limit(t *testing.T, spec map[string]any) object {
	t.Helper()
	policy := a.spoke.object(agentPolicies, lab.ArgoCDNamespace, "limits")
	a.changesPolicy(t, func() {
		policy.create(t, map[string]any{"apiVersion": "argocd-agent.argoproj-labs.io/v1alpha1", "kind": "AgentPolicy", "spec": spec})
	})
	t.Cleanup(func() {
		a.changesPolicy(t, func() { policy.discard(t) })
		if a.mode == "managed" { // a narrowed project is widened again
			a.spoke.project("default").becomes(t, func(u *unstructured.Unstructured) error {
				if repos := fmt.Sprint(u.Object["spec"].(map[string]any)["sourceRepos"]); repos != "[*]" {
					return fmt.Errorf("sourceRepos are %s", repos)
				}
				return nil
			})
		}
	})
	return policy
}

// changesPolicy changes an AgentPolicy and waits until the agent has connected with it.
func (a *agent) changesPolicy(t *testing.T, change func()) {
	t.Helper()
	since := a.logOffset(t)
	change()
	a.waitForLog(t, since, "Using AgentPolicies")
	a.waitForLog(t, since, "Connected to the hub")
	a.connected(t)
}

// A hub that a hostile user controls sends Applications and AppProjects. The workload cluster refuses what its
// AgentPolicy forbids, and the hub's Application says why.
func TestHostileHub_ApplicationIsRefused(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	repo := w.plain("managed", "allowed")
	agent.limit(t, map[string]any{
		"sourceRepos": []any{repo.repo}, "destinationNamespaces": []any{"allowed", "policy-*"}, "projects": []any{"default", "policy-local"},
		"rules": []any{map[string]any{"name": "no-evil-label", "expression": `!has(object.metadata.labels) || !("evil" in object.metadata.labels)`, "message": "the label evil is not allowed"}},
	})

	allowed := w.hub.app("managed", "allowed")
	allowed.create(t, repo.object())
	allowed.becomes(t, synced, healthyApp)

	for name, c := range map[string]struct {
		change func(*appSpec)
		reason string
	}{
		"policy-repo":      {func(a *appSpec) { a.repo = "https://git.example.com/evil" }, "AgentPolicy limits (sourceRepos)"},
		"policy-namespace": {func(a *appSpec) { a.namespace = "kube-system" }, "AgentPolicy limits (destinationNamespaces)"},
		"policy-rule":      {func(a *appSpec) { a.labels = map[string]string{"evil": "yes"} }, "AgentPolicy limits (no-evil-label) of the workload cluster forbids it: the label evil is not allowed"},
	} {
		spec := w.plain("managed", name)
		c.change(&spec)
		app := w.hub.app("managed", name)
		app.create(t, spec.object())
		app.becomes(t, shows("AgentError", c.reason))
		agent.spoke.app(lab.ArgoCDNamespace, name).isAbsent(t)
	}

	// The agent does not narrow an AppProject that the cluster keeps for itself, so Applications in it are refused.
	local, project := agent.spoke.project("policy-local"), projectOf("in-cluster")
	setAnnotation(&unstructured.Unstructured{Object: project}, adoption, "never")
	local.create(t, project)
	w.hub.project("policy-local").create(t, projectOf("managed"))
	spec := w.plain("managed", "policy-local")
	spec.project = "policy-local"
	app := w.hub.app("managed", "policy-local")
	app.create(t, spec.object())
	app.becomes(t, shows("AgentError", "AgentPolicy limits (sourceRepos) of the workload cluster forbids it: AppProject policy-local of the workload cluster allows repository *"))
	agent.spoke.app(lab.ArgoCDNamespace, "policy-local").isAbsent(t)
	local.patch(t, fmt.Sprintf(`{"spec":{"sourceRepos":[%q],"destinations":[{"server":"*","namespace":"policy-*"}]}}`, repo.repo))
	agent.spoke.app(lab.ArgoCDNamespace, "policy-local").becomes(t)
	app.becomes(t, showsNo("AgentError"))

	// A change of what is already placed is refused too. What was placed stays.
	before := agent.spoke.app(lab.ArgoCDNamespace, "allowed").get(t)
	allowed.patch(t, `{"spec":{"destination":{"namespace":"kube-system"}}}`)
	allowed.becomes(t, shows("AgentError", "destinationNamespaces"))
	agent.spoke.app(lab.ArgoCDNamespace, "allowed").is(t, field("spec.destination.namespace", at(before, "spec.destination.namespace")))
	allowed.patch(t, `{"spec":{"destination":{"namespace":"allowed"}}}`)
	allowed.becomes(t, showsNo("AgentError"), synced, healthyApp)
}

// Without an AgentPolicy, the hub cannot deploy to the namespace of Argo CD and of the agent: neither with the
// destination of an Application, nor with a namespace in a manifest.
func TestHostileHub_CannotDeployOverTheAgent(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	direct := w.plain("managed", lab.ArgoCDNamespace)
	app := w.hub.app("managed", "over-the-agent")
	app.create(t, direct.object())
	app.becomes(t, shows("AgentError", "protectedNamespaces"))
	agent.spoke.app(lab.ArgoCDNamespace, "over-the-agent").isAbsent(t)

	commanded := newCommanded(t, w, "managed", "nested")
	manifest := strings.Replace(configMapManifest("argocd-agent-params", "taken over"), "metadata:", "metadata:\n  namespace: "+lab.ArgoCDNamespace, 1)
	commit(t, commanded.repo, map[string]string{"configmap.yaml": manifest})
	out, err := w.tryArgocd(t, "app", "sync", commanded.name)
	if err == nil || !strings.Contains(out, "namespace "+lab.ArgoCDNamespace+" is not permitted") {
		t.Errorf("sync of a manifest with the namespace of Argo CD: %v\n%s", err, out)
	}
	if u, err := agent.spoke.configMap("argocd-agent-params").tryGet(); err != nil {
		t.Fatal(err)
	} else if u != nil && strings.Contains(at(u, "data.GREETING"), "taken over") {
		t.Error("the hub wrote into the namespace of the agent")
	}
}

func TestHostileHub_FreezeStopsEveryChange(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	app := newCommanded(t, w, "managed", "frozen")
	w.argocd(t, "app", "sync", app.name)
	app.hub.becomes(t, synced)
	policy := agent.limit(t, map[string]any{"freeze": map[string]any{"until": time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "reason": "audit"}})

	app.hub.patch(t, `{"spec":{"source":{"targetRevision":"HEAD"}}}`)
	app.hub.becomes(t, shows("AgentError", "changes are frozen until"))
	if out, err := w.tryArgocd(t, "app", "sync", app.name); err == nil || !strings.Contains(out, "audit") {
		t.Errorf("sync during the freeze: %v\n%s", err, out)
	}
	app.spoke.is(t, field("spec.source.targetRevision", "main"))

	agent.changesPolicy(t, func() { policy.patch(t, `{"spec":{"freeze":{"until":"2020-01-01T00:00:00Z"}}}`) })
	app.spoke.becomes(t, field("spec.source.targetRevision", "HEAD"))
	app.hub.becomes(t, showsNo("AgentError"))

	// An AgentPolicy that is not valid allows nothing.
	agent.changesPolicy(t, func() { policy.patch(t, `{"spec":{"rules":[{"name":"broken","expression":"object."}]}}`) })
	app.hub.patch(t, `{"spec":{"source":{"targetRevision":"main"}}}`)
	app.hub.becomes(t, shows("AgentError", "spec.rules[0] (broken)"))
	app.spoke.is(t, field("spec.source.targetRevision", "HEAD"))
}

// The hub of an autonomous cluster can sync what the cluster has configured, and nothing else.
func TestHostileHub_AutonomousOperationsAreLimited(t *testing.T) {
	w := shared(t)
	app := newCommanded(t, w, "autonomous", "limited")
	w.argocd(t, "app", "sync", app.name)
	app.hub.becomes(t, synced, noOperation)
	for name, operation := range map[string]string{
		"sync with manifests": `{"sync":{"manifests":["{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"evil\",\"namespace\":\"` + app.target + `\"}}"]}}`,
		"another source":      `{"sync":{"source":{"repoURL":"https://git.example.com/evil","path":"."}}}`,
		"force":               `{"sync":{"syncStrategy":{"apply":{"force":true}}}}`,
		"replace":             `{"sync":{"syncOptions":["Replace=true"]}}`,
	} {
		app.hub.becomes(t, noOperation)
		app.hub.patch(t, `{"operation":`+operation+`}`)
		u := app.hub.becomes(t, noOperation, phase("Error"))
		if message := at(u, "status.operationState.message"); !strings.Contains(message, "policy (operations) forbids it") {
			t.Errorf("%s: %s", name, message)
		}
	}
	w.autonomous().spoke.object(configMaps, app.target, "evil").isAbsent(t)
	w.argocd(t, "app", "sync", app.name) // still works
}

// Live access cannot change an AgentPolicy, at no level.
func TestHostileHub_CannotChangeAgentPolicy(t *testing.T) {
	w := liveEnv(t)
	agent := w.managed()
	agent.with(t, "--resource-proxy-level", "all")
	policy := agent.limit(t, map[string]any{"liveAccess": map[string]any{"read": true, "write": true}})
	kubeconfig := w.kubeconfig(t, "managed")
	out, err := w.hubCommand(t, kubeconfig, "patch", "agentpolicies", "limits", "-n", lab.ArgoCDNamespace, "--type", "merge", "-p", `{"spec":{"liveAccess":null}}`).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "only users of the workload cluster can change its AgentPolicies") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = w.hubCommand(t, kubeconfig, "delete", "agentpolicies", "limits", "-n", lab.ArgoCDNamespace).CombinedOutput()
	if err == nil {
		t.Errorf("the hub deleted it: %s", out)
	}
	policy.is(t)

	agent.changesPolicy(t, func() { policy.patch(t, `{"spec":{"liveAccess":{"write":false}}}`) })
	await(t, "live access after the reconnect", func() error {
		return w.hubCommand(t, kubeconfig, "get", "namespaces").Run()
	})
	out, err = w.hubCommand(t, kubeconfig, "create", "configmap", "evil", "-n", "default").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "liveAccess.write") {
		t.Errorf("%v: %s", err, out)
	}
}
