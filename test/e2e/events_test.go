package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// Events that the application controller of a workload cluster writes for an Application show on the hub, once.
func TestEvents_OfAgentsApplicationsShowOnHub(t *testing.T) {
	inBothModes(t, "events", func(t *testing.T, w *testEnv, app commanded) {
		t.Helper()
		agent := w.agents[app.hub.namespace]
		project, _, _ := unstructured.NestedString(app.hub.get(t).Object, "spec", "project")
		s := &subject{w: w, agent: agent, hub: app.hub, project: project, workload: app.target}
		w.argocd(t, "app", "sync", app.name)
		before := eventsOnHub(t, s, "OperationCompleted")
		for _, e := range before {
			if e.ReportingController != "argocd-agent/"+app.hub.namespace || e.Source.Component == "" || e.Type != corev1.EventTypeNormal {
				t.Errorf("%+v", e)
			}
		}

		// A principal and an agent that have forgotten everything do not write them again.
		agent.restart(t)
		w.principal.restart(t)
		w.connected(t)
		commit(t, app.repo, map[string]string{"configmap.yaml": configMapManifest("guestbook", "again")})
		w.argocd(t, "app", "sync", app.name)
		await(t, "the Events of the second sync", func() error {
			completed := 0
			for _, e := range eventsOnHub(t, s, "OperationCompleted") {
				if e.Reason == "OperationCompleted" {
					completed++
				}
			}
			if completed < 2 {
				return errors.New("only those of the first")
			}
			return nil
		})
		after := eventsOnHub(t, s, "OperationCompleted")
		for name, e := range before {
			if now, ok := after[name]; !ok || now.ResourceVersion != e.ResourceVersion {
				t.Errorf("Event %s %q was written again: %s became %s", name, e.Message, e.ResourceVersion, now.ResourceVersion)
			}
		}
		ctx, cancel := call()
		defer cancel()
		there, err := agent.spoke.Client().CoreV1().Events(lab.ArgoCDNamespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + app.spoke.name})
		if err != nil {
			t.Fatal(err)
		}
		if len(after) > len(there.Items) {
			t.Errorf("%d Events on the hub, %d on the workload cluster", len(after), len(there.Items))
		}
		uid := string(app.hub.get(t).GetUID())
		found, err := w.hub.Client().CoreV1().Events(app.hub.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range found.Items {
			if e.InvolvedObject.Name == app.hub.name && (string(e.InvolvedObject.UID) != uid || e.InvolvedObject.Kind != "Application") {
				t.Errorf("Event %s refers to %+v", e.Name, e.InvolvedObject)
			}
		}
	})
}

// eventsOnHub returns the Events of agents that argocd-server shows for an Application, by name. It waits for one with a
// reason.
func eventsOnHub(t *testing.T, s *subject, reason string) map[string]corev1.Event {
	t.Helper()
	found := map[string]corev1.Event{}
	await(t, "an Event "+reason, func() error {
		text, err := s.try(http.MethodGet, "/events", nil, nil)
		if err != nil {
			return err
		}
		var list corev1.EventList
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return err
		}
		shown := false
		for _, e := range list.Items {
			if e.Annotations["argocd-agent.argoproj-labs.io/agent-name"] != "" {
				found[e.Name] = e
				shown = shown || e.Reason == reason
			}
		}
		if !shown {
			return fmt.Errorf("argocd-server shows %s", text)
		}
		return nil
	})
	return found
}
