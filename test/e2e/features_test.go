package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

// ranHook requires that the last sync ran a hook of a phase.
func ranHook(phase, name string) condition {
	return func(u *unstructured.Unstructured) error {
		results, _, _ := unstructured.NestedSlice(u.Object, "status", "operationState", "syncResult", "resources")
		for _, r := range results {
			if one, ok := r.(map[string]any); ok && one["name"] == name && one["hookType"] == phase && one["hookPhase"] == "Succeeded" {
				return nil
			}
		}
		return fmt.Errorf("no hook %s of phase %s has run: %v", name, phase, results)
	}
}

// Sync hooks of a managed Application run on the workload cluster, and the hub shows their results.
func TestHooks_SyncHooksRunOnManagedAgent(t *testing.T) {
	w := shared(t)
	app := w.hub.app("managed", "sync-hooks")
	app.create(t, appSpec{repo: w.RepoURL("hooks"), path: "waves", destination: "managed", namespace: "sync-hooks"}.object())
	app.becomes(t, outOfSync)
	w.argocd(t, "app", "sync", "managed/sync-hooks")
	app.becomes(t, noOperation, phase("Succeeded"), ranHook("PreSync", "migrate"), ranHook("PostSync", "announce"))
}

// A PreDelete hook of a managed Application runs before its resources are deleted.
func TestHooks_PreDeleteHookRunsOnManagedAgent(t *testing.T) {
	w := shared(t)
	if _, out, ok := strings.Cut(w.argocd(t, "version", "--client", "--short"), "argocd: v"); !ok || strings.HasPrefix(out, "3.2.") {
		t.Skip("Argo CD runs PreDelete hooks since v3.3")
	}
	repo, url := w.repository(t, gitserver.SamplePlain)
	commit(t, repo, map[string]string{"hook.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: pre-delete-ran\n  annotations:\n    argocd.argoproj.io/hook: PreDelete\n"})
	name := "pre-delete"
	app, replica := w.hub.app("managed", name), w.managed().spoke.app(lab.ArgoCDNamespace, name)
	app.create(t, appSpec{repo: url, destination: "managed", namespace: name, automated: true, cascade: true}.object())
	app.becomes(t, synced)
	replica.becomes(t, func(u *unstructured.Unstructured) error {
		if !slices.ContainsFunc(u.GetFinalizers(), func(f string) bool { return strings.HasPrefix(f, "pre-delete-finalizer.argocd.argoproj.io") }) {
			return fmt.Errorf("it has no finalizer of a PreDelete hook: %v", u.GetFinalizers())
		}
		return nil
	})
	ran := w.managed().spoke.object(configMaps, name, "pre-delete-ran")
	ran.isAbsent(t)
	app.delete(t)
	ran.becomes(t)
	w.managed().spoke.object(configMaps, name, "guestbook").goes(t)
	replica.goes(t)
	app.goes(t)
}

// Other programs write Applications of the hub. Their annotations and changes reach the workload cluster.
func TestIntegrations_WriteApplicationsOfManagedAgent(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	t.Run("Kargo", func(t *testing.T) {
		app := newCommanded(t, w, "managed", "kargo")
		// Kargo updates the revision and starts the sync in one patch.
		second := commit(t, app.repo, map[string]string{"configmap.yaml": configMapManifest("guestbook", "promoted")})
		app.hub.patch(t, fmt.Sprintf(`{"metadata":{"annotations":{"kargo.akuity.io/authorized-stage":"team:production","argocd.argoproj.io/refresh":"hard"}},
			"spec":{"source":{"targetRevision":%[1]q}},"operation":{"initiatedBy":{"username":"kargo-controller","automated":true},
			"info":[{"name":"Reason","value":"Promotion triggered a sync of this Application resource."},{"name":"kargo.akuity.io/promotion","value":"p1"}],
			"sync":{"revisions":[%[1]q],"revision":%[1]q,"syncOptions":["CreateNamespace=true"]}}}`, second))
		app.hub.becomes(t, noOperation, phase("Succeeded"), synced, field("status.operationState.syncResult.revision", second),
			field("status.operationState.operation.initiatedBy.username", "kargo-controller"), annotation("argocd.argoproj.io/refresh", ""))
		app.workload.is(t, field("data.GREETING", "promoted"))
		app.spoke.is(t, annotation("kargo.akuity.io/authorized-stage", "team:production"), field("spec.source.targetRevision", second))
	})
	t.Run("Image Updater", func(t *testing.T) {
		const list = "argocd-image-updater.argoproj.io/image-list"
		name := "image-updater"
		app := w.hub.app("managed", name)
		app.create(t, appSpec{repo: w.RepoURL("kustomize"), path: "overlays/staging", destination: "managed", namespace: name, automated: true,
			annotations: map[string]string{list: "app=guestbook:~1"}}.object())
		app.becomes(t, synced)
		spoke.app(lab.ArgoCDNamespace, name).is(t, annotation(list, "app=guestbook:~1"))
		app.patch(t, `{"spec":{"source":{"kustomize":{"images":["guestbook:1.9"]}}}}`)
		await(t, "the new image", func() error {
			ctx, cancel := call()
			defer cancel()
			found, err := spoke.object(deployments, name, "").in().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, d := range found.Items {
				if text := string(toJSON(t, d.Object["spec"])); strings.Contains(text, "guestbook:1.9") {
					return nil
				}
			}
			return fmt.Errorf("%d Deployments, none with the image", len(found.Items))
		})
		app.becomes(t, synced)
	})
}
