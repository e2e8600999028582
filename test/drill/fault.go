package main

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

// fault breaks something. The function that it returns repairs it.
type fault struct {
	class  string // the same fault of other programs, components or connections has the same class
	name   string
	inject func(context.Context) (repair func(context.Context) error, err error)
}

func nothing(context.Context) error { return nil }

// order returns the classes of faults in an order that the seed selects.
func (d *drill) order() []string {
	order := slices.Sorted(maps.Keys(d.faults()))
	d.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// pick returns a random fault. The first steps are one of each class.
func (d *drill) pick(order []string, step int) fault {
	i := step - 1
	if i >= len(order) {
		i = d.random.IntN(len(order))
	}
	all := d.faults()[order[i]]
	return all[d.random.IntN(len(all))]
}

// faults returns all faults by class.
func (d *drill) faults() map[string][]fault {
	all := append(d.allLinkFaults(), d.failovers()...)
	for name, p := range d.programs() {
		all = append(all, d.programFaults(name, p)...)
	}
	for name, s := range d.sites {
		for _, component := range []string{"kube-apiserver", "etcd", "redis"} {
			if name == secondName && component == "redis" {
				continue // a bare cluster has none
			}
			all = append(all, d.componentFaults(s.cluster, component)...)
		}
		all = append(all, fault{"a disk is full", "the disk of " + name + " is full", func(ctx context.Context) (func(context.Context) error, error) {
			return s.cluster.FreeDisk, s.cluster.FillDisk(ctx)
		}})
	}
	slices.SortFunc(all, func(a, b fault) int { return strings.Compare(a.name, b.name) })
	classes := map[string][]fault{}
	for _, f := range all {
		classes[f.class] = append(classes[f.class], f)
	}
	return classes
}

func (d *drill) programFaults(name string, p *product.Program) []fault {
	kind := "a principal"
	if strings.HasPrefix(name, "agent ") {
		kind = "an agent"
	}
	all := []fault{
		{"kill " + kind, "kill " + name, func(context.Context) (func(context.Context) error, error) {
			p.Kill()
			return func(context.Context) error { return p.Start() }, nil
		}},
		{"stop " + kind, "stop " + name, func(context.Context) (func(context.Context) error, error) {
			return func(context.Context) error { return p.Continue() }, p.Stop()
		}},
		{"restart " + kind, "restart " + name, func(context.Context) (func(context.Context) error, error) {
			return nothing, p.RestartGracefully()
		}},
	}
	if d.older != "" {
		all = append(all, fault{"replace " + kind, "replace " + name + " by another release", func(ctx context.Context) (func(context.Context) error, error) {
			back := func(context.Context) error { return d.startWith(p, d.current) }
			if err := d.startWith(p, d.older); err != nil {
				return nil, err
			}
			return back, p.WaitReadyAgain(ctx)
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

func (d *drill) componentFaults(c *lab.Cluster, kind string) []fault {
	component := c.Component(kind)
	return []fault{
		{"kill " + kind, "kill " + component, func(ctx context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return d.lab.Restart(ctx, component) }, d.lab.Kill(ctx, component)
		}},
		{"stop " + kind, "stop " + component, func(ctx context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return d.lab.Continue(ctx, component) }, d.lab.Stop(ctx, component)
		}},
	}
}
