package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

// subject is an Application that is read on the hub with the Argo CD API, as the UI does.
type subject struct {
	w        *testEnv
	agent    *agent
	hub      object // the Application on the hub
	project  string // AppProject on the hub
	workload string // namespace of its objects on the spoke
}

// String returns the name for the argocd CLI.
func (s *subject) String() string { return s.hub.namespace + "/" + s.hub.name }

// liveWorkload contains the manifests of an Application of these tests.
var liveWorkload = map[string]string{
	"deployment.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1"}]}
`,
	"configmap.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {greeting: hello}}\n",
	"spare.yaml":     "{apiVersion: v1, kind: ConfigMap, metadata: {name: spare}, data: {a: b}}\n",
	"secret.yaml":    "{apiVersion: v1, kind: Secret, metadata: {name: key}, data: {password: Z2VoZWlt}}\n",
	"service.yaml":   "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}\n",
	"cronjob.yaml": `
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 1 1 *"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: job, image: "job:1"}]}
`,
}

// liveRepository returns the repository with these manifests.
func liveRepository(t testing.TB, w *testEnv) string {
	t.Helper()
	store, err := w.Repositories()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open("live"); err == nil {
		return w.RepoURL("live")
	}
	repository, err := store.Create(t.Context(), "live", gitserver.RepoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repository.Commit(t.Context(), "objects for live access", liveWorkload); err != nil {
		t.Fatal(err)
	}
	return w.RepoURL("live")
}

// deploy creates the Application on its owner and syncs it once.
func (s *subject) deploy(t testing.TB, owned object, destination string) {
	t.Helper()
	spec := appSpec{repo: liveRepository(t, s.w), destination: destination, namespace: s.workload, automated: true}
	owned.create(t, spec.object())
	s.hub.becomes(t, synced, healthyApp, noOperation)
	owned.edit(t, withoutAutomation) // changes of the tests must stay
	s.hub.becomes(t, field("spec.syncPolicy.automated", ""))
}

func (s *subject) object(kind kindOf, name string) object {
	return s.agent.spoke.object(kind.resource(), s.workload, name)
}

// kindOf is a kind as the Argo CD API names it.
type kindOf struct{ group, version, kind, plural string }

var (
	deploymentKind = kindOf{"apps", "v1", "Deployment", "deployments"}
	configMapKind  = kindOf{"", "v1", "ConfigMap", "configmaps"}
	secretKind     = kindOf{"", "v1", "Secret", "secrets"}
	podKind        = kindOf{"", "v1", "Pod", "pods"}
	appKind        = kindOf{"argoproj.io", "v1alpha1", "Application", "applications"}
)

// query returns the parameters for an object of the Application.
func (s *subject) query(kind kindOf, namespace, name string, more ...string) url.Values {
	q := url.Values{"appNamespace": {s.hub.namespace}, "project": {s.project}, "namespace": {namespace}, "resourceName": {name},
		"group": {kind.group}, "version": {kind.version}, "kind": {kind.kind}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return q
}

// request sends a request for the Application to the Argo CD API.
func (s *subject) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	if query == nil {
		query = url.Values{"appNamespace": {s.hub.namespace}, "project": {s.project}}
	}
	address := "https://" + s.w.ArgoCD.Address + path + "?" + query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	client, err := s.w.HTTPClient()
	if err != nil {
		return nil, err
	}
	return client.Do(request)
}

func (s *subject) path(rest string) string {
	return "/api/v1/applications/" + s.hub.name + rest
}

// try returns the text of one response, or the error of Argo CD.
func (s *subject) try(method, rest string, query url.Values, body any) (string, error) {
	ctx, cancel := call()
	defer cancel()
	response, err := s.request(ctx, method, s.path(rest), query, body)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), nil
}

func (s *subject) ask(t testing.TB, method, rest string, query url.Values, body any) string {
	t.Helper()
	text, err := s.try(method, rest, query, body)
	if err != nil {
		t.Fatalf("%s %s of %s: %v", method, rest, s, err)
	}
	return text
}

// manifest returns an object as Argo CD shows it.
func (s *subject) manifest(t testing.TB, kind kindOf, namespace, name string) string {
	t.Helper()
	text := s.ask(t, http.MethodGet, "/resource", s.query(kind, namespace, name), nil)
	var answer struct{ Manifest string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("manifest of %s %s: %v: %s", kind.kind, name, err, text)
	}
	return answer.Manifest
}

// treeNode is a node of a resource tree.
type treeNode struct {
	Group, Kind, Namespace, Name, UID string
	ParentRefs                        []struct{ Kind, Namespace, Name string }
}

type tree struct{ Nodes []treeNode }

func (s *subject) tree(t testing.TB) tree {
	t.Helper()
	var found tree
	if err := json.Unmarshal([]byte(s.ask(t, http.MethodGet, "/resource-tree", nil, nil)), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// of returns the nodes of a kind.
func (f tree) of(kind string) []treeNode {
	var found []treeNode
	for _, n := range f.Nodes {
		if n.Kind == kind {
			found = append(found, n)
		}
	}
	return found
}

// pod returns the running pod of the Application.
func (s *subject) pod(t testing.TB) string {
	t.Helper()
	name := ""
	await(t, "the one pod of "+s.String(), func() error {
		pods, err := s.agent.spoke.Client().CoreV1().Pods(s.workload).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web", FieldSelector: "status.phase=Running"})
		if err != nil {
			return err
		}
		nodes := slices.DeleteFunc(s.tree(t).of("Pod"), func(n treeNode) bool { return !strings.HasPrefix(n.Name, "web-") })
		if len(pods.Items) != 1 || len(nodes) != 1 || nodes[0].Name != pods.Items[0].Name {
			return fmt.Errorf("%d pods, and %v in the tree", len(pods.Items), nodes)
		}
		name = pods.Items[0].Name
		return nil
	})
	return name
}

// stream is a streaming response: server-sent events or lines.
type stream struct {
	lines chan string // closed at its end
	end   func()
}

// open starts a stream of the Argo CD API. It ends with the test.
func (s *subject) open(t testing.TB, path string, query url.Values) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	response, err := s.request(ctx, http.MethodGet, path, query, nil) //nolint:bodyclose // by the goroutine below
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		cancel()
		t.Fatalf("%s: %s: %s", path, response.Status, text)
	}
	st := &stream{lines: make(chan string, 10000), end: cancel}
	go func() {
		defer close(st.lines)
		defer response.Body.Close()
		scanner := bufio.NewScanner(response.Body)
		scanner.Buffer(nil, 16<<20)
		for scanner.Scan() {
			if line := strings.TrimPrefix(scanner.Text(), "data: "); line != "" {
				st.lines <- line
			}
		}
	}()
	t.Cleanup(cancel)
	return st
}

var errEnded = errors.New("the stream has ended")

// until reads the stream until a line matches.
func (st *stream) until(t testing.TB, what string, found func(line string) bool) {
	t.Helper()
	deadline := time.After(*patience)
	seen, last := 0, ""
	for {
		select {
		case line, open := <-st.lines:
			if !open {
				t.Fatalf("waited in a stream for %s: %v after %d lines", what, errEnded, seen)
			}
			seen, last = seen+1, line
			if found(line) {
				return
			}
		case <-deadline:
			t.Fatalf("waited in a stream for %s: %d lines, none is it; the last is %.3000s", what, seen, last)
		}
	}
}

// watchTree watches the resource tree.
func (s *subject) watchTree(t testing.TB) *stream {
	t.Helper()
	return s.open(t, "/api/v1/stream/applications/"+s.hub.name+"/resource-tree", nil)
}

// shows waits until the stream has a matching tree.
func (st *stream) shows(t testing.TB, what string, is func(tree) bool) {
	t.Helper()
	st.until(t, what, func(line string) bool {
		var event struct{ Result tree }
		return json.Unmarshal([]byte(line), &event) == nil && is(event.Result)
	})
}

// scale changes the number of pods on the spoke.
func (s *subject) scale(t testing.TB, replicas int) {
	t.Helper()
	s.object(deploymentKind, "web").patch(t, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// fresh returns a name that no earlier run has used.
func fresh(name string) string { return fmt.Sprintf("%s-%x", name, time.Now().UnixNano()&0xffffff) }

// managedSubject returns an Application of the managed agent with namespace mapping.
func managedSubject(t testing.TB, w *testEnv, name string) *subject {
	t.Helper()
	name = fresh(name)
	s := &subject{w: w, agent: w.managed(), hub: w.hub.app("managed", name), project: "default", workload: name}
	s.deploy(t, s.hub, "managed")
	return s
}

// autonomousSubject returns an Application of the autonomous agent.
func autonomousSubject(t testing.TB, w *testEnv, name string) *subject {
	t.Helper()
	name = fresh(name)
	s := &subject{w: w, agent: w.autonomous(), hub: w.hub.app("autonomous", name), project: "autonomous-default", workload: name}
	s.deploy(t, w.autonomous().spoke.app(lab.ArgoCDNamespace, name), "in-cluster")
	return s
}

func (k kindOf) resource() schema.GroupVersionResource {
	return unstructuredResource(k.group, k.version, k.plural)
}

// destinedSubject returns an Application with destination mapping, which keeps its namespace on the spoke.
func destinedSubject(t testing.TB, w *testEnv, agent, namespace, name string) *subject {
	t.Helper()
	name = fresh(name)
	s := &subject{w: w, agent: w.agents[agent], hub: w.hub.app(namespace, name), project: "default", workload: name}
	s.deploy(t, s.hub, agent)
	return s
}
