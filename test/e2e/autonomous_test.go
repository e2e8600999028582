package e2e

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

func TestAutonomousApplication_IsReplicatedToHub(t *testing.T) {
	w := shared(t)
	spokeApp, copied := w.autonomous().spoke.app(lab.ArgoCDNamespace, "own"), w.hub.app("autonomous", "own")
	spec := w.plain("in-cluster", "own")
	spec.labels = map[string]string{"team": "a"}
	spokeApp.create(t, spec.object())
	copied.becomes(t, synced, healthyApp, noOperation, label("team", "a"),
		field("spec.destination.name", "autonomous"), field("spec.project", "autonomous-default"))

	spokeApp.edit(t, func(u *unstructured.Unstructured) {
		set(u, "spec.source.repoURL", w.RepoURL("kustomize"))
		set(u, "spec.source.path", "overlays/staging")
		setLabel(u, "team", "b")
	})
	copied.becomes(t, field("spec.source.path", "overlays/staging"), label("team", "b"))
	spokeApp.is(t, annotation(sourceUID, "")) // the owner's object has no metadata of ours

	spokeApp.delete(t)
	copied.goes(t)
	w.autonomous().spoke.object(deployments, "own", "guestbook").is(t)
}

func TestAutonomousApplication_ReplicaDriftIsCorrected(t *testing.T) {
	w := shared(t)
	spokeApp, copied := w.autonomous().spoke.app(lab.ArgoCDNamespace, "stubborn"), w.hub.app("autonomous", "stubborn")
	spokeApp.create(t, w.plain("in-cluster", "stubborn").object())
	copied.becomes(t, synced, healthyApp)

	copied.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.source.path", "elsewhere") })
	copied.becomes(t, field("spec.source.path", "."))
	spokeApp.is(t, field("spec.source.path", "."))

	before := copied.get(t)
	copied.delete(t)
	copied.becomes(t, func(u *unstructured.Unstructured) error { return differs(u, before) }, synced, healthyApp)

	before = copied.get(t)
	w.argocd(t, "app", "delete", "autonomous/stubborn", "-y") // with cascade, as in the Argo CD UI
	copied.becomes(t, func(u *unstructured.Unstructured) error { return differs(u, before) }, synced, healthyApp)
	spokeApp.is(t, synced, healthyApp)
	w.autonomous().spoke.object(deployments, "stubborn", "guestbook").is(t)
}

func TestAutonomousProject_IsReplicatedWithAgentPrefix(t *testing.T) {
	w := shared(t)
	spokeProject, copied := w.autonomous().spoke.project("team"), w.hub.project("autonomous-team")
	spokeProject.create(t, projectOf("in-cluster"))
	found := copied.becomes(t, field("spec.description", "of a test"))
	destinations, _, _ := unstructured.NestedSlice(found.Object, "spec", "destinations")
	if len(destinations) != 1 || destinations[0].(map[string]any)["name"] != "autonomous" {
		t.Errorf("destinations on the hub are %v, not the agent's alone", destinations)
	}
	if sources, _, _ := unstructured.NestedStringSlice(found.Object, "spec", "sourceNamespaces"); len(sources) != 1 || sources[0] != "autonomous" {
		t.Errorf("sourceNamespaces on the hub are %v, not the agent's alone", sources)
	}

	spokeProject.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.description", "changed") })
	copied.becomes(t, field("spec.description", "changed"))
	copied.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.description", "by the hub") })
	copied.becomes(t, field("spec.description", "changed"))
	copied.delete(t)
	copied.becomes(t, field("spec.description", "changed"))

	spokeProject.delete(t)
	copied.goes(t)
	w.managed().spoke.project("autonomous-team").isAbsent(t)
}

func TestAutonomousAgent_RightsOnHubNeedPermission(t *testing.T) {
	w := shared(t)
	const subscription = "notifications.argoproj.io/subscribe.on-sync-failed.slack"
	declared := w.hub.object(agents, lab.ArgoCDNamespace, "autonomous")
	spokeProject, project := w.autonomous().spoke.project("rights"), w.hub.project("autonomous-rights")
	spokeApp, app := w.autonomous().spoke.app(lab.ArgoCDNamespace, "rights"), w.hub.app("autonomous", "rights")
	own := projectOf("in-cluster")
	own["spec"].(map[string]any)["roles"] = []any{map[string]any{"name": "admin", "groups": []any{"everyone"},
		"policies": []any{"p, proj:rights:admin, applications, *, rights/*, allow"}}}
	spokeProject.create(t, own)
	spec := w.plain("in-cluster", "rights").object()
	spec["metadata"].(map[string]any)["annotations"] = map[string]any{subscription: "ops"}
	spokeApp.create(t, spec)
	roles := func(want bool) condition {
		return func(u *unstructured.Unstructured) error {
			if list, got, _ := unstructured.NestedSlice(u.Object, "spec", "roles"); got != want {
				return fmt.Errorf("its roles are %v", list)
			}
			return nil
		}
	}
	project.becomes(t, field("spec.description", "of a test"), roles(false))
	app.becomes(t, synced, annotation(subscription, ""))
	declared.becomes(t, agentShows("Synced", "True", ""))
	declared.patch(t, `{"spec":{"allow":["roles","notifications"]}}`)
	t.Cleanup(func() { declared.patch(t, `{"spec":{"allow":null}}`) })
	project.becomes(t, roles(true))
	app.becomes(t, annotation(subscription, "ops"))
	declared.becomes(t, agentShows("Synced", "True", ""))
	declared.patch(t, `{"spec":{"allow":[]}}`)
	project.becomes(t, roles(false))
	app.becomes(t, synced, annotation(subscription, ""))
	declared.becomes(t, agentShows("Synced", "True", ""))
}

func TestAutonomousApplication_AppOfAppsIsReplicated(t *testing.T) {
	w := shared(t)
	spoke := w.autonomous().spoke
	spec := appSpec{repo: w.RepoURL("app-of-apps"), destination: "in-cluster", namespace: lab.ArgoCDNamespace, automated: true, cascade: true}
	spoke.app(lab.ArgoCDNamespace, "parent").create(t, spec.object())
	for _, name := range []string{"parent", "child-plain", "child-helm"} {
		w.hub.app("autonomous", name).becomes(t, synced, healthyApp)
	}
	w.hub.app("autonomous", "parent").becomes(t, func(u *unstructured.Unstructured) error {
		resources, _, _ := unstructured.NestedSlice(u.Object, "status", "resources")
		for _, r := range resources {
			if one := r.(map[string]any); one["namespace"] != "autonomous" {
				t.Errorf("on the hub the child %v is in %v, not in the agent's namespace", one["name"], one["namespace"])
			}
		}
		return nil
	})

	spoke.app(lab.ArgoCDNamespace, "parent").delete(t) // with its children
	for _, name := range []string{"parent", "child-plain", "child-helm"} {
		w.hub.app("autonomous", name).goes(t)
	}
}

func TestAutonomousApplication_ApplicationSetIsReplicated(t *testing.T) {
	w := shared(t)
	set := w.autonomous().spoke.object(appSets, lab.ArgoCDNamespace, "fleet")
	set.create(t, appSetOf(w.plain("in-cluster", "{{.name}}"), "fleet-a", "fleet-b"))
	for _, name := range []string{"fleet-a", "fleet-b"} {
		w.hub.app("autonomous", name).becomes(t, synced, healthyApp)
	}
	set.delete(t)
	for _, name := range []string{"fleet-a", "fleet-b"} {
		w.hub.app("autonomous", name).goes(t)
	}
}

// appSetOf returns an ApplicationSet that creates an Application for each name.
func appSetOf(spec appSpec, names ...string) map[string]any {
	elements := []any{}
	for _, name := range names {
		elements = append(elements, map[string]any{"name": name})
	}
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": map[string]any{},
		"spec": map[string]any{
			"goTemplate": true,
			"generators": []any{map[string]any{"list": map[string]any{"elements": elements}}},
			"template":   map[string]any{"metadata": map[string]any{"name": "{{.name}}"}, "spec": spec.object()["spec"]},
		}}
}
