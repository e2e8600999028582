package e2e

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// with restarts an agent of the shared environment with more flags until the end of the test.
func (a *agent) with(t *testing.T, flags ...string) {
	t.Helper()
	before := slices.Clone(a.args)
	a.args = append(slices.Clone(a.args), flags...)
	t.Cleanup(func() {
		a.args = before
		a.restart(t)
	})
	a.restart(t)
	a.connected(t)
}

func TestRecreatedApplication_IsUpdatedInPlace(t *testing.T) {
	w := shared(t)
	hubApp, copied := w.hub.app("managed", "again"), w.managed().spoke.app(lab.ArgoCDNamespace, "again")
	spec := w.plain("managed", "again")
	hubApp.create(t, spec.object())
	hubApp.becomes(t, synced, healthyApp)
	before := copied.get(t)

	w.managed().kill(t)
	hubApp.delete(t)
	spec.labels = map[string]string{"life": "second"}
	second := hubApp.create(t, spec.object())
	w.managed().start(t)
	after := copied.becomes(t, label("life", "second"), annotation(sourceUID, string(second.GetUID())))
	if after.GetUID() != before.GetUID() {
		t.Error("the spoke's Application was deleted and made again, not updated")
	}
	hubApp.becomes(t, synced, healthyApp)
}

func TestRecreatedApplication_IsRecreatedByPolicy(t *testing.T) {
	w := shared(t)
	w.managed().with(t, "--source-uid-mismatch-policy", "recreate")
	hubApp, copied := w.hub.app("managed", "again-too"), w.managed().spoke.app(lab.ArgoCDNamespace, "again-too")
	spec := w.plain("managed", "again-too")
	spec.cascade = true
	hubApp.create(t, spec.object())
	hubApp.becomes(t, synced, healthyApp)
	before := copied.get(t)

	w.managed().kill(t)
	hubApp.discard(t) // without cascade
	hubApp.create(t, spec.object())
	w.managed().start(t)
	copied.becomes(t, func(u *unstructured.Unstructured) error { return differs(u, before) }, synced, healthyApp)
	w.managed().spoke.object(deployments, "again-too", "guestbook").is(t)
	hubApp.becomes(t, synced, healthyApp)
}

func TestRestoredApplication_IsSyncedByPolicy(t *testing.T) {
	w := shared(t)
	w.managed().with(t, "--on-application-recreate", "resync")
	app := newCommanded(t, w, "managed", "put-back")
	w.argocd(t, "app", "sync", app.name)
	app.hub.becomes(t, synced)
	before := app.spoke.get(t)
	commit(t, app.repo, map[string]string{"configmap.yaml": configMapManifest("guestbook", "newer")})

	app.spoke.discard(t)
	app.spoke.becomes(t, func(u *unstructured.Unstructured) error { return differs(u, before) }, phase("Succeeded"), synced)
	app.workload.becomes(t, field("data.GREETING", "newer"))
	app.hub.becomes(t, noOperation, synced)
}

func TestAutonomousApplication_InOtherNamespaceHasPrefix(t *testing.T) {
	w := shared(t)
	agent := w.autonomous()
	allNamespaces(t, agent.spoke.Cluster)
	agent.with(t, "--allowed-namespaces", "team-*")
	agent.spoke.ensureNamespace(t, "team-red")
	agent.spoke.project("default").patch(t, `{"spec":{"sourceNamespaces":["team-*"]}}`)
	app, copied := agent.spoke.app("team-red", "web"), w.hub.app("autonomous", "team-red.web")
	app.create(t, w.plain("in-cluster", "team-red-web").object())
	copied.becomes(t, synced, healthyApp, field("spec.destination.name", "autonomous"))
	w.argocd(t, "app", "get", "autonomous/team-red.web", "--refresh")
	w.argocd(t, "app", "sync", "autonomous/team-red.web")
	copied.becomes(t, noOperation, phase("Succeeded"))
	app.delete(t)
	copied.goes(t)
}
