package e2e

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// stuck creates an Application whose syncs run until they are terminated.
func stuck(t testing.TB, w *testEnv, mode, name string) commanded {
	t.Helper()
	agent := w.agents[mode]
	c := commanded{name: mode + "/" + name, hub: w.hub.app(mode, name), spoke: agent.spoke.app(lab.ArgoCDNamespace, name)}
	spec := appSpec{repo: w.RepoURL("hooks"), path: "stuck", destination: mode, namespace: name}
	c.owner = c.hub
	if mode == "autonomous" {
		spec.destination, c.owner = "in-cluster", c.spoke
	}
	c.owner.create(t, spec.object())
	c.hub.becomes(t, outOfSync)
	return c
}

// localSync is an operation that a user of the spoke sets.
const localSync = `{"operation":{"initiatedBy":{"username":"local"},"sync":{"revision":"main","syncOptions":["CreateNamespace=true"]}}}`

// byLocalUser requires that the running operation is localSync. Two operations can start in the same second, so only
// the initiator distinguishes them.
func byLocalUser(u *unstructured.Unstructured) error {
	return field("operation.initiatedBy.username", "local")(u)
}

func phase(is string) condition { return field("status.operationState.phase", is) }

// operating requires a running operation.
func operating(u *unstructured.Unstructured) error {
	if noOperation(u) == nil {
		return fmt.Errorf("there is no operation")
	}
	return nil
}

func TestTerminate_StopsRunningSync(t *testing.T) {
	for _, mode := range []string{"managed", "autonomous"} {
		t.Run(mode, func(t *testing.T) {
			w := shared(t)
			app := stuck(t, w, mode, "stuck")
			w.argocd(t, "app", "sync", app.name, "--async")
			app.hub.becomes(t, phase("Running"), operating)
			w.argocd(t, "app", "terminate-op", app.name)
			app.spoke.becomes(t, noOperation, phase("Failed"))
			app.hub.becomes(t, noOperation, phase("Failed"))
		})
	}
}

func TestTerminate_StopsSyncOfSpoke(t *testing.T) {
	w := shared(t)
	app := stuck(t, w, "managed", "stuck-local")
	app.spoke.patch(t, localSync)
	app.hub.becomes(t, phase("Running"), operating)
	w.argocd(t, "app", "terminate-op", app.name)
	app.hub.becomes(t, noOperation, phase("Failed"))
	app.spoke.is(t, noOperation, phase("Failed"))
}

func TestTerminate_NeverStopsLaterOperation(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	app := stuck(t, w, "managed", "stuck-later")
	w.argocd(t, "app", "sync", app.name, "--async")
	app.hub.becomes(t, phase("Running"), operating)

	if err := agent.link.Cut(faultproxy.Refuse); err != nil {
		t.Fatal(err)
	}
	agent.disconnected(t)
	w.argocd(t, "app", "terminate-op", app.name)
	app.hub.is(t, phase("Terminating"))

	// In the meantime a user of the spoke terminates that sync and starts another. If the Argo CD controller writes the
	// state at the same time, it overwrites the request, so it is repeated.
	await(t, "the sync to end on the spoke", func() error {
		now := app.spoke.get(t)
		if at(now, "status.operationState.phase") == "Running" {
			app.spoke.patch(t, `{"status":{"operationState":{"phase":"Terminating"}}}`)
		}
		return errors.Join(noOperation(now), phase("Failed")(now))
	})
	app.spoke.patch(t, localSync)
	app.spoke.becomes(t, phase("Running"), operating, byLocalUser)

	if err := agent.link.Restore(); err != nil {
		t.Fatal(err)
	}
	app.hub.becomes(t, phase("Running"), operating, byLocalUser)
	w.argocd(t, "app", "get", app.name, "--refresh") // runs after all pending work
	app.spoke.is(t, phase("Running"), operating, byLocalUser)

	w.argocd(t, "app", "terminate-op", app.name)
	app.hub.becomes(t, noOperation, phase("Failed"))
}
