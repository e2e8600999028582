package principal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/lab"
)

// labHub is a principal on a real API server in its own namespace.
type labHub struct {
	t         *testing.T
	namespace string
	client    kubernetes.Interface
	agents    dynamic.ResourceInterface
}

func newLabHub(t *testing.T) *labHub {
	t.Helper()
	hub := lab.Get(t).Hub()
	o := &labHub{t: t, client: hub.Client()}
	definition, err := os.ReadFile("../../install/crds/agents.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Apply(t.Context(), string(definition)); err != nil {
		t.Fatalf("the API server does not take the definition: %v", err)
	}
	ns, err := o.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hub-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.namespace = ns.Name
	t.Cleanup(func() {
		_ = o.client.CoreV1().Namespaces().Delete(context.Background(), o.namespace, metav1.DeleteOptions{})
	})
	o.agents = hub.Dynamic().Resource(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: v1alpha1.Resource}).Namespace(o.namespace)
	return o
}

// open starts the principal; it ends with the test.
func (o *labHub) open() {
	o.t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(o.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{Cluster: lab.Get(o.t).Hub().Admin(), Namespace: o.namespace, Mapping: kind.ByNamespace, ResourceProxy: "proxy:9090", Version: "test",
			Listener: listener, Revocations: &identity.Revocations{}, Replica: "labHub", Log: slog.New(slog.NewTextHandler(logWriter{o.t}, nil)), Jitter: func() float64 { return 0.5 }})
	}()
	o.t.Cleanup(func() {
		o.t.Helper()
		o.close()
		cancel()
		if err := <-done; err != nil {
			o.t.Errorf("the principal ended with %v", err)
		}
	})
}

// close deletes all Agents, and waits for it, because no principal would finalize them later.
func (o *labHub) close() {
	o.t.Helper()
	ctx := context.Background()
	if err := o.agents.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		o.t.Errorf("delete all Agents: %v", err)
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		list, err := o.agents.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			return
		}
		if time.Now().After(deadline) {
			o.t.Errorf("wait for Agents to go: %v", err)
			return
		}
	}
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// declare creates an Agent as a user does.
func (o *labHub) declare(name, spec string) error {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"argocd-agent.argoproj-labs.io/v1alpha1","kind":"Agent","metadata":{"name":%q},"spec":%s}`, name, spec), &u.Object); err != nil {
		return err
	}
	_, err := o.agents.Create(o.t.Context(), u, metav1.CreateOptions{})
	return err
}

func (o *labHub) patch(name, change string) error {
	_, err := o.agents.Patch(o.t.Context(), name, types.MergePatchType, []byte(change), metav1.PatchOptions{})
	return err
}

// must fails the test on an error.
func (o *labHub) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// agent returns an Agent as it is; nil: there is none.
func (o *labHub) agent(name string) (*v1alpha1.Agent, error) {
	u, err := o.agents.Get(o.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	a := &v1alpha1.Agent{}
	return a, json.Unmarshal(b, a)
}

// secretBecomes waits until a Secret is as it should be.
func (o *labHub) secretBecomes(name, what string, right func(*corev1.Secret) bool) *corev1.Secret {
	o.t.Helper()
	var found *corev1.Secret
	lab.Await(o.t, "Secret "+name+" "+what, func(ctx context.Context) error {
		s, err := o.client.CoreV1().Secrets(o.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !right(s) {
			return fmt.Errorf("it is %v, %v, %s", s.Labels, s.Annotations, s.Data)
		}
		found = s
		return nil
	})
	return found
}

func (o *labHub) makeSecret(name string, labels, annotations map[string]string) error {
	_, err := o.client.CoreV1().Secrets(o.namespace).Create(o.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
		StringData: map[string]string{"name": labels[fleet.AgentLabel], "server": "https://old:1?agentName=" + labels[fleet.AgentLabel], "config": `{"bearerToken":"x"}`}}, metav1.CreateOptions{})
	return err
}

func TestAgent_APIServerRejectsInvalid(t *testing.T) {
	o := newLabHub(t)
	for _, c := range []struct{ name, spec, want string }{
		{"a--b", `{}`, "no two dashes in a row"},
		{"a.b", `{}`, "lower-case letters"},
		{"a", `{"mode":"both"}`, "managed"},
		{"a", `{"mapping":"x"}`, "destination"},
		{"a", `{"namespace":"A"}`, "spec.namespace"},
		{"a", `{"kinds":["secrets"]}`, "repositories"},
		{"a", `{"cluster":{"labels":{"argocd-agent.argoproj-labs.io/agent-name":"b"}}}`, "set by the principal"},
		{"a", `{"cluster":{"annotations":{"managed-by":"me"}}}`, "set by the principal"},
		{"a", `{"cluster":{"labels":{"x":"a b"}}}`, "spec.cluster.labels"},
	} {
		if err := o.declare(c.name, c.spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.name, c.spec, err, c.want)
		}
	}
	o.must(o.declare("a", `{}`))
	o.must(o.patch("a", `{"spec":{"mode":"managed"}}`))
	for _, change := range []string{`{"spec":{"mode":"autonomous"}}`, `{"spec":{"mode":null}}`, `{"spec":{"mapping":"destination"}}`, `{"spec":{"namespace":"x"}}`,
		`{"spec":{"mode":"autonomous","suspended":true}}`, `{"spec":null}`} {
		if err := o.patch("a", change); err == nil || !strings.Contains(err.Error(), "set suspended to true") {
			t.Errorf("%s: %v", change, err)
		}
	}
	o.must(o.patch("a", `{"spec":{"suspended":true}}`))
	o.must(o.patch("a", `{"spec":{"mode":"autonomous","mapping":"destination","namespace":"x"}}`))
	o.must(o.patch("a", `{"spec":{"suspended":false}}`))
}

func TestClusterSecret_FollowsAgent(t *testing.T) {
	o := newLabHub(t)
	o.open()
	o.must(o.declare("a", `{"mode":"managed","cluster":{"labels":{"env":"prod"},"annotations":{"note":"one"}}}`))
	made := o.secretBecomes("cluster-a", "to be made", func(s *corev1.Secret) bool {
		return s.Labels["argocd.argoproj.io/secret-type"] == "cluster" && s.Labels[fleet.AgentLabel] == "a" && s.Labels["env"] == "prod" &&
			s.Annotations["note"] == "one" && s.Annotations["argocd.argoproj.io/skip-reconcile"] == "true" && s.Annotations["managed-by"] == "argocd-agent" &&
			string(s.Data["name"]) == "a" && string(s.Data["server"]) == "https://proxy:9090?agentName=a" && string(s.Data["config"]) == "{}"
	})
	secrets := o.client.CoreV1().Secrets(o.namespace)
	change := func(patch string) {
		t.Helper()
		_, err := secrets.Patch(t.Context(), "cluster-a", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		o.must(err)
	}
	// A user's own stay, ours come back.
	change(`{"metadata":{"labels":{"theirs":"1","env":"changed","argocd.argoproj.io/secret-type":null},"annotations":{"managed-by":null}},"stringData":{"server":"https://x","config":"{\"bearerToken\":\"t\"}"}}`)
	o.secretBecomes("cluster-a", "to be corrected", func(s *corev1.Secret) bool {
		return s.Labels["theirs"] == "1" && s.Labels["env"] == "prod" && s.Labels["argocd.argoproj.io/secret-type"] == "cluster" && s.Annotations["managed-by"] == "argocd-agent" &&
			string(s.Data["server"]) == "https://proxy:9090?agentName=a" && string(s.Data["config"]) == `{"bearerToken":"t"}`
	})
	// What leaves the Agent leaves the Secret, and nothing else.
	o.must(o.patch("a", `{"spec":{"cluster":{"labels":{"env":null,"zone":"1"},"annotations":null}}}`))
	kept := o.secretBecomes("cluster-a", "to follow", func(s *corev1.Secret) bool {
		_, env := s.Labels["env"]
		_, note := s.Annotations["note"]
		return !env && !note && s.Labels["zone"] == "1" && s.Labels["theirs"] == "1"
	})
	if kept.UID != made.UID {
		t.Error("it was made again")
	}
	// Without its label it is not watched, and yet it is ours.
	change(`{"metadata":{"labels":{"argocd-agent.argoproj-labs.io/agent-name":null}}}`)
	o.secretBecomes("cluster-a", "to have its label back", func(s *corev1.Secret) bool { return s.Labels[fleet.AgentLabel] == "a" && s.UID == made.UID })
	// Deleted, it comes back.
	o.must(secrets.Delete(t.Context(), "cluster-a", metav1.DeleteOptions{}))
	o.secretBecomes("cluster-a", "to come back", func(s *corev1.Secret) bool { return s.UID != made.UID && s.Labels["zone"] == "1" })
	// A Secret of a user is not changed, and the Agent reports it.
	o.must(o.makeSecret("cluster-b", map[string]string{"x": "y"}, nil))
	o.must(o.declare("b", `{"mode":"managed"}`))
	o.conditionIs("b", v1alpha1.ConditionRegistered, metav1.ConditionFalse, "exists without label")
	o.conditionIs("a", v1alpha1.ConditionRegistered, metav1.ConditionTrue, "")
}

// conditionIs waits until a condition is so.
func (o *labHub) conditionIs(name, condition string, status metav1.ConditionStatus, text string) {
	o.t.Helper()
	lab.Await(o.t, fmt.Sprintf("condition %s of %s", condition, name), func(context.Context) error {
		a, err := o.agent(name)
		if err != nil || a == nil {
			return errors.Join(err, errors.New("there is none"))
		}
		for _, c := range a.Status.Conditions {
			if c.Type == condition && c.Status == status && strings.Contains(c.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", a.Status.Conditions)
	})
}

func TestClusterSecret_AdoptedOnce(t *testing.T) {
	o := newLabHub(t)
	const count = 300
	for i := range count {
		name := fmt.Sprintf("old-%d", i)
		o.must(o.makeSecret("cluster-"+name, map[string]string{fleet.AgentLabel: name, "argocd.argoproj.io/secret-type": "cluster", "env": "prod"},
			map[string]string{kind.Prefix + "mode": "autonomous", kind.Prefix + "hub-namespace": "ns-" + name, kind.Prefix + "cluster-uid": "uid-" + name, kind.Prefix + "seen-store": "uid-" + name + "/7"}))
	}
	o.must(o.makeSecret("cluster-wrong", map[string]string{fleet.AgentLabel: "wrong"}, map[string]string{kind.Prefix + "mode": "typo"}))
	o.open()
	lab.Await(t, "all to be taken over", func(ctx context.Context) error {
		list, err := o.agents.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) < count {
			err = fmt.Errorf("%d of %d", len(list.Items), count)
		}
		return err
	})
	s := o.secretBecomes("cluster-old-299", "to be taken in charge", func(s *corev1.Secret) bool { return s.Annotations[kind.Prefix+"derived"] != "" })
	if string(s.Data["server"]) != "https://old:1?agentName=old-299" || string(s.Data["config"]) != `{"bearerToken":"x"}` || s.Labels["env"] != "prod" || s.Annotations[kind.Prefix+"made-by"] != "" {
		t.Errorf("values of a user were changed: %v %v %s", s.Labels, s.Annotations, s.Data)
	}
	o.conditionIs("old-299", v1alpha1.ConditionRegistered, metav1.ConditionTrue, "")
	a, err := o.agent("old-299")
	o.must(err)
	if a.Spec.Mode != "autonomous" || a.Spec.Namespace != "ns-old-299" || a.Status.ClusterUID != "uid-old-299" || a.Status.Store == nil || a.Status.Store.Revision != 7 {
		t.Errorf("%+v", a)
	}
	if wrong, err := o.agent("wrong"); err != nil || wrong != nil {
		t.Errorf("a Secret that makes no sense became %v, %v", wrong, err)
	}
	// Deleted, it does not come back out of the Secret, which is not ours to delete.
	o.must(o.agents.Delete(t.Context(), "old-299", metav1.DeleteOptions{}))
	o.goes("old-299")
	s = o.secretBecomes("cluster-old-299", "to be left", func(s *corev1.Secret) bool { return s.Annotations[kind.Prefix+"derived"] == "agent-deleted" })
	if s.Labels["env"] != "prod" || string(s.Data["server"]) != "https://old:1?agentName=old-299" || s.Annotations["managed-by"] != "" {
		t.Errorf("left as %v %v %s", s.Labels, s.Annotations, s.Data)
	}
	// Whatever is declared after it comes after it.
	o.must(o.declare("last", `{"mode":"managed"}`))
	o.secretBecomes("cluster-last", "to be made", func(*corev1.Secret) bool { return true })
	if back, err := o.agent("old-299"); err != nil || back != nil {
		t.Errorf("it came back: %v, %v", back, err)
	}
}

func (o *labHub) goes(name string) {
	o.t.Helper()
	lab.Await(o.t, "Agent "+name+" to go", func(context.Context) error {
		if a, err := o.agent(name); err != nil || a != nil {
			return fmt.Errorf("it is there: %v, %w", a, err)
		}
		return nil
	})
}

func TestAgent_DeletionKeepsUserObjects(t *testing.T) {
	o := newLabHub(t)
	o.open()
	o.must(o.declare("a", `{"mode":"managed"}`))
	o.secretBecomes("cluster-a", "to be made", func(*corev1.Secret) bool { return true })
	fingerprint := strings.Repeat("AB", 32)
	_, err := o.agents.Patch(t.Context(), "a", types.MergePatchType, fmt.Appendf(nil, `{"status":{"certificate":{"fingerprint":%q}}}`, fingerprint), metav1.PatchOptions{}, "status")
	o.must(err)
	o.must(o.agents.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	o.goes("a")
	if _, err := o.client.CoreV1().Secrets(o.namespace).Get(t.Context(), "cluster-a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its Secret: %v", err)
	}
	list, err := o.client.CoreV1().ConfigMaps(o.namespace).Get(t.Context(), revoke.ConfigMap, metav1.GetOptions{})
	o.must(err)
	if !strings.Contains(list.Data[fingerprint], "agent a was deleted") {
		t.Errorf("revoked: %v", list.Data)
	}
}
