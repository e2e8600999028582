package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// violation is what must not happen at any time. It ends the wait for equality.
type violation struct{ error }

// await waits until a function returns no differences for a while.
func (d *drill) await(ctx context.Context, differences func(context.Context) ([]string, error)) error {
	var left []string
	var equalSince time.Time
	printed := time.Now()
	for deadline := time.Now().Add(d.patience); time.Now().Before(deadline); {
		found, err := differences(ctx)
		if _, ok := errors.AsType[violation](err); ok {
			return err
		}
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

// lists are the Applications of the drill by cluster.
type lists map[string]map[key]*unstructured.Unstructured

// lists reads all clusters.
func (d *drill) lists(ctx context.Context) (lists, error) {
	all := lists{}
	for name, s := range d.sites {
		list, err := s.client.Resource(applications).List(ctx, metav1.ListOptions{LabelSelector: "drill=true"})
		if err != nil {
			return nil, err
		}
		all[name] = map[key]*unstructured.Unstructured{}
		for i := range list.Items {
			u := &list.Items[i]
			all[name][key{Namespace: u.GetNamespace(), Name: u.GetName()}] = u
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
		hub, spoke := all[d.active][a.hubKey()], all[a.mode][a.spokeKey()]
		owner, replica := hub, spoke
		if a.mode == autonomous {
			owner, replica = spoke, hub
		}
		if d := difference(a, owner, replica); d != "" {
			found = append(found, fmt.Sprintf("%v: %s", a, d))
		}
	}
	for _, more := range []func(context.Context) ([]string, error){d.objectDifferences, d.standbyDiffers, d.disconnected, d.unreadable} {
		more, err := more(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// standbyDiffers returns what differs between the active hub and its standby.
func (d *drill) standbyDiffers(ctx context.Context) ([]string, error) {
	if d.sites[d.standby()] == nil {
		return nil, nil
	}
	active, err := d.standbyObjects(ctx, d.active)
	if err != nil {
		return nil, err
	}
	standby, err := d.standbyObjects(ctx, d.standby())
	return standbyDifferences(active, standby), err
}

// disconnected returns the agents that are not connected to the active hub, or not registered. The objects of a standby are
// compared.
func (d *drill) disconnected(ctx context.Context) (found []string, err error) {
	list, err := d.hub().client.Resource(agents).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	connected := map[string]bool{}
	for i := range list.Items {
		connected[list.Items[i].GetName()], _, _ = unstructured.NestedBool(list.Items[i].Object, "status", "connected")
	}
	for _, name := range []string{managed, autonomous} {
		if !connected[name] {
			found = append(found, "agent "+name+" is not connected")
		}
	}
	return found, nil
}

// owned returns an Application on the side that owns it.
func (d *drill) owned(all lists, a *app) *unstructured.Unstructured {
	if a.mode == autonomous {
		return all[autonomous][a.spokeKey()]
	}
	return all[d.active][a.hubKey()]
}
