package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// TestLiveAccess runs an argocd-server with the principal's Redis proxy, and reads Applications of both modes as the
// Argo CD UI and CLI do.
func TestLiveAccess(t *testing.T) {
	w := liveEnv(t)
	for mode, make := range map[string]func(testing.TB, *testEnv, string) *subject{"managed": managedSubject, "autonomous": autonomousSubject} {
		t.Run(mode, func(t *testing.T) { allViews(t, make(t, w, "live")) })
	}
	t.Run("kubectl through the hub", func(t *testing.T) { kubectlThroughHub(t, w) })
	t.Run("children of an app-of-apps open from the hub", func(t *testing.T) { appOfApps(t, w) })
	t.Run("the cluster page", func(t *testing.T) { clusterPage(t, w) })
	t.Run("interruptions", func(t *testing.T) { interruptions(t, w) })
	t.Run("bad input", func(t *testing.T) { liveBadInput(t, w) })
	t.Run("orphaned resources", func(t *testing.T) { orphans(t, w) })
	t.Run("the agent's own policy", func(t *testing.T) { livePolicy(t, w) })
}

// allViews tests all operations of users on one Application.
func allViews(t *testing.T, s *subject) {
	t.Helper()
	t.Run("resource tree", func(t *testing.T) { resourceTree(t, s) })
	t.Run("manifests", func(t *testing.T) { manifests(t, s) })
	t.Run("edits", func(t *testing.T) { edits(t, s) })
	t.Run("diff", func(t *testing.T) { diffs(t, s) })
	t.Run("actions", func(t *testing.T) { actions(t, s) })
	t.Run("logs", func(t *testing.T) { logs(t, s) })
	t.Run("terminal", func(t *testing.T) { terminals(t, s) })
}

func withoutAutomation(u *unstructured.Unstructured) {
	unstructured.RemoveNestedField(u.Object, "spec", "syncPolicy", "automated")
}

func resourceTree(t *testing.T, s *subject) {
	t.Helper()
	s.pod(t)
	found := s.tree(t)
	for kind, want := range map[string]int{"Deployment": 1, "ReplicaSet": 1, "Pod": 1, "Service": 1, "ConfigMap": 2, "Secret": 1, "CronJob": 1} {
		if got := len(found.of(kind)); got != want {
			t.Errorf("%d nodes of kind %s, not %d", got, kind, want)
		}
	}
	pod := found.of("Pod")[0]
	if len(pod.ParentRefs) != 1 || pod.ParentRefs[0].Kind != "ReplicaSet" || pod.Namespace != s.workload {
		t.Errorf("the pod is %+v", pod)
	}

	watch := s.watchTree(t)
	watch.shows(t, "the tree as it is", func(f tree) bool { return len(f.of("Pod")) == 1 })
	s.scale(t, 3)
	watch.shows(t, "three pods", func(f tree) bool { return len(f.of("Pod")) == 3 })
	s.scale(t, 1)
	watch.shows(t, "one pod again", func(f tree) bool { return len(f.of("Pod")) == 1 })

	out := s.w.argocd(t, "app", "resources", s.String())
	if !strings.Contains(out, "Deployment") || !strings.Contains(out, "nightly") {
		t.Errorf("argocd app resources: %s", out)
	}
}

func manifests(t *testing.T, s *subject) {
	t.Helper()
	live := s.object(deploymentKind, "web").get(t)
	shown := s.manifest(t, deploymentKind, s.workload, "web")
	if !strings.Contains(shown, string(live.GetUID())) {
		t.Errorf("the manifest of the Deployment is %s", shown)
	}
	pod := s.pod(t)
	if shown := s.manifest(t, podKind, s.workload, pod); !strings.Contains(shown, pod) {
		t.Errorf("the manifest of a pod is %s", shown)
	}
	if shown := s.manifest(t, secretKind, s.workload, "key"); strings.Contains(shown, "geheim") || strings.Contains(shown, "Z2VoZWlt") || !strings.Contains(shown, "++++") {
		t.Errorf("the manifest of a Secret is %s", shown)
	}
	if out := s.w.argocd(t, "app", "manifests", s.String()); !strings.Contains(out, "greeting: hello") {
		t.Errorf("argocd app manifests: %s", out)
	}
	uid := string(live.GetUID())
	await(t, "events of the Deployment", func() error {
		text, err := s.try(http.MethodGet, "/events", url.Values{"appNamespace": {s.hub.namespace}, "project": {s.project},
			"resourceNamespace": {s.workload}, "resourceName": {"web"}, "resourceUID": {uid}}, nil)
		if err == nil && !strings.Contains(text, "ScalingReplicaSet") {
			err = fmt.Errorf("they are %s", text)
		}
		return err
	})
}

func edits(t *testing.T, s *subject) {
	t.Helper()
	settings := s.object(configMapKind, "settings")
	for kind, patch := range map[string]string{
		"application/merge-patch+json":           `{"data":{"merge":"x"}}`,
		"application/json-patch+json":            `[{"op":"add","path":"/data/json","value":"x"}]`,
		"application/strategic-merge-patch+json": `{"data":{"strategic":"x"}}`,
	} {
		query := s.query(configMapKind, s.workload, "settings", "patchType", kind)
		if out := s.ask(t, http.MethodPost, "/resource", query, patch); !strings.Contains(out, "settings") {
			t.Errorf("the answer to a %s: %s", kind, out)
		}
	}
	settings.is(t, field("data.merge", "x"), field("data.json", "x"), field("data.strategic", "x"), field("data.greeting", "hello"))

	out, err := s.try(http.MethodPost, "/resource", s.query(configMapKind, s.workload, "settings", "patchType", "application/merge-patch+json"), `{"data":{"bad key":"x"}}`)
	if err == nil || !strings.Contains(err.Error(), "bad key") {
		t.Errorf("what the spoke's API server refuses: %s, %v", out, err)
	}

	s.ask(t, http.MethodDelete, "/resource", s.query(configMapKind, s.workload, "spare"), nil)
	s.object(configMapKind, "spare").goes(t)
}

func diffs(t *testing.T, s *subject) {
	t.Helper()
	s.object(configMapKind, "settings").patch(t, `{"data":{"greeting":"good day"}}`)
	s.w.argocd(t, "app", "get", s.String(), "--refresh")
	s.hub.becomes(t, outOfSync)
	text := s.ask(t, http.MethodGet, "/managed-resources", url.Values{"appNamespace": {s.hub.namespace}, "project": {s.project}, "name": {"settings"}, "kind": {"ConfigMap"}}, nil)
	if !strings.Contains(text, "good day") || !strings.Contains(text, "hello") {
		t.Errorf("the difference is %s", text)
	}
	for _, flags := range [][]string{nil, {"--server-side-diff"}} {
		out, err := s.w.tryArgocd(t, append([]string{"app", "diff", s.String()}, flags...)...)
		if err == nil || !strings.Contains(out, "good day") || !strings.Contains(out, "hello") {
			t.Errorf("argocd app diff %v: %v: %s", flags, err, out)
		}
	}
	s.w.argocd(t, "app", "sync", s.String(), "--timeout", "120")
	s.hub.becomes(t, synced, noOperation)
	s.object(configMapKind, "settings").becomes(t, field("data.greeting", "hello"))
	if out := s.w.argocd(t, "app", "diff", s.String()); strings.Contains(out, "=====") {
		t.Errorf("argocd app diff after the sync: %s", out)
	}
	// Argo CD compares a hidden Secret with the result of a dry run and shows the difference.
	out, _ := s.w.tryArgocd(t, "app", "diff", s.String(), "--server-side-diff")
	if strings.Contains(out, "rpc error") || strings.Count(out, "=====") != 2*strings.Count(out, "===== /Secret") || strings.Contains(out, "geheim") || strings.Contains(out, "Z2VoZWlt") {
		t.Errorf("argocd app diff --server-side-diff after the sync: %s", out)
	}
}

func actions(t *testing.T, s *subject) {
	t.Helper()
	deployment := s.object(deploymentKind, "web")
	deployment.is(t, noRestart)
	s.ask(t, http.MethodPost, "/resource/actions/v2", nil, map[string]any{"name": s.hub.name, "appNamespace": s.hub.namespace, "project": s.project,
		"namespace": s.workload, "resourceName": "web", "group": "apps", "version": "v1", "kind": "Deployment", "action": "restart"})
	deployment.becomes(t, func(u *unstructured.Unstructured) error {
		if noRestart(u) == nil {
			return fmt.Errorf("it was not restarted")
		}
		return nil
	})
	if out := s.w.argocd(t, "app", "actions", "list", s.String(), "--kind", "CronJob"); !strings.Contains(out, "create-job") {
		t.Errorf("argocd app actions list: %s", out)
	}
	s.w.argocd(t, "app", "actions", "run", s.String(), "create-job", "--kind", "CronJob", "--resource-name", "nightly")
	await(t, "the Job that the action creates", func() error {
		ctx, cancel := call()
		defer cancel()
		list, err := s.agent.spoke.client.Resource(unstructuredResource("batch", "v1", "jobs")).Namespace(s.workload).List(ctx, listAll)
		if err != nil {
			return err
		}
		made := slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool { return !strings.HasPrefix(u.GetName(), "nightly-") })
		if len(made) != 1 {
			return fmt.Errorf("there are %d Jobs", len(made))
		}
		return nil
	})
}

func noRestart(u *unstructured.Unstructured) error {
	annotations, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "annotations")
	if at := annotations["kubectl.kubernetes.io/restartedAt"]; at != "" {
		return fmt.Errorf("it was restarted at %s", at)
	}
	return nil
}

func logs(t *testing.T, s *subject) {
	t.Helper()
	pod := s.pod(t)
	query := func(more ...string) url.Values {
		return s.query(podKind, s.workload, pod, append(more, "podName", pod, "container", "web")...)
	}
	entries := func(q url.Values) []string {
		var found []string
		for line := range strings.Lines(s.ask(t, http.MethodGet, "/pods/"+pod+"/logs", q, nil)) {
			var entry struct {
				Result struct {
					Content string
					Last    bool
				}
			}
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatalf("a line of the log is %q", line)
			}
			if !entry.Result.Last {
				found = append(found, entry.Result.Content)
			}
		}
		return found
	}
	mark := fmt.Sprintf("mark of %s at %d, not {json", s, time.Now().UnixNano())
	if err := s.agent.spoke.LogInPods(mark); err != nil {
		t.Fatal(err)
	}
	if all := entries(query()); len(all) < 2 || !slices.Contains(all, mark) {
		t.Errorf("the log has %d lines, %q is not there", len(all), mark)
	}
	if last := entries(query("tailLines", "2")); len(last) == 0 || len(last) > 3 { // more lines can be added in between
		t.Errorf("the last two lines are %q", last)
	}
	if recent := entries(query("sinceSeconds", "3600")); !slices.Contains(recent, mark) {
		t.Errorf("the last hour has %d lines, %q is not there", len(recent), mark)
	}
	// A simulated pod has one container that never restarted. The answer of the kubelet is forwarded.
	direct, directErr := s.w.Command(t.Context(), "kubectl", "--context", s.agent.spoke.Name, "-n", s.workload, "logs", pod, "--previous").CombinedOutput()
	_, said, _ := strings.Cut(strings.TrimSpace(string(direct)), "(BadRequest): ")
	said, _, _ = strings.Cut(said, `"`)
	if through := s.ask(t, http.MethodGet, "/pods/"+pod+"/logs", query("previous", "true"), nil); directErr == nil || said == "" || !strings.Contains(through, said) {
		t.Errorf("previous logs: directly %v (%s), through the hub %s", directErr, direct, through)
	}

	follow := s.open(t, s.path("/pods/"+pod+"/logs"), query("follow", "true", "tailLines", "1"))
	for i := range 3 {
		line := fmt.Sprintf("followed line %d of %s at %d", i, s, time.Now().UnixNano())
		if err := s.agent.spoke.LogInPods(line); err != nil {
			t.Fatal(err)
		}
		follow.until(t, line, func(found string) bool { return strings.Contains(found, line) })
	}
	follow.end()
	if out := s.w.argocd(t, "app", "logs", s.String(), "--tail", "3", "--kind", "Deployment"); strings.TrimSpace(out) == "" {
		t.Error("argocd app logs says nothing")
	}
	if out := s.w.argocd(t, "app", "logs", s.String(), "--since-seconds", "3600", "--kind", "Deployment"); !strings.Contains(out, mark) {
		t.Errorf("argocd app logs --since-seconds: %.500s", out)
	}
	cli := runOn(t, s.w.Command(t.Context(), "argocd", "app", "logs", s.String(), "--follow", "--tail", "1", "--kind", "Deployment", "--name", "web"))
	await(t, "argocd app logs --follow to go on", func() error {
		line := fmt.Sprintf("for the CLI, of %s", s)
		if err := s.agent.spoke.LogInPods(line); err != nil {
			t.Fatal(err)
		}
		if strings.Count(cli.text(), line) < 3 {
			return fmt.Errorf("it says %s", cli.text())
		}
		return nil
	})
}

// appOfApps opens Applications on the hub that only the spoke's Argo CD has by these names.
func appOfApps(t *testing.T, w *testEnv) {
	t.Helper()
	spoke := w.autonomous().spoke
	parent := spoke.app(lab.ArgoCDNamespace, "family")
	spec := appSpec{repo: w.RepoURL("app-of-apps"), destination: "in-cluster", namespace: lab.ArgoCDNamespace, automated: true}
	parent.create(t, spec.object())
	for _, child := range []string{"child-plain", "child-helm"} {
		t.Cleanup(func() { spoke.app(lab.ArgoCDNamespace, child).discard(t) })
	}
	s := &subject{w: w, agent: w.autonomous(), hub: w.hub.app("autonomous", "family"), project: "autonomous-default"}
	s.hub.becomes(t, synced)
	w.hub.app("autonomous", "child-plain").becomes(t, synced, healthyApp)
	await(t, "the children in the tree", func() error {
		nodes := s.tree(t).of("Application")
		if len(nodes) != 2 || nodes[0].Namespace != "autonomous" || nodes[1].Namespace != "autonomous" {
			return fmt.Errorf("they are %+v", nodes)
		}
		return nil
	})
	uid := spoke.app(lab.ArgoCDNamespace, "child-plain").get(t).GetUID()
	if shown := s.manifest(t, appKind, "autonomous", "child-plain"); !strings.Contains(shown, string(uid)) {
		t.Errorf("the child's manifest is %s", shown)
	}
	text := s.ask(t, http.MethodGet, "/managed-resources", url.Values{"appNamespace": {"autonomous"}, "name": {"child-plain"}, "namespace": {"autonomous"}}, nil)
	if !strings.Contains(text, `"child-plain"`) {
		t.Errorf("the child is not among the managed resources: %.300s", text)
	}
}
