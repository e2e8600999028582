package main

import (
	"context"
	"fmt"
	"path/filepath"
)

// restored restores each cluster from an older snapshot. What the restored cluster no longer has stays on the other side
// until it is confirmed.
func (d *drill) restored(ctx context.Context) error {
	for _, name := range []string{managed, autonomous, d.active} {
		if !d.restores || ctx.Err() != nil {
			return ctx.Err()
		}
		if err := d.restore(ctx, name); err != nil {
			return fmt.Errorf("restore %s: %w", name, err)
		}
	}
	return nil
}

func (d *drill) restore(ctx context.Context, name string) error {
	snapshot := filepath.Join(filepath.Dir(d.binary), name+".db")
	if err := d.sites[name].cluster.Snapshot(ctx, snapshot); err != nil {
		return err
	}
	d.printf("%s: snapshot", name)
	for range 2 {
		d.create(ctx, managed)
		d.create(ctx, autonomous)
	}
	for range 8 {
		d.change(ctx)
	}
	if err := d.compare(ctx); err != nil {
		return err
	}
	before, err := d.lists(ctx)
	if err != nil {
		return err
	}
	d.printf("%s: restored from the snapshot", name)
	if err := d.sites[name].cluster.Restore(ctx, snapshot); err != nil {
		return err
	}
	if name != d.active { // as administrators do: the controller of Argo CD would use what it has cached
		if err := d.lab.Restart(ctx, name+"/application-controller"); err != nil {
			return err
		}
	}
	for _, a := range d.apps {
		a.most++ // a command of the restored time can run again
		if a.mode == name {
			a.uid, a.workload, a.least = "", "", 0
		}
	}
	return d.confirmAndCompare(ctx, name, before, name == d.active)
}
