package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

// identity is that of both hubs. It is not the UID of a cluster, so that it is lost with the hub.
const identity = "11111111-2222-3333-4444-555555555555"

// hub returns the active hub.
func (d *drill) hub() *site { return d.sites[d.active] }

// standby returns the name of the hub that is not active.
func (d *drill) standby() string {
	if d.active == hubName {
		return secondName
	}
	return hubName
}

// principal returns the principal of a hub.
func (d *drill) principal(hub string) *product.Program {
	if hub == hubName {
		return d.product.Principal
	}
	return d.product.Hubs.Second
}

func (d *drill) empty() string { return filepath.Join(filepath.Dir(d.binary), "empty.db") }

// startHubs starts the principals.
func (d *drill) startHubs(ctx context.Context, folder string) error {
	if !d.hubs {
		return d.product.StartPrincipal(ctx)
	}
	cli, err := product.BuildCLI(ctx, folder)
	if err != nil {
		return err
	}
	d.sites[secondName] = newSite(d.lab.Cluster(secondName))
	if err := d.product.PrepareHubs(ctx, cli, identity); err != nil {
		return err
	}
	if err := d.lab.Hub().Snapshot(ctx, d.empty()); err != nil { // a new hub, for the rebuild
		return err
	}
	return d.product.StartHubs(ctx)
}

// pick returns a random fault. One of ten is a failover.
func (d *drill) pick(faults []fault) fault {
	if d.hubs && d.failover && d.random.IntN(10) == 0 {
		all := d.failovers()
		return all[d.random.IntN(len(all))]
	}
	return faults[d.random.IntN(len(faults))]
}

// switched runs each failover once. The next one goes the other way.
func (d *drill) switched(ctx context.Context) error {
	if !d.hubs || !d.failover {
		return nil
	}
	for _, f := range d.failovers() {
		d.printf("%s", f.name)
		repair, err := f.inject(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		d.editSome(ctx, 5)
		if err := repair(ctx); err != nil {
			return fmt.Errorf("repair after %s: %w", f.name, err)
		}
		if err := d.compare(ctx); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// failovers are faults after which the other hub is active. Their repair makes the old hub the standby.
func (d *drill) failovers() []fault {
	failover := func(name string, separate func(context.Context, string) (func(context.Context) error, error)) fault {
		return fault{name, func(ctx context.Context) (func(context.Context) error, error) {
			if err := d.received(ctx); err != nil {
				return nil, err
			}
			old := d.active
			d.printf("   the standby on %s has everything", d.standby())
			back, err := separate(ctx, old)
			if err != nil {
				return nil, err
			}
			if err := d.product.Hubs.Replace(ctx, d.standby()); err != nil {
				return nil, err
			}
			d.active = d.standby()
			if err := d.serving(ctx); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				if err := back(ctx); err != nil {
					return err
				}
				return d.retry(ctx, "the old hub to become the standby", func(ctx context.Context) error { return d.product.Hubs.Demote(ctx, old, d.active) })
			}, nil
		}}
	}
	return []fault{
		failover("the active hub is killed, and the standby is promoted", d.killHub),
		failover("the active hub is separated, and the standby is promoted", d.separateHub),
		{"the hubs are switched", func(ctx context.Context) (func(context.Context) error, error) { return nothing, d.switchHubs(ctx) }},
	}
}

// switchHubs makes the standby the active hub, as users do for maintenance.
func (d *drill) switchHubs(ctx context.Context) error {
	if err := d.received(ctx); err != nil {
		return err
	}
	if err := d.product.Hubs.Switch(ctx, d.active, d.standby()); err != nil {
		return err
	}
	d.active = d.standby()
	return d.serving(ctx)
}

// killHub kills the principal, the API server and etcd of a hub.
func (d *drill) killHub(ctx context.Context, hub string) (func(context.Context) error, error) {
	p := d.principal(hub)
	p.Kill()
	for _, component := range []string{"kube-apiserver", "etcd"} {
		if err := d.lab.Kill(ctx, hub+"/"+component); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		for _, component := range []string{"etcd", "kube-apiserver"} {
			if err := d.lab.Restart(ctx, hub+"/"+component); err != nil {
				return err
			}
		}
		return p.Start()
	}, nil
}

// separateHub separates a hub from its agents and from the other hub. It continues to run, and its principal is active.
func (d *drill) separateHub(_ context.Context, hub string) (func(context.Context) error, error) {
	var links []*faultproxy.Link
	for _, a := range d.product.Agents {
		if hub == hubName {
			links = append(links, a.Link)
		} else {
			links = append(links, a.Second)
		}
	}
	other := secondName
	if hub == secondName {
		other = hubName
	}
	links = append(links, d.product.Hubs.Links[other])
	for _, l := range links {
		if err := l.Cut(faultproxy.Refuse); err != nil {
			return nil, err
		}
	}
	return func(context.Context) error {
		for _, l := range links {
			if err := l.Restore(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// received waits until both sides are equal and the standby has everything that the active hub has stored so far.
func (d *drill) received(ctx context.Context) error {
	if err := d.compare(ctx); err != nil {
		return err
	}
	list, err := d.hub().client.Resource(applications).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	revision, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return fmt.Errorf("resourceVersion of the active hub: %w", err)
	}
	namespace, err := d.hub().cluster.Client().CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return d.retry(ctx, "the standby to receive everything", func(ctx context.Context) error {
		uid, got, err := product.Received(ctx, d.sites[d.standby()].cluster)
		if err == nil && (uid != string(namespace.GetUID()) || got < revision) {
			err = fmt.Errorf("received %s/%d, not %s/%d", uid, got, namespace.GetUID(), revision)
		}
		return err
	})
}

// serving waits until the agents are connected to the active hub.
func (d *drill) serving(ctx context.Context) error {
	return d.retry(ctx, "agents to be connected to "+d.active, func(ctx context.Context) error {
		found, err := d.disconnected(ctx)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("%v", found)
		}
		return err
	})
}

// retry repeats an action until it succeeds.
func (d *drill) retry(ctx context.Context, what string, do func(context.Context) error) error {
	deadline := time.Now().Add(d.patience)
	for {
		err := do(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(deadline):
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// rebuilt loses etcd of the first hub, while there is no standby. The hub is rebuilt from its agents: every Application is back,
// and no workload changes.
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
		for name, u := range before[cluster] {
			now := all[cluster][name]
			if now == nil || now.GetUID() != u.GetUID() || now.GetDeletionTimestamp() != nil {
				return fmt.Errorf("%s on %s was deleted or replaced", name, cluster)
			}
			if !equality.Semantic.DeepEqual(now.Object["spec"], u.Object["spec"]) {
				return fmt.Errorf("the spec of %s on %s changed from %v to %v", name, cluster, u.Object["spec"], now.Object["spec"])
			}
		}
	}
	return nil
}
