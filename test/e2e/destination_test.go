//nolint:thelper // these functions are the tests themselves: a failure is to be shown in them
package e2e

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// TestDestinationMapping has a hub with destination mapping and two managed agents. One of them is not configured for it.
func TestDestinationMapping(t *testing.T) {
	l := lab.New(t, lab.Options{Spokes: []lab.Spoke{{Name: "east", Role: lab.Managed}, {Name: "west", Role: lab.Managed}}})
	api, err := l.Hub().FaultyAPI() // counts the writes of the principal
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	for _, spoke := range []string{"east", "west"} {
		allNamespaces(t, l.Cluster(spoke))
		labelNodes(t, l.Cluster(spoke), "topology.kubernetes.io/region", "region-of-"+spoke)
	}
	flags := []string{"--create-namespace", "--allowed-namespaces", "teams"}
	w := newEnv(t, setup{lab: l, kubeconfig: api.Kubeconfig, flags: []string{"--destination-based-mapping", "--allowed-namespaces", "teams"},
		agents: []agentSetup{{name: "east", cluster: "east", mode: "managed", flags: append(flags, "--destination-based-mapping", "--facts", "example.com/tier=edge")}, {name: "west", cluster: "west", mode: "managed", flags: flags}}})
	t.Cleanup(w.close)
	w.hub.ensureNamespace(t, "teams")
	w.start(t)
	w.agents["west"].waitForLog(t, 0, "Following the mapping of the hub")

	t.Run("an ApplicationSet on the hub fans out without a write loop", func(t *testing.T) { fansOut(t, w, api) })
	t.Run("an ApplicationSet selects clusters by their facts", func(t *testing.T) { selectsByFacts(t, w) })
	t.Run("an ApplicationSet with RollingSync waits for a disconnected agent", func(t *testing.T) { rollsOut(t, w, api) })
	t.Run("an Application keeps its namespace", func(t *testing.T) { keepsItsNamespace(t, w) })
	t.Run("an Application with a new destination moves without its workloads", func(t *testing.T) { moves(t, w) })
	t.Run("sporadic API server errors lose nothing", func(t *testing.T) { survivesFaults(t, w, api) })
	t.Run("live access", func(t *testing.T) { liveByDestination(t, w) })
	t.Run("a later label selector removes other Applications", func(t *testing.T) { selects(t, w) })
}

// allNamespaces grants an agent the permissions for destination mapping, from the install manifests.
func allNamespaces(t testing.TB, c *lab.Cluster) {
	t.Helper()
	manifest, err := os.ReadFile("../../install/kustomize/agent/rbac-all-namespaces.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), string(manifest)); err != nil {
		t.Fatal(err)
	}
}

func fansOut(t *testing.T, w *testEnv, api *lab.FaultyAPI) {
	set := w.hub.object(appSets, lab.ArgoCDNamespace, "fan")
	set.create(t, appSetOf(w.plain("{{.name}}", "fan"), "east", "west"))
	for _, name := range []string{"east", "west"} {
		w.hub.app(lab.ArgoCDNamespace, name).becomes(t, synced, healthyApp, noOperation)
		w.agents[name].spoke.app(lab.ArgoCDNamespace, name).is(t, synced, healthyApp)
		w.agents[name].spoke.object(deployments, "fan", "guestbook").is(t)
	}
	w.agents["west"].spoke.app(lab.ArgoCDNamespace, "east").isAbsent(t)

	noWriteLoop(t, w, api, set, "east")

	set.delete(t)
	for _, name := range []string{"east", "west"} {
		w.agents[name].spoke.app(lab.ArgoCDNamespace, name).goes(t)
	}
}

// labelNodes sets a label on all nodes of a cluster.
func labelNodes(t testing.TB, c *lab.Cluster, key, value string) {
	t.Helper()
	nodes := c.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	all, err := nodes.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) == 0 {
		t.Fatalf("%d nodes: %v", len(all.Items), err)
	}
	for _, n := range all.Items {
		change := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
		if _, err := nodes.Patch(t.Context(), n.GetName(), types.MergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// selectsByFacts checks that facts become labels only if the Agent allows them, and that an ApplicationSet can select on
// them. A restart of the agent without a fact does not remove its label, and so no Application.
func selectsByFacts(t *testing.T, w *testEnv) {
	const region, tier, version = "topology.kubernetes.io/region", "example.com/tier", "argocd.argoproj.io/kubernetes-version"
	for _, name := range []string{"east", "west"} {
		w.hub.object(agents, lab.ArgoCDNamespace, name).patch(t, `{"spec":{"cluster":{"facts":["`+region+`","`+version+`","`+tier+`"]}}}`)
		w.hub.secret("cluster-"+name).becomes(t, label(region, "region-of-"+name))
	}
	east := w.hub.secret("cluster-east").becomes(t, label(tier, "edge"))
	if v := east.GetLabels()[version]; !regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`).MatchString(v) {
		t.Errorf("%s is %q", version, v)
	}
	w.hub.secret("cluster-west").is(t, label(tier, ""))

	set := w.hub.object(appSets, lab.ArgoCDNamespace, "facts")
	content := appSetOf(w.plain("{{.name}}", "facts"))
	content["spec"].(map[string]any)["generators"] = []any{map[string]any{"clusters": map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{region: "region-of-east"}}}}}
	set.create(t, content)
	app := w.hub.app(lab.ArgoCDNamespace, "east").becomes(t, synced, healthyApp)
	w.hub.app(lab.ArgoCDNamespace, "west").isAbsent(t)

	labelNodes(t, w.agents["east"].spoke.Cluster, region, "")
	w.agents["east"].restart(t)
	w.hub.object(agents, lab.ArgoCDNamespace, "east").becomes(t, truth("status.connected", true))
	w.hub.secret("cluster-east").is(t, label(region, "region-of-east"))
	if now := w.hub.app(lab.ArgoCDNamespace, "east").get(t); now.GetUID() != app.GetUID() {
		t.Error("the Application was deleted and created again")
	}

	w.hub.object(agents, lab.ArgoCDNamespace, "west").patch(t, `{"spec":{"cluster":{"facts":["`+version+`"]}}}`)
	w.hub.secret("cluster-west").becomes(t, label(region, ""))
	set.delete(t)
	w.agents["east"].spoke.app(lab.ArgoCDNamespace, "east").goes(t)
}

func keepsItsNamespace(t *testing.T, w *testEnv) {
	app := w.hub.app("teams", "housed")
	app.create(t, w.plain("east", "housed").object())
	app.becomes(t, synced, healthyApp)
	w.agents["east"].spoke.app("teams", "housed").is(t, synced)
	w.agents["east"].spoke.app(lab.ArgoCDNamespace, "housed").isAbsent(t)
	w.argocd(t, "app", "get", "teams/housed", "--refresh")
}

func moves(t *testing.T, w *testEnv) {
	app := w.hub.app(lab.ArgoCDNamespace, "mover")
	spec := w.plain("east", "mover")
	spec.cascade = true
	app.create(t, spec.object())
	app.becomes(t, synced, healthyApp)
	app.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.destination.name", "west") })
	w.agents["east"].spoke.app(lab.ArgoCDNamespace, "mover").goes(t)
	w.agents["east"].spoke.object(deployments, "mover", "guestbook").is(t)
	w.agents["west"].spoke.app(lab.ArgoCDNamespace, "mover").becomes(t, synced, healthyApp)
	app.becomes(t, synced, healthyApp, func(u *unstructured.Unstructured) error {
		if at(u, "spec.destination.name") != "west" {
			return fmt.Errorf("it is not where it went")
		}
		return nil
	})
}

func survivesFaults(t *testing.T, w *testEnv, api *lab.FaultyAPI) {
	writes := faultproxy.Match{Verbs: faultproxy.WriteVerbs, Path: regexp.MustCompile(`/applications`)}
	defer api.RemoveAll()
	for _, fault := range []faultproxy.Action{faultproxy.Conflict(), faultproxy.InternalError(), faultproxy.Unavailable(), faultproxy.TooManyRequests(1), faultproxy.Abort()} {
		api.Add(faultproxy.Rule{Match: writes, Do: fault, Times: 2})
	}
	app := w.hub.app(lab.ArgoCDNamespace, "tried")
	app.create(t, w.plain("west", "tried").object())
	api.ExpireWatches(faultproxy.Match{})
	app.edit(t, func(u *unstructured.Unstructured) { setLabel(u, "seen", "after-410") })
	w.agents["west"].spoke.app(lab.ArgoCDNamespace, "tried").becomes(t, label("seen", "after-410"))
	api.CutWatches(faultproxy.Match{})
	app.edit(t, func(u *unstructured.Unstructured) { setLabel(u, "seen", "after-a-cut") })
	w.agents["west"].spoke.app(lab.ArgoCDNamespace, "tried").becomes(t, label("seen", "after-a-cut"))
	app.becomes(t, synced, healthyApp)
}

func selects(t *testing.T, w *testEnv) {
	spec := w.plain("east", "chosen")
	spec.cascade = true
	other := w.hub.app(lab.ArgoCDNamespace, "not-chosen")
	other.create(t, spec.object())
	spec.labels, spec.namespace = map[string]string{"tier": "gold"}, "gold"
	chosen := w.hub.app(lab.ArgoCDNamespace, "chosen")
	chosen.create(t, spec.object())
	chosen.becomes(t, synced, healthyApp)
	other.becomes(t, synced, healthyApp)

	w.hub.project("default").patch(t, `{"metadata":{"labels":{"tier":"gold"}}}`) // it must reach the agent too
	w.principal.args = append(w.principal.args, "--label-selector", "tier=gold")
	w.principal.restart(t)
	spoke := w.agents["east"].spoke
	spoke.app(lab.ArgoCDNamespace, "not-chosen").goes(t)
	spoke.object(deployments, "chosen", "guestbook").is(t) // its workloads stay
	spoke.app(lab.ArgoCDNamespace, "chosen").is(t)
}
