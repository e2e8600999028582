package main

import (
	"context"
	"fmt"
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

const (
	inCluster     = "https://kubernetes.default.svc"
	cascade       = "resources-finalizer.argocd.argoproj.io"
	userFinalizer = "drill.example.com/keep"
)

type resource = schema.GroupVersionResource

var (
	applications = resource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	projects     = resource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}
	agents       = resource{Group: "argocd-agent.argoproj-labs.io", Version: "v1alpha1", Resource: "agents"}
	secrets      = resource{Version: "v1", Resource: "secrets"}
	configMaps   = resource{Version: "v1", Resource: "configmaps"}
)

// site is a cluster with clients of its administrator.
type site struct {
	cluster *lab.Cluster
	client  dynamic.Interface // of the drill. A slow machine must not fail it
	users   dynamic.Interface // of users, who do not wait for a stopped API server
}

func newSite(c *lab.Cluster) *site {
	with := func(timeout time.Duration) dynamic.Interface {
		config := rest.CopyConfig(c.Admin())
		config.Timeout = timeout
		return dynamic.NewForConfigOrDie(config)
	}
	return &site{cluster: c, client: with(time.Minute), users: with(5 * time.Second)}
}

// app is an Application and what users did with it. What the owner side has counts.
type app struct {
	name, mode string
	cascade    bool
	kept       bool // it may have the finalizer of a user
	released   bool // a user asked to remove that finalizer, without a confirmation
	created    bool // the API server confirmed it
	deleted    bool // a user asked for it, maybe without a confirmation, or the owner lost it in a restore
	asked      bool // a user asked for the deletion
	confirmed  bool // the API server confirmed the deletion
	info       value
	label      value
	annotation value
	most       int       // syncs that the history of the workload cluster can have. A request without a confirmation may not have run
	least      int       // syncs that it must have: those of the last check, and those that users saw as succeeded since
	last       string    // last confirmed command
	doubtful   bool      // a command was not confirmed by the API server, or a cluster was restored since
	ran        string    // last command that a user saw as finished
	uid        types.UID // of the Application on the workload cluster
	workload   string    // UID of its ConfigMap
}

func (a *app) String() string { return a.mode + " " + a.name }

// key is the namespace and the name of an Application.
type key = types.NamespacedName

func (a *app) hubKey() key   { return key{Namespace: a.mode, Name: a.name} }
func (a *app) spokeKey() key { return key{Namespace: lab.ArgoCDNamespace, Name: a.name} }

// place is where an object is.
type place struct {
	site      *site
	namespace string
}

func (p place) apps() dynamic.ResourceInterface {
	return p.site.users.Resource(applications).Namespace(p.namespace)
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

func (d *drill) onHub(a *app) place   { return place{d.hub(), a.hubKey().Namespace} }
func (d *drill) onSpoke(a *app) place { return place{d.sites[a.mode], a.spokeKey().Namespace} }

// editSome lets users edit while something is broken. Requests can fail.
func (d *drill) editSome(ctx context.Context, n int) {
	for range n {
		if ctx.Err() != nil {
			return
		}
		switch mode := []string{managed, autonomous}[d.random.IntN(2)]; d.random.IntN(10) {
		case 0, 1:
			if d.count(mode) < maxApps {
				d.create(ctx, mode)
			}
		case 2:
			d.remove(ctx)
		case 3:
			d.editObject(ctx)
		case 4:
			d.readCache(ctx)
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

func (d *drill) count(mode string) (n int) {
	for _, a := range d.apps {
		if a.mode == mode && !a.deleted {
			n++
		}
	}
	return n
}

func (d *drill) create(ctx context.Context, mode string) {
	d.number++
	a := &app{name: fmt.Sprintf("drill-%03d", d.number), mode: mode, cascade: d.random.IntN(2) == 0, kept: d.random.IntN(4) == 0}
	a.label.settle("0")
	a.annotation.settle("0")
	destination := map[string]any{"namespace": a.name, "name": managed}
	if mode == autonomous {
		destination = map[string]any{"namespace": a.name, "server": inCluster}
	}
	metadata := map[string]any{"name": a.name, "labels": map[string]any{"drill": "true", mark: "0"}, "annotations": map[string]any{mark: "0"}}
	if finalizers := a.finalizers(); len(finalizers) > 0 {
		metadata["finalizers"] = finalizers
	}
	_, err := d.owner(a).apps().Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata,
		"spec": map[string]any{"project": []string{"default", projectName}[d.random.IntN(2)], "destination": destination,
			"source":     map[string]any{"repoURL": d.repo, "path": ".", "targetRevision": "HEAD"},
			"syncPolicy": map[string]any{"syncOptions": []any{"CreateNamespace=true"}}}}}, metav1.CreateOptions{})
	a.created = err == nil
	d.apps = append(d.apps, a)
	d.done("create "+a.String(), err)
}

func (a *app) finalizers() (all []any) {
	if a.cascade {
		all = append(all, cascade)
	}
	if a.kept {
		all = append(all, userFinalizer)
	}
	return all
}

// done prints an edit.
func (d *drill) done(what string, err error) {
	if err != nil {
		d.printf("   %s: %v", what, err)
		return
	}
	d.printf("   %s", what)
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
	if a.kept && !d.release(ctx, a) {
		return
	}
	err := d.owner(a).apps().Delete(ctx, a.name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) { // otherwise it was lost before, which the check notices
		a.deleted, a.asked, a.confirmed = true, true, err == nil
	}
	d.done("delete "+a.String(), err)
}

// release removes the finalizer of the user, as the user's controller does. It reports whether that was confirmed.
func (d *drill) release(ctx context.Context, a *app) bool {
	finalizers := "[]"
	if a.cascade {
		finalizers = fmt.Sprintf("[%q]", cascade)
	}
	err := d.patch(ctx, d.owner(a), a, fmt.Sprintf(`{"metadata":{"finalizers":%s}}`, finalizers))
	a.kept, a.released = err != nil, err != nil
	d.done("release "+a.String(), err)
	return err == nil
}

// change edits or syncs an Application, or tampers with its replica.
func (d *drill) change(ctx context.Context) {
	switch d.random.IntN(8) {
	case 0: // must be undone
		if a := d.some(anyApp); a != nil {
			_, _, patch := d.nextEdit(a)
			d.done("edit the replica of "+a.String(), d.patch(ctx, d.replica(a), a, patch))
		}
	case 1: // must be created again. With a finalizer, Argo CD would delete its workload first
		if a := d.some(func(a *app) bool { return !a.cascade }); a != nil {
			a.doubtful, a.least = true, 0 // a replica has the status of the last command, the history, or a command that waits
			if a.mode == managed {
				a.uid = ""
			}
			d.done("delete the replica of "+a.String(), d.replica(a).apps().Delete(ctx, a.name, metav1.DeleteOptions{}))
		}
	case 2, 3, 4:
		if a := d.some(anyApp); a != nil {
			d.sync(ctx, a)
		}
	default:
		if a := d.some(anyApp); a != nil {
			field, number, patch := d.nextEdit(a)
			err := d.patch(ctx, d.owner(a), a, patch)
			field.wrote(number, err)
			d.done("edit ("+number+") "+a.String(), err)
		}
	}
}

// nextEdit returns a field that users edit, its next value, and a patch for it that changes nothing in the cluster.
func (d *drill) nextEdit(a *app) (field *value, number, patch string) {
	d.number++
	number = strconv.Itoa(d.number)
	switch d.random.IntN(3) {
	case 0:
		return &a.label, number, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, mark, number)
	case 1:
		return &a.annotation, number, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, mark, number)
	default:
		return &a.info, number, fmt.Sprintf(`{"spec":{"info":[{"name":"drill","value":%q}]}}`, number)
	}
}

func (d *drill) patch(ctx context.Context, at place, a *app, patch string) error {
	_, err := at.apps().Patch(ctx, a.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// sync asks for a sync on the hub, as argocd-server does. It refuses a second operation.
func (d *drill) sync(ctx context.Context, a *app) {
	hub := d.onHub(a)
	u, err := hub.apps().Get(ctx, a.name, metav1.GetOptions{})
	if err != nil || u.Object["operation"] != nil || isRunning(u) {
		return
	}
	d.see(a, u)
	d.number++
	id := strconv.Itoa(d.number)
	a.most++
	err = d.patch(ctx, hub, a, fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"operation":{"initiatedBy":{"username":"drill"},"info":[{"name":"drill","value":%q}],"sync":{"syncStrategy":{"hook":{}}}}}`, u.GetResourceVersion(), id))
	switch {
	case err == nil:
		a.last, a.doubtful = id, false
		d.confirmed++
	case apierrors.IsConflict(err):
		a.most--
	default:
		a.doubtful = true
	}
	d.done("sync ("+id+") "+a.String(), err)
}
