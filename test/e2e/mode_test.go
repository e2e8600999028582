package e2e

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

const agentNameAnnotation = "argocd-agent.argoproj-labs.io/agent-name"

// inMode changes the mode of an agent as docs/modes.md says.
func (a *agent) inMode(t *testing.T, w *testEnv, name, mode string, before func()) {
	t.Helper()
	out := w.hub.ctl(t, "agent", "reconfigure", name, "--mode", mode)
	if !strings.Contains(out, "agent resume "+name) {
		t.Errorf("it does not say how to go on: %s", out)
	}
	before()
	i := slices.Index(a.args, "--agent-mode")
	a.args[i+1], a.mode = mode, mode
	a.terminate(t)
	w.hub.ctl(t, "agent", "resume", name)
	a.start(t)
	a.connected(t)
}

// A managed agent becomes autonomous and managed again. Each Application has one owner at a time, and none is created or
// deleted.
func TestMode_ChangesWithoutLoss(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}})
	w := newEnv(t, setup{lab: l, flags: []string{"--require-registration"}, agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}}})
	t.Cleanup(w.close)
	a, spoke, object := w.managed(), w.managed().spoke, w.hub.agent("managed")
	object.create(t, map[string]any{"apiVersion": "argocd-agent.argoproj-labs.io/v1alpha1", "kind": "Agent", "spec": map[string]any{"mode": "managed"}})
	w.start(t)
	inSync := func() {
		t.Helper()
		object.becomes(t, truth("status.connected", true), agentShows("Synced", "True", ""))
	}

	hubApp, spokeApp := w.hub.app("managed", "a"), spoke.app(lab.ArgoCDNamespace, "a")
	spec := appSpec{repo: "https://git.example/x", destination: "managed", namespace: "x", cascade: true, labels: map[string]string{"team": "a"}}
	hubApp.create(t, spec.object())
	spokeApp.becomes(t)
	own := spoke.app(lab.ArgoCDNamespace, "own")
	own.create(t, simple("in-cluster"))
	inSync()
	onHub, onSpoke := hubApp.get(t), spokeApp.get(t)

	clash, local := w.hub.app("managed", "clash"), spoke.app(lab.ArgoCDNamespace, "clash")
	a.inMode(t, w, "managed", "autonomous", func() {
		clash.create(t, simple("managed"))
		local.create(t, simple("in-cluster"))
	})
	replica := hubApp.becomes(t, field("spec.project", "managed-default"), annotation(agentNameAnnotation, "managed"), label("team", "a"))
	if replica.GetUID() != onHub.GetUID() || len(replica.GetFinalizers()) > 0 {
		t.Errorf("the hub's Application has UID %s and finalizers %v", replica.GetUID(), replica.GetFinalizers())
	}
	w.hub.app("managed", "own").becomes(t, annotation(agentNameAnnotation, "managed"))
	if now := spokeApp.get(t); now.GetResourceVersion() != onSpoke.GetResourceVersion() {
		t.Error("the Application on the workload cluster was written")
	}
	spokeApp.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.source.targetRevision", "v2") })
	hubApp.becomes(t, field("spec.source.targetRevision", "v2"))
	hubApp.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.source.targetRevision", "by the hub") })
	hubApp.becomes(t, field("spec.source.targetRevision", "v2"))

	// An Application that the agent never received is not the agent's, although it has the same name.
	object.becomes(t, agentShows("Synced", "False", "differ"))
	clash.is(t, field("spec.project", "default"), annotation(agentNameAnnotation, ""))
	if out, err := w.hub.tryCtl(t, "agent", "reconfigure", "managed", "--mode", "managed"); err == nil || !strings.Contains(out, "not in sync") && !strings.Contains(out, "differ") {
		t.Errorf("the mode changes although an Application is not replicated: %v: %s", err, out)
	}
	clash.delete(t)
	clash.becomes(t, annotation(agentNameAnnotation, "managed"))
	inSync()

	a.inMode(t, w, "managed", "managed", func() {})
	spokeApp.becomes(t, field("spec.project", "managed-default"))
	spoke.project("managed-default").becomes(t)
	hubApp.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.source.targetRevision", "v3") })
	spokeApp.becomes(t, field("spec.source.targetRevision", "v3"))
	own.becomes(t, field("spec.project", "managed-default"))
	inSync()
	if now := spokeApp.get(t); now.GetUID() != onSpoke.GetUID() {
		t.Error("the Application on the workload cluster was created again")
	}
	own.is(t)
	local.is(t)
}
