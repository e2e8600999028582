package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

// lostHub is a hub that loses everything. Its identity is not the UID of its cluster, so that the identity is lost too.
type lostHub struct {
	*testEnv
	empty string // snapshot of etcd
	reach []string
}

const lostIdentity = "11111111-2222-3333-4444-555555555555"

func newLostHub(t *testing.T, s setup) *lostHub {
	t.Helper()
	w := newEnv(t, s)
	t.Cleanup(w.close)
	port := w.serveSearch(t)
	h := &lostHub{w, filepath.Join(t.TempDir(), "hub.db"), []string{"--server", "127.0.0.1:" + port, "--server-ca", w.pki.file}}
	if err := w.hub.Snapshot(t.Context(), h.empty); err != nil {
		t.Fatal(err)
	}
	// The agents must know a later revision than the empty hub reaches during the test. The lab restores the UID of the cluster.
	configMaps := w.hub.Client().CoreV1().ConfigMaps("default")
	for i := range 1000 {
		history := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("history-", i)}}
		if _, err := configMaps.Create(t.Context(), history, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.hub.configMap("argocd-agent-hub").create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"data": map[string]any{"identity": lostIdentity, "role": "active", "generation": "1"}})
	w.start(t)
	return h
}

// lose replaces the content of the hub by that before the first agent.
func (h *lostHub) lose(t *testing.T) {
	t.Helper()
	h.principal.kill(t)
	if err := h.hub.Restore(t.Context(), h.empty); err != nil {
		t.Fatal(err)
	}
	h.principal.start(t)
	h.connected(t)
}

func (h *lostHub) rebuild(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return h.hub.tryCtl(t, append(append([]string{"hub", "rebuild"}, h.reach...), args...)...)
}

// plan waits for a plan without differences.
func (h *lostHub) plan(t *testing.T) (plan product.RebuildPlan) {
	t.Helper()
	await(t, "a plan without differences", func() error {
		out, err := h.rebuild(t, "-o", "json")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return json.Unmarshal([]byte(out), &plan)
	})
	return plan
}

// actionsOf returns what a plan does, by object.
func actionsOf(p product.RebuildPlan) map[string]string {
	out := map[string]string{}
	for _, o := range p.Objects {
		out[o.Kind+" "+o.Namespace+"/"+o.Name] = o.Action
	}
	return out
}

// apply creates the objects. The principal ends because its identity changes, and is started again as Kubernetes does.
func (h *lostHub) apply(t *testing.T) {
	t.Helper()
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := h.rebuild(t, "--apply", "--yes")
		done <- result{out, err}
	}()
	h.principal.wait(t)
	h.principal.start(t)
	if got := <-done; got.err != nil {
		t.Fatalf("hub rebuild --apply: %v\n%s", got.err, got.out)
	}
}

// content returns the parts of an object that users write.
func content(u *unstructured.Unstructured) map[string]any {
	out := map[string]any{"spec": u.Object["spec"], "data": u.Object["data"], "labels": u.GetLabels(), "finalizers": u.GetFinalizers()}
	annotations := maps.Clone(u.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "argocd-agent.argoproj-labs.io/") || key == "argocd.argoproj.io/source-uid" || key == "argocd.argoproj.io/principal-uid"
	})
	if len(annotations) > 0 {
		out["annotations"] = annotations
	}
	return out
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// written identifies what is written to an object of a workload cluster, except its status.
func written(t *testing.T, o object) string {
	t.Helper()
	u := o.get(t)
	if u == nil {
		return "absent"
	}
	generation := u.GetGeneration()
	if o.kind == applications {
		generation = 0 // a status changes it
	}
	return jsonOf(t, []any{u.GetUID(), generation, u.GetAnnotations(), content(u)})
}

func TestRebuild_RestoresEveryObject(t *testing.T) {
	t.Parallel()
	h := newLostHub(t, setup{lab: lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{
		{Name: "managed", Role: lab.Managed}, {Name: "second", Role: lab.Managed}, {Name: "autonomous", Role: lab.Autonomous}}}),
		agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}, {name: "second", cluster: "second", mode: "managed"},
			{name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	first, second := h.agents["managed"].spoke, h.agents["second"].spoke
	project := func(spec string) map[string]any {
		var object map[string]any
		if err := json.Unmarshal([]byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"labels":{"team":"x"}},"spec":`+spec+`}`), &object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	h.hub.project("shop").create(t, project(`{"description":"d","sourceRepos":["https://git.example/*"],"destinations":[{"name":"managed","namespace":"x"},{"name":"second","namespace":"y-*"}],
		"sourceNamespaces":["managed","second"],"clusterResourceWhitelist":[{"group":"","kind":"Namespace"}],"syncWindows":[{"kind":"deny","schedule":"0 0 1 1 *","duration":"1h","clusters":["second"]}]}`))
	h.hub.project("west").create(t, project(`{"sourceRepos":["*"],"destinations":[{"name":"second","namespace":"*"}],"sourceNamespaces":["second"],"roles":[{"name":"lost"}]}`))
	h.hub.app("managed", "web").create(t, appSpec{repo: "https://git.example/x", project: "shop", destination: "managed", namespace: "x", cascade: true, automated: true,
		labels: map[string]string{"l": "1"}, annotations: map[string]string{"note": "n"}}.object())
	h.hub.app("managed", "plain").create(t, simple("managed"))
	h.hub.app("second", "web").create(t, appSpec{repo: "https://git.example/x", project: "shop", destination: "second", namespace: "y-1"}.object())
	h.hub.app("second", "other").create(t, appSpec{repo: "https://git.example/x", project: "west", destination: "second", namespace: "z"}.object())
	h.hub.secret("repo").create(t, map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"labels": map[string]any{"argocd.argoproj.io/secret-type": "repository"}},
		"stringData": map[string]any{"url": "https://git.example/x", "project": "shop", "password": "p"}})
	keys := h.hub.configMap("argocd-gpg-keys-cm")
	if keys.get(t) == nil {
		keys.create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap"})
	}
	keys.patch(t, `{"data":{"4AEE18F83AFDEB23":"key"}}`)
	own := h.agents["autonomous"].spoke
	own.project("mine").create(t, project(`{"sourceRepos":["*"],"destinations":[{"server":"https://kubernetes.default.svc","namespace":"*"}]}`))
	own.app(lab.ArgoCDNamespace, "mine").create(t, appSpec{repo: "https://git.example/x", project: "mine", destination: "in-cluster", namespace: "x"}.object())

	onHub := []object{h.hub.app("managed", "web"), h.hub.app("managed", "plain"), h.hub.app("second", "web"), h.hub.app("second", "other"), h.hub.secret("repo"), keys, h.hub.project("shop"), h.hub.project("west")}
	replicas := []object{own.app(lab.ArgoCDNamespace, "mine")}
	for site, names := range map[*clusterClient][]string{first: {"web", "plain"}, second: {"web", "other"}} {
		for _, name := range names {
			replicas = append(replicas, site.app(lab.ArgoCDNamespace, name))
		}
		replicas = append(replicas, site.project("shop"), site.project("default"), site.secret("repo"), site.configMap("argocd-gpg-keys-cm"))
	}
	replicas = append(replicas, second.project("west"))
	for _, o := range replicas {
		o.becomes(t)
	}
	returned := h.hub.app("autonomous", "mine")
	returned.becomes(t)
	before, contents := map[string]string{}, map[string]string{}
	for _, o := range replicas {
		before[o.String()] = written(t, o)
	}
	for _, o := range onHub {
		u := o.get(t).DeepCopy()
		if o.kind == appProjects {
			unstructured.RemoveNestedField(u.Object, "spec", "roles") // agents do not get them
		}
		contents[o.String()] = jsonOf(t, content(u))
	}

	h.lose(t)
	returned.becomes(t) // by itself
	for _, o := range onHub[:4] {
		o.isAbsent(t)
	}
	h.hub.app("default", "users").create(t, simple("elsewhere"))
	if out, err := h.rebuild(t); err == nil || !strings.Contains(out, "not empty") || !strings.Contains(out, "default/users") {
		t.Errorf("a hub that is not empty: %v\n%s", err, out)
	}
	h.hub.app("default", "users").delete(t)

	plan := h.plan(t)
	if plan.Identity != lostIdentity {
		t.Errorf("identity %q", plan.Identity)
	}
	want := map[string]string{"application managed/web": "create", "application managed/plain": "create", "application second/web": "create", "application second/other": "create",
		"appproject argocd/shop": "create", "appproject argocd/west": "create", "appproject argocd/default": "claim", "repository argocd/repo": "create"}
	for name, action := range want {
		if got := actionsOf(plan)[name]; got != action {
			t.Errorf("%s: %q, want %q", name, got, action)
		}
	}
	for _, o := range onHub[:4] { // a plan changes nothing
		o.isAbsent(t)
	}
	h.apply(t)
	h.connected(t)
	plan = h.plan(t)
	for name, action := range actionsOf(plan) {
		if action != "exists" {
			t.Errorf("after the rebuild: %s: %s", name, action)
		}
	}
	for _, o := range onHub {
		u := o.becomes(t)
		if got := jsonOf(t, content(u)); got != contents[o.String()] {
			t.Errorf("%s:\n got %s\nwant %s", o, got, contents[o.String()])
		}
	}
	unchanged := func(when string) {
		t.Helper()
		for _, o := range replicas {
			if got := written(t, o); got != before[o.String()] {
				t.Errorf("%s, %s was written:\n got %s\nwant %s", when, o, got, before[o.String()])
			}
		}
	}
	unchanged("after the rebuild")

	var out string
	await(t, "the confirmation", func() error {
		one, err := h.rebuild(t, "--confirm", "--yes")
		out += one // what an agent holds can change in between: then the command confirms some, and runs again
		return err
	})
	for _, agent := range []string{"managed", "second"} {
		if !strings.Contains(out, "Confirmed for "+agent) {
			t.Errorf("confirmed: %s", out)
		}
		h.hub.agent(agent).becomes(t, func(u *unstructured.Unstructured) error {
			if holds, _, _ := unstructured.NestedSlice(u.Object, "status", "holds"); len(holds) > 0 {
				return fmt.Errorf("holds: %v", holds)
			}
			return nil
		})
	}
	unchanged("after the confirmation")
	first.app(lab.ArgoCDNamespace, "plain").becomes(t, func(u *unstructured.Unstructured) error { // its deletion was held for a moment
		if status := jsonOf(t, u.Object["status"]); strings.Contains(status, "AgentHeldWarning") {
			return fmt.Errorf("status %s", status)
		}
		return nil
	})

	// The hub works as before.
	h.hub.app("managed", "plain").patch(t, `{"spec":{"source":{"targetRevision":"v2"}}}`)
	first.app(lab.ArgoCDNamespace, "plain").becomes(t, func(u *unstructured.Unstructured) error {
		if got, _, _ := unstructured.NestedString(u.Object, "spec", "source", "targetRevision"); got != "v2" {
			return fmt.Errorf("revision %s", got)
		}
		return nil
	})
	h.hub.app("managed", "web").patch(t, `{"operation":{"initiatedBy":{"username":"admin"},"sync":{"revision":"abc"}}}`)
	first.app(lab.ArgoCDNamespace, "web").becomes(t, operating)
	h.hub.app("second", "other").delete(t)
	second.app(lab.ArgoCDNamespace, "other").goes(t)
	if err := countIs(first, lab.ArgoCDNamespace, 2, "", ""); err != nil {
		t.Error(err)
	}
}

// workloads returns what runs in namespaces of a cluster, by kind and name. A pod that was replaced or restarted, and a
// ReplicaSet or Deployment whose spec was changed, are described differently.
func workloads(t *testing.T, site *clusterClient, names ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, namespace := range names {
		for kind, gvr := range map[string]schema.GroupVersionResource{"Deployment": deployments, "ReplicaSet": replicaSets, "Pod": pods} {
			list, err := site.object(gvr, namespace, "").in().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range list.Items {
				restarts := 0
				statuses, _, _ := unstructured.NestedSlice(u.Object, "status", "containerStatuses")
				for _, status := range statuses {
					count, _, _ := unstructured.NestedInt64(status.(map[string]any), "restartCount")
					restarts += int(count)
				}
				out[kind+" "+namespace+"/"+u.GetName()] = fmt.Sprintf("UID %s, generation %d, %d restarts, deleted: %v", u.GetUID(), u.GetGeneration(), restarts, u.GetDeletionTimestamp() != nil)
			}
		}
	}
	return out
}

// Pods keep running while the hub is lost, rebuilt and confirmed: none is replaced or restarted.
func TestRebuild_RestartsNoPod(t *testing.T) {
	t.Parallel()
	h := newLostHub(t, setup{lab: lab.New(t, lab.Options{}),
		agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	managed, own := h.managed().spoke, h.autonomous().spoke
	names := []string{"pods-1", "pods-2", "pods-3"}
	hubApps := []object{h.hub.app("autonomous", "pods-own")}
	for _, name := range names {
		spec := h.plain("managed", name)
		spec.cascade = true
		app := h.hub.app("managed", name)
		app.create(t, spec.object())
		hubApps = append(hubApps, app)
	}
	own.app(lab.ArgoCDNamespace, "pods-own").create(t, h.plain("in-cluster", "pods-own").object())
	for _, app := range hubApps {
		app.becomes(t, synced, healthyApp, noOperation)
	}
	count := func() map[string]string {
		found := workloads(t, managed, names...)
		maps.Copy(found, workloads(t, own, "pods-own"))
		return found
	}
	before := count()
	if running := strings.Count(strings.Join(slices.Collect(maps.Keys(before)), "\n"), "Pod "); running != len(hubApps) {
		t.Fatalf("%d pods are running: %v", running, before)
	}
	unchanged := func(when string) {
		t.Helper()
		if after := count(); !maps.Equal(after, before) {
			t.Errorf("%s, workloads have changed:\n got %v\nwant %v", when, after, before)
		}
	}

	h.lose(t)
	unchanged("after the loss")
	h.plan(t)
	h.apply(t)
	h.connected(t)
	unchanged("after the rebuild")
	await(t, "the confirmation", func() error {
		out, err := h.rebuild(t, "--confirm", "--yes")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	for _, app := range hubApps {
		app.becomes(t, synced, healthyApp, noOperation)
	}
	unchanged("after the confirmation")

	// The hub has the application controller compare every Application once more.
	for _, name := range names {
		app := h.hub.app("managed", name)
		app.patch(t, `{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"hard"}}}`)
		app.becomes(t, annotation("argocd.argoproj.io/refresh", ""), synced, healthyApp)
		managed.app(lab.ArgoCDNamespace, name).becomes(t, annotation("argocd.argoproj.io/refresh", ""), synced, healthyApp)
	}
	unchanged("after a comparison")
}
