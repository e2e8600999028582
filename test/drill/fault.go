package main

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

// fault breaks something. The function that it returns repairs it.
type fault struct {
	name   string
	inject func(context.Context) (repair func(context.Context) error, err error)
}

func nothing(context.Context) error { return nil }

func (d *drill) faults() (all []fault) {
	for name, p := range d.programs() {
		all = append(all, d.programFaults(name, p)...)
	}
	for name, a := range d.product.Agents {
		all = append(all, linkFaults(name, a.Link)...)
		if a.Second != nil {
			all = append(all, linkFaults(name+" at the second hub", a.Second)...)
		}
	}
	if h := d.product.Hubs; h != nil {
		all = append(all, linkFaults("the standby on "+hubName, h.Links[hubName])...)
		all = append(all, linkFaults("the standby on "+secondName, h.Links[secondName])...)
	}
	for name := range d.sites {
		for _, component := range []string{"kube-apiserver", "etcd", "redis"} {
			if name == secondName && component == "redis" {
				continue // a bare cluster has none
			}
			all = append(all, d.componentFaults(name+"/"+component)...)
		}
		c := d.sites[name].cluster
		all = append(all, fault{"the disk of " + name + " is full", func(ctx context.Context) (func(context.Context) error, error) {
			return c.FreeDisk, c.FillDisk(ctx)
		}})
	}
	slices.SortFunc(all, func(a, b fault) int { return strings.Compare(a.name, b.name) })
	return all
}

func (d *drill) programFaults(name string, p *product.Program) []fault {
	ready := func(ctx context.Context) error { return p.WaitReadyAgain(ctx) }
	all := []fault{
		{"kill " + name, func(context.Context) (func(context.Context) error, error) {
			p.Kill()
			return func(context.Context) error { return p.Start() }, nil
		}},
		{"stop " + name, func(context.Context) (func(context.Context) error, error) {
			return func(context.Context) error { return p.Continue() }, p.Stop()
		}},
		{"restart " + name, func(context.Context) (func(context.Context) error, error) {
			return nothing, p.RestartGracefully()
		}},
	}
	if d.older != "" {
		all = append(all, fault{"replace " + name + " by another release", func(ctx context.Context) (func(context.Context) error, error) {
			back := func(context.Context) error { return d.startWith(p, d.current) }
			if err := d.startWith(p, d.older); err != nil {
				return nil, err
			}
			return back, ready(ctx)
		}})
	}
	return all
}

// startWith restarts a program with another binary.
func (d *drill) startWith(p *product.Program, binary string) error {
	next := d.binary + ".next"
	if err := os.Symlink(binary, next); err != nil {
		return err
	}
	if err := os.Rename(next, d.binary); err != nil {
		return err
	}
	return p.RestartGracefully()
}

func linkFaults(agent string, link *faultproxy.Link) []fault {
	cut := func(mode faultproxy.CutMode) func(context.Context) (func(context.Context) error, error) {
		return func(context.Context) (func(context.Context) error, error) {
			return func(context.Context) error { return link.Restore() }, link.Cut(mode)
		}
	}
	return []fault{
		{"the principal refuses " + agent, cut(faultproxy.Refuse)},
		{"the network between " + agent + " and the principal is down", cut(faultproxy.Blackhole)},
		{"the connection of " + agent + " breaks", func(context.Context) (func(context.Context) error, error) {
			link.Reset()
			return nothing, nil
		}},
		{"the connection of " + agent + " is half open", func(context.Context) (func(context.Context) error, error) {
			link.HalfOpen()
			return nothing, nil
		}},
	}
}

func (d *drill) componentFaults(component string) []fault {
	return []fault{
		{"kill " + component, func(ctx context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return d.lab.Restart(ctx, component) }, d.lab.Kill(ctx, component)
		}},
		{"stop " + component, func(ctx context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return d.lab.Continue(ctx, component) }, d.lab.Stop(ctx, component)
		}},
	}
}
