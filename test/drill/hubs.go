package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

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

// switched runs each failover once. The next one goes the other way.
func (d *drill) switched(ctx context.Context) error {
	for _, f := range d.failovers() {
		d.printf("%s", f.name)
		if err := d.apply(ctx, f, 5); err != nil {
			return err
		}
		if err := d.compare(ctx); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// failovers are faults after which the other hub is active. Their repair makes the old hub the standby.
func (d *drill) failovers() []fault {
	if !d.hubs || !d.failover {
		return nil
	}
	failover := func(name string, separate separation) fault {
		return fault{name, name, func(ctx context.Context) (func(context.Context) error, error) {
			if d.random.IntN(2) == 0 {
				return d.takeOverBehind(ctx, separate)
			}
			if err := d.received(ctx); err != nil {
				return nil, err
			}
			d.printf("   the standby on %s has everything", d.standby())
			repair, err := d.takeOver(ctx, separate)
			if err != nil {
				return nil, err
			}
			return repair, d.serving(ctx)
		}}
	}
	const planned = "the hubs are switched"
	return []fault{
		failover("the active hub is killed, and the standby is promoted", d.killHub),
		failover("the active hub is separated, and the standby is promoted", d.separateHub),
		{planned, planned, func(ctx context.Context) (func(context.Context) error, error) { return nothing, d.switchHubs(ctx) }},
	}
}

// separation makes a hub unreachable. The function that it returns brings it back.
type separation func(ctx context.Context, hub string) (back func(context.Context) error, err error)

// takeOver promotes the standby after the active hub has become unreachable. The repair makes the old hub the standby.
func (d *drill) takeOver(ctx context.Context, separate separation) (repair func(context.Context) error, err error) {
	old, next := d.active, d.standby()
	back, err := separate(ctx, old)
	if err != nil {
		return nil, err
	}
	if err := d.product.Hubs.Replace(ctx, next); err != nil {
		return nil, err
	}
	lost := d.sites[old]
	delete(d.sites, old) // it is not compared until it is the standby
	d.active = next
	return func(ctx context.Context) error {
		if err := back(ctx); err != nil {
			return err
		}
		d.sites[old] = lost
		return d.retry(ctx, "the old hub to become the standby", func(ctx context.Context) error { return d.product.Hubs.Demote(ctx, old, next) })
	}, nil
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
