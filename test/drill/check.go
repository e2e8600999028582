package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// This file checks what must be true after all faults. A violation does not go away.

func (d *drill) check(ctx context.Context) error {
	all, err := d.lists(ctx)
	if err != nil {
		return err
	}
	for _, a := range d.apps {
		d.failures = append(d.failures, d.checkApp(ctx, a, d.owned(all, a), all[a.mode][a.spokeKey()]))
	}
	others, err := d.configuration(ctx)
	if err != nil {
		return err
	}
	d.failures = append(d.failures, d.checkPlaces(all), d.checkConfiguration(others))
	return errors.Join(append(d.failures, d.checkObjects(ctx))...)
}

// checkPlaces checks that each Application is only on hubs, in the namespace of its agent, and on the cluster of its agent.
func (d *drill) checkPlaces(all lists) error {
	known := map[string]map[key]bool{hubName: {}, secondName: {}, managed: {}, autonomous: {}}
	for _, a := range d.apps {
		known[hubName][a.hubKey()], known[secondName][a.hubKey()], known[a.mode][a.spokeKey()] = true, true, true
	}
	var failures []error
	for cluster, apps := range all {
		for k := range apps {
			if !known[cluster][k] {
				failures = append(failures, fmt.Errorf("no user created %s on %s", k, cluster))
			}
		}
	}
	return errors.Join(failures...)
}

// clusterResource is one resource on one cluster.
type clusterResource struct{ cluster, resource string }

// configuration returns the AppProjects and credentials of the workload clusters.
func (d *drill) configuration(ctx context.Context) (map[clusterResource][]string, error) {
	all := map[clusterResource][]string{}
	for _, cluster := range []string{managed, autonomous} {
		for r, selector := range map[resource]string{projects: "", secrets: "argocd.argoproj.io/secret-type"} {
			list, err := d.sites[cluster].client.Resource(r).Namespace(lab.ArgoCDNamespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
			if err != nil {
				return nil, err
			}
			for _, u := range list.Items {
				at := clusterResource{cluster, r.Resource}
				all[at] = append(all[at], u.GetName())
			}
		}
	}
	return all, nil
}

// checkConfiguration checks that workload clusters have no AppProjects and no credentials of others.
func (d *drill) checkConfiguration(all map[clusterResource][]string) error {
	known := map[clusterResource][]string{}
	for _, o := range d.objects {
		for _, l := range []location{o.owner, o.replica} {
			at := clusterResource{l.cluster, o.resource.Resource}
			known[at] = append(known[at], l.name)
		}
	}
	var failures []error
	for at, names := range all {
		for _, name := range names {
			if !slices.Contains(known[at], name) {
				failures = append(failures, fmt.Errorf("%s %s does not belong on %s", at.resource, name, at.cluster))
			}
		}
	}
	return errors.Join(failures...)
}

func (d *drill) checkApp(ctx context.Context, a *app, owner, spoke *unstructured.Unstructured) error {
	switch {
	case owner == nil && a.created && !a.deleted:
		return fmt.Errorf("%v is gone, and no user deleted it", a)
	case owner == nil:
		return d.checkDeleted(ctx, a)
	case a.confirmed:
		return fmt.Errorf("%v is still there or there again, and a user deleted it", a)
	case spoke == nil:
		return fmt.Errorf("%v is gone from its workload cluster", a)
	case a.uid != "" && a.uid != spoke.GetUID():
		return fmt.Errorf("%v was deleted and created again on its workload cluster", a)
	}
	a.created, a.deleted, a.asked, a.uid = true, false, false, spoke.GetUID() // if a user asked for the deletion, it had no effect
	kept := slices.Contains(owner.GetFinalizers(), userFinalizer)
	if a.kept && !a.released && !kept {
		return fmt.Errorf("%v has lost the finalizer of its user", a)
	}
	a.kept, a.released = kept, false
	if err := a.checkEdits(owner); err != nil {
		return err
	}
	d.see(a, owner)
	if err := a.checkCommands(spoke); err != nil {
		return err
	}
	uid, err := d.workload(ctx, a)
	switch {
	case err != nil:
		return err
	case a.workload != "" && a.workload != uid:
		return fmt.Errorf("the workload of %v was deleted, and is now %q", a, uid)
	}
	a.workload = uid
	return nil
}

// checkEdits checks that no confirmed edit is lost.
func (a *app) checkEdits(owner *unstructured.Unstructured) error {
	for what, field := range a.fields(owner) {
		if !field.allows(field.now) {
			return fmt.Errorf("%v has %s %q instead of %+v", a, what, field.now, *field.value)
		}
		field.settle(field.now)
	}
	return nil
}

// field is what users wrote to a field, and what it has now.
type field struct {
	*value
	now string
}

func (a *app) fields(u *unstructured.Unstructured) map[string]field {
	info := ""
	if list, _, _ := unstructured.NestedSlice(u.Object, "spec", "info"); len(list) > 0 {
		one, _ := list[0].(map[string]any)
		info, _ = one["value"].(string)
	}
	return map[string]field{"info": {&a.info, info}, "label": {&a.label, markOf(u)}, "annotation": {&a.annotation, u.GetAnnotations()[mark]}}
}

// see records what a user sees of the last command on the hub while no operation runs. A command that was confirmed has run.
func (d *drill) see(a *app, u *unstructured.Unstructured) {
	if a.last == a.ran || a.doubtful {
		return
	}
	if now := commandOf(u); now != a.last {
		d.failures = append(d.failures, fmt.Errorf("command %s of %v did not run: the last one is %q", a.last, a, now))
		return
	}
	a.ran = a.last
	d.ran++
	if phaseOf(u) == "Succeeded" {
		a.least++
	}
}

// checkCommands compares the history of the workload cluster with the commands of users since the last check.
func (a *app) checkCommands(spoke *unstructured.Unstructured) error {
	synced := 0
	if history, _, _ := unstructured.NestedSlice(spoke.Object, "status", "history"); len(history) > 0 {
		last, _ := history[len(history)-1].(map[string]any)
		id, _ := last["id"].(int64)
		synced = int(id) + 1
	}
	if synced > a.most || synced < a.least {
		return fmt.Errorf("%v was synced %d times, and not %d to %d times", a, synced, a.least, a.most)
	}
	a.least = synced
	if !a.doubtful { // no command is left that can run
		a.most = synced
	}
	return nil
}

// checkDeleted checks the workload of a deleted Application: it is gone if a user asked for that, and otherwise unchanged.
func (d *drill) checkDeleted(ctx context.Context, a *app) error {
	uid, err := d.workload(ctx, a)
	switch {
	case err != nil:
		return err
	case a.asked && a.cascade && uid != "":
		return fmt.Errorf("%v was deleted with its resources, and its workload is still there", a)
	case !(a.asked && a.cascade) && a.workload != "" && a.workload != uid:
		return fmt.Errorf("%v was removed without its resources, and its workload is now %q", a, uid)
	}
	a.workload = uid
	return nil
}

// workload returns the UID of the ConfigMap that an Application deploys. If there is none, "".
func (d *drill) workload(ctx context.Context, a *app) (string, error) {
	u, err := d.sites[a.mode].client.Resource(configMaps).Namespace(a.name).Get(ctx, "guestbook", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("workload of %v: %w", a, err)
	}
	return string(u.GetUID()), nil
}
