package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

// Names of the clusters. Those of the workload clusters are also the names and modes of their agents.
const (
	hubName    = "hub" // the hub that is active first
	secondName = product.SecondHub
	managed    = "managed"
	autonomous = "autonomous"
)

const cascade = "resources-finalizer.argocd.argoproj.io"

var (
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	agents       = schema.GroupVersionResource{Group: "argocd-agent.argoproj-labs.io", Version: "v1alpha1", Resource: "agents"}
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// site is a cluster with a client of its administrator.
type site struct {
	cluster *lab.Cluster
	client  dynamic.Interface
}

func newSite(c *lab.Cluster) *site {
	config := rest.CopyConfig(c.Admin())
	config.Timeout = 5 * time.Second // a stopped API server does not answer
	return &site{cluster: c, client: dynamic.NewForConfigOrDie(config)}
}

// app is an Application and what users did with it. What the owner side has counts.
type app struct {
	name, mode string
	cascade    bool
	created    bool   // the API server confirmed it
	deleted    bool   // a user asked for it, maybe without a confirmation
	commands   int    // syncs that were asked for, maybe without a confirmation
	last       string // last confirmed command
	doubtful   bool   // a command was not confirmed by the API server, or a cluster was restored since
	workload   string // UID of its ConfigMap
}

// place is where an object is.
type place struct {
	site      *site
	namespace string
}

func (p place) apps() dynamic.ResourceInterface {
	return p.site.client.Resource(applications).Namespace(p.namespace)
}

// owner returns where users write the Application, and replica the other side.
func (d *drill) owner(a *app) place {
	if a.mode == managed {
		return d.onHub(a)
	}
	return d.onSpoke(a)
}

func (d *drill) replica(a *app) place {
	if a.mode == managed {
		return d.onSpoke(a)
	}
	return d.onHub(a)
}

func (d *drill) onHub(a *app) place   { return place{d.hub(), a.mode} }
func (d *drill) onSpoke(a *app) place { return place{d.sites[a.mode], lab.ArgoCDNamespace} }

// editSome lets users edit while something is broken. Requests can fail.
func (d *drill) editSome(ctx context.Context, n int) {
	for range n {
		if ctx.Err() != nil {
			return
		}
		switch mode := []string{managed, autonomous}[d.random.IntN(2)]; d.random.IntN(10) {
		case 0, 1:
			d.create(ctx, mode)
		case 2:
			d.remove(ctx)
		default:
			d.change(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(d.random.IntN(600)) * time.Millisecond):
		}
	}
}

// maxApps limits the Applications of one agent.
const maxApps = 15

func (d *drill) create(ctx context.Context, mode string) {
	n := 0
	for _, a := range d.apps {
		if a.mode == mode && !a.deleted {
			n++
		}
	}
	if n >= maxApps {
		return
	}
	d.number++
	a := &app{name: fmt.Sprintf("drill-%03d", d.number), mode: mode, cascade: d.random.IntN(2) == 0}
	destination := map[string]any{"namespace": a.name, "name": managed}
	if mode == autonomous {
		destination = map[string]any{"namespace": a.name, "server": "https://kubernetes.default.svc"}
	}
	metadata := map[string]any{"name": a.name, "labels": map[string]any{"drill": "true"}}
	if a.cascade {
		metadata["finalizers"] = []any{cascade}
	}
	_, err := d.owner(a).apps().Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata,
		"spec": map[string]any{"project": "default", "destination": destination,
			"source":     map[string]any{"repoURL": d.repo, "path": ".", "targetRevision": "HEAD"},
			"syncPolicy": map[string]any{"syncOptions": []any{"CreateNamespace=true"}}}}}, metav1.CreateOptions{})
	a.created = err == nil
	d.apps = append(d.apps, a)
	d.done("create", a, err)
}

// done prints an edit.
func (d *drill) done(what string, a *app, err error) {
	if err != nil {
		d.printf("   %s %s %s: %v", what, a.mode, a.name, err)
		return
	}
	d.printf("   %s %s %s", what, a.mode, a.name)
}

// some returns a random Application that was created and not deleted, or nil.
func (d *drill) some(with func(*app) bool) *app {
	var all []*app
	for _, a := range d.apps {
		if a.created && !a.deleted && with(a) {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[d.random.IntN(len(all))]
}

func anyApp(*app) bool { return true }

func (d *drill) remove(ctx context.Context) {
	a := d.some(anyApp)
	if a == nil {
		return
	}
	a.deleted = true
	err := d.owner(a).apps().Delete(ctx, a.name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	d.done("delete", a, err)
}

// change edits or syncs an Application, or tampers with its replica.
func (d *drill) change(ctx context.Context) {
	switch d.random.IntN(8) {
	case 0: // must be undone
		if a := d.some(anyApp); a != nil {
			d.done("edit the replica of", a, d.patch(ctx, d.replica(a), a, d.info()))
		}
	case 1: // must be created again. With a finalizer, Argo CD would delete its workload first
		if a := d.some(func(a *app) bool { return !a.cascade }); a != nil {
			a.doubtful = true // a replica has the status of the last command, or a command that waits
			d.done("delete the replica of", a, d.replica(a).apps().Delete(ctx, a.name, metav1.DeleteOptions{}))
		}
	case 2, 3, 4:
		if a := d.some(anyApp); a != nil {
			d.sync(ctx, a)
		}
	default:
		if a := d.some(anyApp); a != nil {
			d.done("edit", a, d.patch(ctx, d.owner(a), a, d.info()))
		}
	}
}

// info returns a patch of the spec that changes nothing in the cluster.
func (d *drill) info() string {
	d.number++
	return fmt.Sprintf(`{"spec":{"info":[{"name":"drill","value":"%d"}]}}`, d.number)
}

func (d *drill) patch(ctx context.Context, at place, a *app, patch string) error {
	_, err := at.apps().Patch(ctx, a.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// sync asks for a sync on the hub, as argocd-server does. It refuses a second operation.
func (d *drill) sync(ctx context.Context, a *app) {
	hub := d.onHub(a)
	u, err := hub.apps().Get(ctx, a.name, metav1.GetOptions{})
	if err != nil || u.Object["operation"] != nil || slices.Contains([]string{"Running", "Terminating"}, text(u, "status", "operationState", "phase")) {
		return
	}
	d.number++
	id := strconv.Itoa(d.number)
	a.commands++
	err = d.patch(ctx, hub, a, fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"operation":{"initiatedBy":{"username":"drill"},"info":[{"name":"drill","value":%q}],"sync":{"syncStrategy":{"hook":{}}}}}`, u.GetResourceVersion(), id))
	switch {
	case err == nil:
		a.last, a.doubtful = id, false
	case apierrors.IsConflict(err):
		a.commands--
	default:
		a.doubtful = true
	}
	d.done("sync ("+id+")", a, err)
}

func text(u *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(u.Object, path...)
	return value
}
