package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

var (
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	appProjects  = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// hub is a client of the hub's API server, as users and Argo CD are. It writes Applications and watches them.
type hub struct {
	client dynamic.Interface
	status *latencyTracker // latency of status changes from spokes

	writes    atomic.Int64 // observed changes of Applications
	count     atomic.Int64 // number of Applications
	refreshes atomic.Int64 // Applications with a pending refresh
	changed   chan struct{}

	mu      sync.Mutex
	waiting map[string]bool
	written func(name string) // called for each write, if not nil
}

// observe sets the callback for writes of Applications.
func (h *hub) observe(written func(name string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written = written
}

func newHub(ctx context.Context, config *rest.Config) (*hub, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	h := &hub{client: client, status: newLatencyTracker(), changed: make(chan struct{}, 1), waiting: map[string]bool{}}
	watching, err := kube.NewClient(config)
	if err != nil {
		return nil, err
	}
	watcher := kube.NewWatcher(watching, kube.Watch{Resource: kind.Applications}, h.take, slog.New(slog.DiscardHandler), rand.Float64)
	go func() { _ = watcher.Run(ctx) }()
	return h, nil
}

// take processes a watch event of an Application.
func (h *hub) take(_ context.Context, in reconcile.Input) error {
	switch in := in.(type) {
	case reconcile.List:
		for _, o := range in.Objects {
			h.saw(o)
		}
	case reconcile.Observed:
		h.writes.Add(1)
		h.saw(in.Object)
	case reconcile.Deleted:
		h.writes.Add(1)
		h.count.Add(-1)
	}
	select {
	case h.changed <- struct{}{}:
	default:
	}
	return nil
}

func (h *hub) saw(o *kind.Object) {
	name := o.Namespace() + "/" + o.Name()
	h.status.saw(name, rawjson.Text(o.Get("status", "health"), "message"))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.written != nil {
		h.written(name)
	}
	before, known := h.waiting[name]
	waits := o.Annotation("argocd.argoproj.io/refresh") != ""
	h.waiting[name] = waits
	if !known {
		h.count.Add(1)
	}
	switch {
	case waits && !before:
		h.refreshes.Add(1)
	case !waits && before:
		h.refreshes.Add(-1)
	}
}

// until waits for a condition on the Applications.
func (h *hub) until(ctx context.Context, what string, reached func() bool) error {
	limit := time.NewTimer(10 * time.Minute)
	defer limit.Stop()
	for !reached() {
		select {
		case <-h.changed:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("%s: not so after 10 minutes", what)
		}
	}
	return nil
}

// application returns an Application as users write it.
func application(namespace, name, destination, revision string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{"project": "default",
			"source":      map[string]any{"repoURL": "https://git.example.org/team/app.git", "path": "deploy", "targetRevision": revision},
			"destination": map[string]any{"name": destination, "namespace": "default"}},
	}}
}

// openProject creates the AppProject of all Applications. It permits all clusters.
func (h *hub) openProject(ctx context.Context) error {
	_, err := h.client.Resource(appProjects).Namespace(argocd).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "default", "namespace": argocd},
		"spec": map[string]any{"sourceRepos": []any{"*"}, "sourceNamespaces": []any{"*"}, "destinations": []any{map[string]any{"name": "*", "namespace": "*"}}},
	}}, metav1.CreateOptions{})
	return err
}

func (h *hub) namespace(ctx context.Context, name string) error {
	_, err := h.client.Resource(namespaces).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}, metav1.CreateOptions{})
	return err
}

// namespacesReady waits until Kubernetes has written its objects into n new namespaces. It is not part of what is measured.
func (h *hub) namespacesReady(ctx context.Context, n int) error {
	for range 600 {
		list, err := h.client.Resource(configMaps).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=kube-root-ca.crt"})
		if err != nil {
			return fmt.Errorf("list ConfigMaps of new namespaces: %w", err)
		}
		if len(list.Items) >= n {
			return nil
		}
		if pause(ctx, time.Second); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("Kubernetes has not written ConfigMap kube-root-ca.crt into %d namespaces within ten minutes", n)
}

func (h *hub) create(ctx context.Context, app *unstructured.Unstructured) error {
	_, err := h.client.Resource(applications).Namespace(app.GetNamespace()).Create(ctx, app, metav1.CreateOptions{})
	return err
}

func (h *hub) patch(ctx context.Context, namespace, name, body string) error {
	_, err := h.client.Resource(applications).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	return err
}

// writers is the number of concurrent requests for bulk writes.
const writers = 16

// parallel calls a function n times with several goroutines.
func parallel(n int, do func(i int) error) error {
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for range writers {
		wg.Go(func() {
			for failed.Load() == 0 {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					failed.Add(1)
					once.Do(func() { first = err })
				}
			}
		})
	}
	wg.Wait()
	return first
}

// fetch returns the body of a page, such as a profile.
func fetch(ctx context.Context, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}
