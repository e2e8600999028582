package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argocd-agent/argocd-agent/lab"
)

var (
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// side is a client of one cluster. It writes, and its watch reports when writes of the other side have arrived.
type side struct {
	namespace string
	apps      dynamic.ResourceInterface

	mu      sync.Mutex
	marks   map[string]string // Application → last observed mark
	changed chan struct{}
	writes  int
}

// openProject permits Applications of all namespaces on all clusters.
const openProject = `
{apiVersion: argoproj.io/v1alpha1, kind: AppProject, metadata: {name: default, namespace: argocd},
  spec: {sourceRepos: ["*"], sourceNamespaces: ["*"], destinations: [{name: "*", namespace: "*"}]}}
`

func newSide(ctx context.Context, c *lab.Cluster, namespace string) (*side, error) {
	config := c.Admin()
	config.QPS, config.Burst = -1, -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	s := &side{namespace: namespace, apps: client.Resource(applications).Namespace(namespace),
		marks: map[string]string{}, changed: make(chan struct{})}
	if namespace != lab.ArgoCDNamespace {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
		if _, err := client.Resource(namespaces).Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create namespace %s: %w", namespace, err)
		}
		if err := c.Apply(ctx, openProject); err != nil {
			return nil, fmt.Errorf("create AppProject default: %w", err)
		}
	}
	watch, err := s.apps.Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("watch Applications on %s: %w", c.Name, err)
	}
	go func() {
		for event := range watch.ResultChan() {
			if app, ok := event.Object.(*unstructured.Unstructured); ok {
				s.saw(app, event.Type == "DELETED")
			}
		}
	}()
	return s, nil
}

// saw records the marks of an Application: its target revision and its health message.
func (s *side) saw(app *unstructured.Unstructured, gone bool) {
	revision, _, _ := unstructured.NestedString(app.Object, "spec", "source", "targetRevision")
	health, _, _ := unstructured.NestedString(app.Object, "status", "health", "message")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if gone {
		delete(s.marks, app.GetName())
	} else {
		s.marks[app.GetName()] = revision + "/" + health
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// message returns the health message of an Application.
func (s *side) message(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, message, _ := strings.Cut(s.marks[name], "/")
	return message
}

// until waits until all named Applications have the expected marks.
func (s *side) until(ctx context.Context, want map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		s.mu.Lock()
		missing := 0
		for name, mark := range want {
			if s.marks[name] != mark {
				missing++
			}
		}
		changed := s.changed
		s.mu.Unlock()
		if missing == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d Applications have not arrived: %w", missing, len(want), context.Cause(ctx))
		}
	}
}

func (s *side) create(ctx context.Context, name, revision string) error {
	_, err := s.apps.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": name, "namespace": s.namespace},
		"spec": map[string]any{"project": "default",
			"source":      map[string]any{"repoURL": "https://git.example.org/team/app.git", "path": "deploy", "targetRevision": revision},
			"destination": map[string]any{"name": "w1", "namespace": "default"}},
	}}, metav1.CreateOptions{})
	return err
}

// retarget changes the spec of an Application.
func (s *side) retarget(ctx context.Context, name, revision string) error {
	return s.patch(ctx, name, fmt.Sprintf(`{"spec":{"source":{"targetRevision":%q}}}`, revision))
}

// report changes the status of an Application, as an application controller does.
func (s *side) report(ctx context.Context, name, message string) error {
	return s.patch(ctx, name, fmt.Sprintf(`{"status":{"health":{"status":"Healthy","message":%q},"sync":{"status":"Synced","comparedTo":{"source":{"repoURL":"https://git.example.org/team/app.git"},"destination":{}}}}}`, message))
}

func (s *side) patch(ctx context.Context, name, body string) error {
	_, err := s.apps.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	return err
}
