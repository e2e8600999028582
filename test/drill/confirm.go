package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// This file is about clusters that have lost changes: what they lost stays elsewhere until users confirm what they have.

// confirmAndCompare waits until all agents are connected after a hub or a workload cluster was restored, or a hub was promoted.
// It checks that the other clusters keep what they had before, until a user confirms that it goes: their Applications and, if
// specs is set, the specs on workload clusters. It then confirms what is held. Then both sides must become equal. What the
// cluster has that lost changes counts, and it must keep that. What other clusters own must be as users left it.
func (d *drill) confirmAndCompare(ctx context.Context, loser string, before lists, specs bool) error {
	for _, a := range d.apps { // commands of the lost time may be forgotten
		a.doubtful = true
	}
	delete(before, loser)
	confirmed := map[string]bool{}
	kept := func(ctx context.Context) error {
		all, err := d.lists(ctx)
		if err != nil {
			return err
		}
		return d.lost(loser, before, all, specs, confirmed)
	}
	if err := d.await(ctx, func(ctx context.Context) ([]string, error) {
		if err := kept(ctx); err != nil {
			return nil, err
		}
		return d.disconnected(ctx)
	}); err != nil {
		return err
	}
	all, err := d.lists(ctx)
	if err != nil {
		return err
	}
	before[loser] = all[loser]
	if err := d.await(ctx, func(ctx context.Context) ([]string, error) {
		if err := kept(ctx); err != nil {
			return nil, err
		}
		if err := d.confirmHolds(ctx, confirmed); err != nil {
			return nil, err
		}
		return d.differences(ctx)
	}); err != nil {
		return err
	}
	if all, err = d.lists(ctx); err != nil {
		return err
	}
	for _, a := range d.apps {
		if d.ownerOf(a.mode) == loser {
			a.settle(d.owned(all, a))
		}
	}
	if err := d.settleObjects(ctx, func(o *object) bool { return cmp.Or(o.owner.cluster, d.active) == loser }); err != nil {
		return err
	}
	d.printf("equal after the confirmation: %d Applications", d.live())
	return d.check(ctx)
}

// ownerOf returns the cluster that owns the Applications of an agent.
func (d *drill) ownerOf(mode string) string {
	if mode == managed {
		return d.active
	}
	return autonomous
}

// settle makes what the owner has count. If it is nil, the owner has no such Application.
func (a *app) settle(owner *unstructured.Unstructured) {
	if owner == nil {
		a.created, a.deleted = false, true
		return
	}
	if a.deleted { // it was created again
		a.deleted, a.asked, a.confirmed, a.uid, a.workload, a.least = false, false, false, "", "", 0
	}
	a.created = true
	a.kept, a.released = slices.Contains(owner.GetFinalizers(), userFinalizer), false
	for _, field := range a.fields(owner) {
		field.settle(field.now)
	}
}

// lost returns an error if a cluster has lost an Application, or specs is set and a workload cluster has another spec, after the
// loser has lost changes and before a user confirmed it. confirmed has the clusters whose holds were confirmed. What the loser
// owns must stay as it was in any case.
func (d *drill) lost(loser string, before, all lists, specs bool, confirmed map[string]bool) error {
	asked := map[string]bool{} // users deleted them, and the deletion may be on its way
	for _, a := range d.apps {
		asked[a.name] = a.deleted
	}
	for cluster, apps := range before {
		for k, u := range apps {
			if asked[k.Name] {
				continue
			}
			compareSpecs := specs && cluster != d.standby()
			switch {
			case cluster == loser:
				if loser == managed || loser == d.active && k.Namespace != managed {
					continue // a replica
				}
				compareSpecs = true
			case loser == d.active:
				if confirmed[cluster] {
					continue
				}
			case cluster != d.active || k.Namespace != loser || confirmed[loser]:
				continue // of another agent, or confirmed
			}
			if what := changed(u, all[cluster][k], compareSpecs); what != "" {
				return violation{fmt.Errorf("%s on %s %s after %s had lost changes, and no user asked for that", k, cluster, what, loser)}
			}
		}
	}
	return nil
}

// changed returns how an Application is no longer what it was: it was deleted, also if it was created again, or specs is set and
// it has another spec. If it is the same, changed returns "".
func changed(before, now *unstructured.Unstructured, specs bool) string {
	if now == nil || now.GetUID() != before.GetUID() || now.GetDeletionTimestamp() != nil && before.GetDeletionTimestamp() == nil {
		return "was deleted"
	}
	if specs && !equality.Semantic.DeepEqual(now.Object["spec"], before.Object["spec"]) {
		return fmt.Sprintf("got the spec %v instead of %v", now.Object["spec"], before.Object["spec"])
	}
	return ""
}

// confirmHolds confirms everything that is held, as a user does with argocd-agentctl. It adds the clusters to confirmed.
func (d *drill) confirmHolds(ctx context.Context, confirmed map[string]bool) error {
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
			confirmed[d.clusterOf(u)] = true
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

// clusterOf returns the cluster of an Agent.
func (d *drill) clusterOf(agent *unstructured.Unstructured) string {
	if text(agent, "spec", "mode") == "standby" {
		return d.standby()
	}
	return agent.GetName()
}

const confirmAnnotation = "argocd-agent.argoproj-labs.io/confirm"
