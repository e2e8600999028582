package main

import (
	"context"
	"fmt"
)

// rebuilt loses etcd of the first hub, while there is no standby. The hub is rebuilt from its agents: every Application is
// back, and no workload changes.
func (d *drill) rebuilt(ctx context.Context) error {
	if !d.hubs {
		return nil
	}
	if d.active != hubName {
		d.printf("the hubs are switched")
		if err := d.switchHubs(ctx); err != nil {
			return err
		}
	}
	if err := d.compare(ctx); err != nil {
		return err
	}
	before, err := d.lists(ctx)
	if err != nil {
		return err
	}
	generation, err := d.product.Hubs.Generation(ctx)
	if err != nil {
		return err
	}
	d.product.Hubs.Second.Kill()
	delete(d.sites, secondName)
	d.printf("%s: etcd is lost, and the hub is installed again", hubName)
	d.product.Principal.Kill()
	if err := d.lab.Hub().Restore(ctx, d.empty()); err != nil {
		return err
	}
	// Agents with several addresses follow only a hub with the identity that they know, see docs/disaster-recovery.md.
	if err := d.product.Hubs.SetState(ctx, generation+1); err != nil {
		return err
	}
	for _, mode := range []string{managed, autonomous} {
		if err := d.product.Register(ctx, mode, mode); err != nil {
			return err
		}
	}
	if err := d.product.Principal.Start(); err != nil {
		return err
	}
	if err := d.serving(ctx); err != nil {
		return err
	}
	steps := [][]string{{}, {"--apply", "--yes"}, {}, {"--confirm", "--yes"}}
	for _, flags := range steps {
		d.printf("   argocd-agentctl hub rebuild %v", flags)
		if err := d.retry(ctx, "hub rebuild", func(ctx context.Context) error {
			_, err := d.product.Hubs.Rebuild(ctx, flags...)
			return err
		}); err != nil {
			return err
		}
		if err := d.unchanged(ctx, before); err != nil {
			return err
		}
	}
	for _, a := range d.apps { // agents do not have finalizers of users
		a.kept = a.kept && a.mode != managed
	}
	if err := d.settleObjects(ctx, func(o *object) bool { return o.resource == agents }); err != nil { // registered again
		return err
	}
	if err := d.compare(ctx); err != nil {
		return err
	}
	return d.unchanged(ctx, before)
}

// unchanged checks that workload clusters have the same Applications with the same specs as before.
func (d *drill) unchanged(ctx context.Context, before lists) error {
	all, err := d.lists(ctx)
	if err != nil {
		return err
	}
	for _, cluster := range []string{managed, autonomous} {
		for k, u := range before[cluster] {
			if d := changed(u, all[cluster][k], true); d != "" {
				return fmt.Errorf("%s on %s %s", k, cluster, d)
			}
		}
	}
	return nil
}
