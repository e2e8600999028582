//nolint:thelper // these functions are the tests themselves: a failure is to be shown in them
package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// rollsOut updates two clusters in steps with the real ApplicationSet controller. The first of them is disconnected: the
// second must wait until it is back.
func rollsOut(t *testing.T, w *testEnv, api *lab.FaultyAPI) {
	east, west := w.hub.app(lab.ArgoCDNamespace, "east"), w.hub.app(lab.ArgoCDNamespace, "west")
	for _, name := range []string{"east", "west"} {
		w.hub.agent(name).patch(t, `{"spec":{"disconnectedAfter":"2s"}}`)
		t.Cleanup(func() { w.hub.agent(name).patch(t, `{"spec":{"disconnectedAfter":null}}`) })
	}
	repo, url := w.repository(t, "")
	first := commit(t, repo, map[string]string{"greeting.yaml": configMapManifest("greeting", "one")})
	set := w.hub.object(appSets, lab.ArgoCDNamespace, "rolling")
	set.create(t, inSteps(appSetOf(appSpec{repo: url, destination: "{{.name}}", namespace: "rolling", automated: true}, "east", "west"), "east", "west"))
	for _, app := range []object{east, west} {
		app.becomes(t, synced, healthyApp, noOperation, field("status.sync.revision", first))
	}
	set.becomes(t, rolledOut("east", "Healthy"), rolledOut("west", "Healthy"))

	link := w.agents["east"].link
	if err := link.Cut(faultproxy.Refuse); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Restore() })
	east.becomes(t, shows("AgentDisconnected", "Agent east has been disconnected since "), shows("AgentLastHealth", `"status":"Healthy"`),
		field("status.health.status", "Unknown"), synced, field("status.sync.revision", first))
	west.is(t, healthyApp, showsNo("AgentDisconnected"))
	set.becomes(t, rolledOut("east", "Waiting", "Pending", "Progressing"))
	noWriteLoop(t, w, api, set, "east")

	second := commit(t, repo, map[string]string{"greeting.yaml": configMapManifest("greeting", "two")})
	w.argocd(t, "app", "get", "argocd/west", "--refresh")
	west.becomes(t, outOfSync, field("status.sync.revision", second))
	set.becomes(t, rolledOut("west", "Waiting"))
	noWriteLoop(t, w, api, set, "west")
	set.is(t, rolledOut("east", "Waiting", "Pending", "Progressing"), rolledOut("west", "Waiting"))
	west.is(t, outOfSync, noOperation)

	if err := link.Restore(); err != nil {
		t.Fatal(err)
	}
	w.agents["east"].connected(t)
	w.argocd(t, "app", "get", "argocd/east", "--refresh")
	for _, app := range []object{east, west} {
		app.becomes(t, synced, healthyApp, noOperation, field("status.sync.revision", second), showsNo("AgentDisconnected"), showsNo("AgentLastHealth"), withoutRevisions)
	}
	set.becomes(t, rolledOut("east", "Healthy"), rolledOut("west", "Healthy"))
	set.delete(t)
	for _, name := range []string{"east", "west"} {
		w.agents[name].spoke.app(lab.ArgoCDNamespace, name).goes(t)
	}
}

// inSteps makes an ApplicationSet update one cluster after the other.
func inSteps(set map[string]any, clusters ...string) map[string]any {
	var steps []any
	for _, name := range clusters {
		steps = append(steps, map[string]any{"matchExpressions": []any{map[string]any{"key": "cluster", "operator": "In", "values": []any{name}}}})
	}
	u := unstructured.Unstructured{Object: set}
	for _, part := range []struct {
		value any
		path  []string
	}{
		{map[string]any{"type": "RollingSync", "rollingSync": map[string]any{"steps": steps}}, []string{"spec", "strategy"}},
		{map[string]any{"cluster": "{{.name}}"}, []string{"spec", "template", "metadata", "labels"}},
	} {
		if err := unstructured.SetNestedField(u.Object, part.value, part.path...); err != nil {
			panic(err)
		}
	}
	return set
}

// rolledOut checks how far an ApplicationSet is with an Application.
func rolledOut(app string, states ...string) condition {
	return func(u *unstructured.Unstructured) error {
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "applicationStatus")
		for _, entry := range list {
			if one, ok := entry.(map[string]any); ok && one["application"] == app {
				if slices.Contains(states, fmt.Sprint(one["status"])) {
					return nil
				}
				return fmt.Errorf("%s is %v, want %v", app, one, states)
			}
		}
		return fmt.Errorf("nothing is known of %s", app)
	}
}

func withoutRevisions(u *unstructured.Unstructured) error {
	if list, found, _ := unstructured.NestedSlice(u.Object, "status", "sync", "revisions"); found {
		return fmt.Errorf("it has revisions %v", list)
	}
	return nil
}

// noWriteLoop lets the ApplicationSet controller reconcile again. If it and the principal disagreed, both would write each
// time. Writes by Argo CD's own comparisons end.
func noWriteLoop(t *testing.T, w *testEnv, api *lab.FaultyAPI, set object, app string) {
	const refresh = "argocd.argoproj.io/application-set-refresh"
	writesOfApps := faultproxy.Match{Verbs: faultproxy.WriteVerbs, Path: regexp.MustCompile(`/applications/`)}
	await(t, "the ApplicationSet controller to compare without anybody writing", func() error {
		before := w.hub.app(lab.ArgoCDNamespace, app).get(t)
		api.ResetCounts()
		set.patch(t, `{"metadata":{"annotations":{"`+refresh+`":"true"}}}`)
		set.becomes(t, annotation(refresh, ""))
		after := w.hub.app(lab.ArgoCDNamespace, app).get(t)
		if writes := api.Count(writesOfApps); writes > 0 || after.GetResourceVersion() != before.GetResourceVersion() {
			return fmt.Errorf("%d writes of ours, and the Application went from %s to %s", writes, before.GetResourceVersion(), after.GetResourceVersion())
		}
		return nil
	})
}
