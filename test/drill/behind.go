package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// takeOverBehind promotes the standby right after edits, which it may lack. What users then confirm counts.
func (d *drill) takeOverBehind(ctx context.Context, separate separation) (repair func(context.Context) error, err error) {
	if err := d.compare(ctx); err != nil {
		return nil, err
	}
	d.editSome(ctx, 5)
	old := d.active
	before, err := d.lists(ctx)
	if err != nil {
		return nil, err
	}
	d.printf("   the standby on %s may lack the last changes", d.standby())
	back, err := d.takeOver(ctx, separate)
	if err != nil {
		return nil, err
	}
	delete(before, old)
	return d.withDeletions(back), d.confirmAndCompare(ctx, d.active, before, false)
}

// withDeletions returns a repair after which the standby has no Applications that only it has.
func (d *drill) withDeletions(repair func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := repair(ctx); err != nil {
			return err
		}
		return d.retry(ctx, "Applications that only the old hub has to be deleted", d.deleteUnwanted)
	}
}

// promotedBehind promotes a standby that lacks the last changes of the lost hub. Agents keep what they have of these changes
// until a user confirms. Then what the promoted hub has counts.
func (d *drill) promotedBehind(ctx context.Context) error {
	if !d.hubs || !d.failover {
		return nil
	}
	if err := d.received(ctx); err != nil {
		return err
	}
	old, next := d.active, d.standby()
	d.printf("the standby on %s is separated, and users edit", next)
	link := d.product.Hubs.Links[next]
	if err := link.Cut(faultproxy.Refuse); err != nil {
		return err
	}
	standby := d.sites[next]
	delete(d.sites, next) // it is not compared until it is active
	for range 2 {
		d.create(ctx, managed)
		d.create(ctx, autonomous)
		d.remove(ctx)
	}
	for range 8 {
		d.change(ctx)
	}
	for range 4 {
		d.editObject(ctx)
	}
	if err := d.compare(ctx); err != nil {
		return err
	}
	before, err := d.lists(ctx)
	if err != nil {
		return err
	}
	d.printf("the active hub is killed, and the standby is promoted without the last changes")
	d.sites[next] = standby
	back, err := d.takeOver(ctx, d.killHub)
	if err != nil {
		return err
	}
	delete(before, old)
	if err := d.confirmAndCompare(ctx, next, before, true); err != nil {
		return err
	}
	if err := link.Restore(); err != nil {
		return err
	}
	if err := d.withDeletions(back)(ctx); err != nil {
		return err
	}
	return d.compare(ctx)
}

// deleteUnwanted deletes Applications of the standby that it had as the active hub and the active hub lacks, as
// docs/hubs.md describes. Nothing acts on their finalizers.
func (d *drill) deleteUnwanted(ctx context.Context) error {
	all, err := d.lists(ctx)
	if err != nil {
		return err
	}
	for k := range all[d.standby()] {
		if all[d.active][k] != nil {
			continue
		}
		d.printf("   delete %s on the standby", k)
		at := place{d.sites[d.standby()], k.Namespace}.apps()
		_, err := at.Patch(ctx, k.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err == nil {
			err = at.Delete(ctx, k.Name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s: %w", k, err)
		}
	}
	return nil
}
