package main

import (
	"context"
	"fmt"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// linkTo returns a connection.
type linkTo func(context.Context) (*faultproxy.Link, error)

func existing(link *faultproxy.Link) linkTo {
	return func(context.Context) (*faultproxy.Link, error) { return link, nil }
}

// etcdOf returns the connection between the API server of a cluster and etcd. For the first time it restarts the API server.
func (d *drill) etcdOf(c *lab.Cluster) linkTo {
	return func(ctx context.Context) (link *faultproxy.Link, err error) {
		if d.etcd[c.Name] == nil {
			if link, err = c.LinkEtcd(ctx); err != nil {
				return nil, fmt.Errorf("link to etcd of %s: %w", c.Name, err)
			}
			d.etcd[c.Name] = link
		}
		return d.etcd[c.Name], nil
	}
}

// allLinkFaults returns faults of the connections that are in use now.
func (d *drill) allLinkFaults() (all []fault) {
	for name, a := range d.product.Agents {
		link := a.Link
		if d.active == secondName {
			link = a.Second
		}
		all = append(all, linkFaults("agent "+name, "principal", existing(link))...)
	}
	if d.hubs {
		all = append(all, linkFaults("the standby on "+d.standby(), "principal", existing(d.product.Hubs.Links[d.standby()]))...)
	}
	for name, link := range d.product.Links.API {
		all = append(all, linkFaults(name, "API server", existing(link))...)
	}
	for name, link := range d.product.Links.Redis {
		all = append(all, linkFaults("the program on "+name, "Redis", existing(link))...)
	}
	for name, s := range d.sites {
		all = append(all, linkFaults(name+"/kube-apiserver", "etcd", d.etcdOf(s.cluster))...)
	}
	return all
}

// linkFaults returns the faults of a connection from a client to a server.
func linkFaults(client, server string, to linkTo) (all []fault) {
	for _, one := range []struct {
		what   string
		inject func(*faultproxy.Link) error
	}{
		{"is refused", func(l *faultproxy.Link) error { return l.Cut(faultproxy.Refuse) }},
		{"carries nothing", func(l *faultproxy.Link) error { return l.Cut(faultproxy.Blackhole) }},
		{"breaks", func(l *faultproxy.Link) error { l.Reset(); return nil }},
		{"is half open", func(l *faultproxy.Link) error { l.HalfOpen(); return nil }},
	} {
		class, name := fmt.Sprintf("connection to %s %s", server, one.what), fmt.Sprintf("the connection of %s to its %s %s", client, server, one.what)
		all = append(all, fault{class, name, func(ctx context.Context) (func(context.Context) error, error) {
			link, err := to(ctx)
			if err != nil {
				return nil, err
			}
			return func(context.Context) error { return link.Restore() }, one.inject(link)
		}})
	}
	return all
}
