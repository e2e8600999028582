package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// quiet is how long both sides must stay equal.
const quiet = 3 * time.Second

// compare waits until both sides are equal and everything has run. It then checks what must be true in spite of all faults.
func (d *drill) compare(ctx context.Context) error {
	if err := d.await(ctx, d.differences); err != nil {
		return err
	}
	d.printf("equal: %d Applications", d.live())
	return d.check(ctx)
}

// await waits until a function returns no differences for a while.
func (d *drill) await(ctx context.Context, differences func(context.Context) ([]string, error)) error {
	var left []string
	var equalSince time.Time
	printed := time.Now()
	for deadline := time.Now().Add(d.patience); time.Now().Before(deadline); {
		found, err := differences(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			left, equalSince = []string{err.Error()}, time.Time{}
		case len(found) > 0:
			left, equalSince = found, time.Time{}
		case equalSince.IsZero():
			equalSince = time.Now()
		case time.Since(equalSince) >= quiet:
			return nil
		}
		if time.Since(printed) >= 30*time.Second {
			d.printf("   not equal yet: %s", strings.Join(left, "; "))
			printed = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return fmt.Errorf("both sides are not equal after %v:\n  %s", d.patience, strings.Join(left, "\n  "))
}

func (d *drill) live() (n int) {
	for _, a := range d.apps {
		if a.created && !a.deleted {
			n++
		}
	}
	return n
}

// lists are the Applications of the drill by cluster and name.
type lists map[string]map[string]*unstructured.Unstructured

// lists reads all clusters.
func (d *drill) lists(ctx context.Context) (lists, error) {
	all := lists{}
	for name, s := range d.sites {
		list, err := s.client.Resource(applications).List(ctx, metav1.ListOptions{LabelSelector: "drill=true"})
		if err != nil {
			return nil, err
		}
		all[name] = map[string]*unstructured.Unstructured{}
		for i := range list.Items {
			u := &list.Items[i]
			all[name][u.GetName()] = u
		}
	}
	return all, nil
}

// differences returns what differs between owner and replica, and what still runs.
func (d *drill) differences(ctx context.Context) (found []string, err error) {
	all, err := d.lists(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range d.apps {
		hub, spoke := all[d.active][a.name], all[a.mode][a.name]
		owner, replica := hub, spoke
		if a.mode == autonomous {
			owner, replica = spoke, hub
		}
		if d := difference(a, owner, replica); d != "" {
			found = append(found, a.mode+" "+a.name+": "+d)
		}
	}
	if d.sites[secondName] != nil {
		found = append(found, standbyDifferences(all[d.active], all[d.standby()])...)
	}
	disconnected, err := d.disconnected(ctx)
	return append(found, disconnected...), err
}

func (d *drill) disconnected(ctx context.Context) (found []string, err error) {
	list, err := d.hub().client.Resource(agents).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if name := list.Items[i].GetName(); name != managed && name != autonomous {
			continue // a standby. Its objects are compared
		}
		if connected, _, _ := unstructured.NestedBool(list.Items[i].Object, "status", "connected"); !connected {
			found = append(found, "agent "+list.Items[i].GetName()+" is not connected")
		}
	}
	return found, nil
}

// owned returns an Application on the side that owns it.
func (d *drill) owned(all lists, a *app) *unstructured.Unstructured {
	if a.mode == autonomous {
		return all[autonomous][a.name]
	}
	return all[d.active][a.name]
}

// standbyDifferences returns what differs between the active hub and its standby.
func standbyDifferences(active, standby map[string]*unstructured.Unstructured) (found []string) {
	for name := range standby {
		if active[name] == nil {
			found = append(found, "only the standby has "+name)
		}
	}
	for name, u := range active {
		replica := standby[name]
		if replica == nil {
			found = append(found, "the standby lacks "+name)
			continue
		}
		for _, field := range []string{"spec", "operation", "status"} {
			if !reflect.DeepEqual(u.Object[field], replica.Object[field]) {
				found = append(found, fmt.Sprintf("%s of %s differs on the standby", field, name))
			}
		}
	}
	slices.Sort(found)
	return found
}

func difference(a *app, owner, replica *unstructured.Unstructured) string {
	switch {
	case owner == nil && replica == nil:
		return ""
	case owner == nil:
		return "only the replica exists"
	case replica == nil:
		return "there is no replica"
	case owner.GetDeletionTimestamp() != nil || replica.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	}
	for _, field := range []string{"source", "info", "syncPolicy"} {
		of := func(u *unstructured.Unstructured) any {
			value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", field)
			return value
		}
		if !reflect.DeepEqual(of(owner), of(replica)) {
			return fmt.Sprintf("spec.%s is %v on the owner and %v on the replica", field, of(owner), of(replica))
		}
	}
	for _, u := range []*unstructured.Unstructured{owner, replica} {
		if u.Object["operation"] != nil || slices.Contains([]string{"Running", "Terminating"}, text(u, "status", "operationState", "phase")) {
			return "an operation is not finished"
		}
	}
	if before, after := commandOf(owner), commandOf(replica); before != after {
		return fmt.Sprintf("the last command is %s on the owner and %s on the replica", before, after)
	}
	if a.last != "" && !a.doubtful && commandOf(owner) != a.last {
		return fmt.Sprintf("the last command is %s instead of %s", commandOf(owner), a.last)
	}
	return ""
}

// commandOf returns the number of the last sync that ran.
func commandOf(u *unstructured.Unstructured) string {
	info, _, _ := unstructured.NestedSlice(u.Object, "status", "operationState", "operation", "info")
	for _, one := range info {
		if pair, _ := one.(map[string]any); pair["name"] == "drill" {
			value, _ := pair["value"].(string)
			return value
		}
	}
	return ""
}

// check checks what must be true after all faults. A violation does not go away.
func (d *drill) check(ctx context.Context) error {
	all, err := d.lists(ctx)
	if err != nil {
		return err
	}
	var failures []error
	known := map[string]bool{}
	for _, a := range d.apps {
		known[a.name] = true
		at := d.owned(all, a)
		failures = append(failures, d.checkApp(ctx, a, at, all[a.mode][a.name]))
	}
	for cluster, apps := range all {
		for name := range apps {
			if !known[name] {
				failures = append(failures, fmt.Errorf("no user created %s on %s", name, cluster))
			}
		}
	}
	return errors.Join(failures...)
}

func (d *drill) checkApp(ctx context.Context, a *app, owner, spoke *unstructured.Unstructured) error {
	switch {
	case owner == nil && a.created && !a.deleted:
		return fmt.Errorf("%s %s is gone, and no user deleted it", a.mode, a.name)
	case owner == nil:
		return nil
	case a.deleted: // the request was not confirmed
		a.deleted = false
	}
	a.created = true
	history, _, _ := unstructured.NestedSlice(spoke.Object, "status", "history")
	if len(history) > 0 {
		last, _ := history[len(history)-1].(map[string]any)
		if id, _ := last["id"].(int64); int(id)+1 > a.commands {
			return fmt.Errorf("%s %s was synced %d times for %d commands", a.mode, a.name, id+1, a.commands)
		}
	}
	workload, err := d.sites[a.mode].client.Resource(configMaps).Namespace(a.name).Get(ctx, "guestbook", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && a.workload == "":
		return nil
	case err != nil:
		return fmt.Errorf("workload of %s %s: %w", a.mode, a.name, err)
	case a.workload != "" && a.workload != string(workload.GetUID()):
		return fmt.Errorf("the workload of %s %s was deleted and created again", a.mode, a.name)
	}
	a.workload = string(workload.GetUID())
	return nil
}

// compareRestored waits until all agents are connected after a restore, and checks that the other clusters still have what
// they had before. It confirms what is held. Then both sides must become equal.
func (d *drill) compareRestored(ctx context.Context, name string, before lists) error {
	for _, a := range d.apps { // commands of the restored time may be forgotten
		a.doubtful = true
	}
	if err := d.await(ctx, func(ctx context.Context) ([]string, error) { return d.missing(ctx, name, before) }); err != nil {
		return err
	}
	if err := d.await(ctx, func(ctx context.Context) ([]string, error) {
		if err := d.confirmHolds(ctx); err != nil {
			return nil, err
		}
		return d.differences(ctx)
	}); err != nil {
		return err
	}
	all, err := d.lists(ctx)
	if err != nil {
		return err
	}
	for _, a := range d.apps { // what the owner has now counts
		at := d.owned(all, a)
		a.created, a.deleted = at != nil, at == nil
		a.workload, a.commands = "", a.commands+1 // a command of the restored time can run again
	}
	d.printf("equal after the restore: %d Applications", d.live())
	return d.check(ctx)
}

// missing returns the Applications that a cluster has lost since another one was restored, and agents that are not connected.
func (d *drill) missing(ctx context.Context, restored string, before lists) ([]string, error) {
	all, err := d.lists(ctx)
	if err != nil {
		return nil, err
	}
	found, err := d.disconnected(ctx)
	for cluster, apps := range before {
		concerned := cluster == d.active || restored == d.active // the two workload clusters do not know each other
		for name, u := range apps {
			if cluster != restored && concerned && all[cluster][name] == nil && (restored == d.active || u.GetNamespace() == restored) {
				found = append(found, fmt.Sprintf("%s was deleted on %s after the restore of %s", name, cluster, restored))
			}
		}
	}
	return found, err
}

// confirmHolds confirms everything that is held, as a user does with argocd-agentctl.
func (d *drill) confirmHolds(ctx context.Context) error {
	hub := d.hub().client.Resource(agents)
	list, err := hub.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		u := &list.Items[i]
		holds, _, _ := unstructured.NestedSlice(u.Object, "status", "holds")
		for _, one := range holds {
			hold, _ := one.(map[string]any)
			id, _ := hold["id"].(string)
			if id == "" || u.GetAnnotations()[confirmAnnotation] == id {
				continue
			}
			d.printf("   confirm %s of agent %s: %v", id, u.GetName(), hold["reason"])
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, confirmAnnotation, id)
			if _, err := hub.Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				return err
			}
			break // one at a time
		}
	}
	return nil
}

const confirmAnnotation = "argocd-agent.argoproj-labs.io/confirm"
