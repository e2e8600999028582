//nolint:thelper // these functions are the tests themselves: a failure is to be shown in them
package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

const deletionApproved = "argocd.argoproj.io/deletion-approved"

func guardedManifest(name string) string {
	return strings.Replace(configMapManifest(name, "guarded"), "metadata:\n", "metadata:\n  annotations:\n    argocd.argoproj.io/sync-options: Prune=confirm,Delete=confirm\n", 1)
}

// waitsForApproval requires a sync that waits until a user approves that it prunes.
func waitsForApproval(u *unstructured.Unstructured) error {
	if message := at(u, "status.operationState.message"); at(u, "status.operationState.phase") != "Running" || !strings.Contains(message, "pruning confirmation") {
		return fmt.Errorf("the operation is %s: %s", at(u, "status.operationState.phase"), message)
	}
	return nil
}

// A user approves on the hub what Argo CD deletes only after an approval. Each approval is for one sync or deletion, also
// if the agent is disconnected when the user gives it.
func TestApproval_OnHubApprovesOneDeletion(t *testing.T) {
	inBothModes(t, "approval", func(t *testing.T, w *testEnv, app commanded) {
		agent := w.agents[strings.Split(app.name, "/")[0]]
		guarded := func(name string) object { return agent.spoke.object(configMaps, app.target, name) }
		approve := func() {
			// An approval has whole seconds. One in the second of the last approval would not change the Application.
			await(t, "the second of the last approval to end", func() error {
				if last := app.hub.get(t).GetAnnotations()[deletionApproved]; last == time.Now().UTC().Format(time.RFC3339) {
					return fmt.Errorf("it is still %s", last)
				}
				return nil
			})
			w.argocd(t, "app", "confirm-deletion", app.name)
		}
		sync := func() { w.argocd(t, "app", "sync", app.name, "--prune") }
		commit(t, app.repo, map[string]string{"one.yaml": guardedManifest("one"), "two.yaml": guardedManifest("two"), "three.yaml": guardedManifest("three")})
		sync()
		guarded("one").is(t)

		commit(t, app.repo, nil, gitserver.Deleting("one.yaml"))
		w.argocd(t, "app", "sync", app.name, "--prune", "--async")
		app.hub.becomes(t, waitsForApproval)
		if err := agent.link.Cut(faultproxy.Refuse); err != nil {
			t.Fatal(err)
		}
		agent.disconnected(t)
		approve()
		guarded("one").is(t)
		if err := agent.link.Restore(); err != nil {
			t.Fatal(err)
		}
		guarded("one").goes(t)
		app.hub.becomes(t, noOperation, phase("Succeeded"))
		first := app.spoke.get(t)
		if written := first.GetAnnotations()[deletionApproved]; written != at(first, "status.operationState.startedAt") {
			t.Errorf("the approval on the workload cluster has the time %q, the sync started at %q", written, at(first, "status.operationState.startedAt"))
		}

		commit(t, app.repo, nil, gitserver.Deleting("two.yaml"))
		w.argocd(t, "app", "sync", app.name, "--prune", "--async")
		app.hub.becomes(t, waitsForApproval)
		w.argocd(t, "app", "get", app.name, "--refresh") // runs after all pending work
		app.spoke.is(t, waitsForApproval, annotation(deletionApproved, first.GetAnnotations()[deletionApproved]))
		guarded("two").is(t)
		app.hub.patch(t, `{"metadata":{"annotations":{"`+deletionApproved+`":"2099-01-01T00:00:00Z"}}}`)
		app.hub.becomes(t, shows("AgentApprovalWarning", "is in the future"))
		guarded("two").is(t)
		approve()
		guarded("two").goes(t)
		app.hub.becomes(t, noOperation, phase("Succeeded"), showsNo("AgentApprovalWarning"))

		if app.owner == app.hub {
			w.argocd(t, "app", "delete", app.name, "--yes", "--wait=false")
		} else {
			app.owner.delete(t)
			app.hub.becomes(t, shows("AgentDeletingWarning", "deletes this Application"))
		}
		app.spoke.becomes(t, func(u *unstructured.Unstructured) error {
			if u.GetDeletionTimestamp() == nil {
				return fmt.Errorf("it is not being deleted")
			}
			return nil
		})
		w.argocd(t, "app", "get", app.name, "--refresh")
		guarded("three").is(t)
		approve()
		guarded("three").goes(t)
		app.spoke.goes(t)
		app.hub.goes(t)
	})
}
