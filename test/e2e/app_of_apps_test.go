package e2e

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// TestAppOfApps_ChildrenShowReadOnly deploys an app of apps from the hub on a managed agent, under both mappings.
func TestAppOfApps_ChildrenShowReadOnly(t *testing.T) {
	w := own(t, setup{lab: lab.New(t, lab.Options{Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}}),
		agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}}})
	// By default, nothing of the hub is deployed to the namespace of Argo CD.
	w.managed().limit(t, map[string]any{"argoCDKinds": []any{"Application"}})
	apps := projectOf("managed")
	apps["spec"].(map[string]any)["namespaceResourceWhitelist"] = []any{map[string]any{"group": "argoproj.io", "kind": "Application"}}
	apps["spec"].(map[string]any)["clusterResourceWhitelist"] = []any{}
	w.hub.project("apps").create(t, apps)
	registered := w.hub.object(agents, lab.ArgoCDNamespace, "managed")
	spoke := w.managed().spoke
	for mapping, namespace := range map[string]string{"namespace": "managed", "destination": lab.ArgoCDNamespace} {
		t.Run(mapping, func(t *testing.T) {
			registered.patch(t, `{"spec":{"suspended":true}}`)
			registered.patch(t, `{"spec":{"mapping":"`+mapping+`","childApplications":"ReadOnly"}}`)
			registered.patch(t, `{"spec":{"suspended":false}}`)
			kept, pruned := "kept-"+mapping, "pruned-"+mapping
			children := func(names ...string) []any {
				out := []any{}
				for _, name := range names {
					out = append(out, map[string]any{"name": name, "repo": "plain", "path": ".", "namespace": name})
				}
				return out
			}
			parent := w.hub.app(namespace, "parent-"+mapping)
			spec := appSpec{repo: w.RepoURL("app-of-apps"), project: "apps", destination: "managed", namespace: lab.ArgoCDNamespace, automated: true, cascade: true}.object()
			values := func(u *unstructured.Unstructured, names ...string) {
				set(u, "spec.source.helm.valuesObject.children", children(names...))
				set(u, "spec.syncPolicy.automated.prune", true)
			}
			values(&unstructured.Unstructured{Object: spec}, kept, pruned)
			parent.create(t, spec)
			replica, own := w.hub.app(namespace, kept), spoke.app(lab.ArgoCDNamespace, kept)
			replica.becomes(t, synced, healthyApp, noOperation, field("spec.destination.name", "managed"))
			w.hub.app(namespace, pruned).becomes(t, synced, healthyApp)
			child := own.get(t)
			parent.becomes(t, synced, healthyApp, func(u *unstructured.Unstructured) error { // the tree links to the replicas
				resources, _, _ := unstructured.NestedSlice(u.Object, "status", "resources")
				for _, r := range resources {
					if one := r.(map[string]any); one["namespace"] != namespace {
						return fmt.Errorf("child %v is in namespace %v", one["name"], one["namespace"])
					}
				}
				if len(resources) != 2 {
					return fmt.Errorf("it has %d resources", len(resources))
				}
				return nil
			})

			// Edits and deletions on the hub are undone. Commands run.
			replica.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.source.path", "elsewhere") })
			replica.becomes(t, field("spec.source.path", "."))
			before := replica.get(t)
			w.argocd(t, "app", "delete", namespace+"/"+kept, "-y") // with cascade, as in the Argo CD UI
			replica.becomes(t, func(u *unstructured.Unstructured) error { return differs(u, before) }, synced, healthyApp)
			runs := historyOf(own.get(t))
			w.argocd(t, "app", "sync", namespace+"/"+kept)
			replica.becomes(t, synced, noOperation, history(runs+1))
			own.is(t, field("metadata.uid", string(child.GetUID())), annotation(sourceUID, ""), field("spec.destination.name", "in-cluster"))
			spoke.object(deployments, kept, "guestbook").is(t)

			// The parent prunes a child.
			parent.edit(t, func(u *unstructured.Unstructured) { values(u, kept) })
			w.hub.app(namespace, pruned).goes(t)
			spoke.app(lab.ArgoCDNamespace, pruned).goes(t)

			// Without the permission, only the replicas go.
			registered.patch(t, `{"spec":{"childApplications":"None"}}`)
			replica.goes(t)
			own.is(t, field("metadata.uid", string(child.GetUID())), synced)
			registered.patch(t, `{"spec":{"childApplications":"ReadOnly"}}`)
			replica.becomes(t, synced, healthyApp)
			own.is(t, field("metadata.uid", string(child.GetUID())))

			// The parent is deleted with its children.
			parent.delete(t)
			parent.goes(t)
			replica.goes(t)
			own.goes(t)
			spoke.object(deployments, kept, "guestbook").goes(t)
			registered.becomes(t, agentShows("Synced", "True", ""))
		})
	}
}
