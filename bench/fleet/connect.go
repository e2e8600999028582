package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/bench/fleet/memcluster"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file contains the parts in which the whole fleet connects.

func appName(i int) string { return fmt.Sprintf("app-%02d", i) }

// write creates all Applications on their owners. Its duration on the hub is the reference of later figures.
func (b *bench) write(ctx context.Context) error {
	if err := parallel(b.agents, func(i int) error { return b.hub.namespace(ctx, b.fleet.members[i].name) }); err != nil {
		return err
	}
	if err := b.hub.namespacesReady(ctx, b.agents); err != nil {
		return err
	}
	if err := b.hub.openProject(ctx); err != nil {
		return err
	}
	began := time.Now()
	n := 0
	for _, m := range b.fleet.members {
		if m.mode == kind.Managed {
			n++
		}
	}
	managed := b.fleet.members[b.agents-n:]
	if err := parallel(n*b.apps, func(i int) error {
		m := managed[i/b.apps]
		app := application(m.name, appName(i%b.apps), m.name, text(0))
		if b.size > 0 {
			if err := unstructured.SetNestedField(app.Object, strings.Repeat("a: b\n", b.size/5), "spec", "source", "helm", "values"); err != nil {
				return err
			}
		}
		return b.hub.create(ctx, app)
	}); err != nil {
		return err
	}
	for _, m := range b.fleet.members[:b.agents-n] {
		for i := range b.apps {
			if err := m.cluster.Create(memcluster.Applications, argocd, application(argocd, appName(i), "in-cluster", text(0)).Object); err != nil {
				return err
			}
		}
	}
	b.wrote = time.Since(began)
	if n > 0 {
		b.writes = float64(n*b.apps) / b.wrote.Seconds()
	} else {
		b.writes = 300 // no measurement available
	}
	b.Add(fmt.Sprintf("the hub's API server writes Applications, %d at a time", writers), b.writes, "/s")
	return b.hub.until(ctx, "all Applications are seen on the hub", func() bool { return int(b.hub.count.Load()) == n*b.apps })
}

// fill starts everything with empty spokes and, for autonomous agents, an empty hub.
func (b *bench) fill(ctx context.Context) error {
	if err := b.startPrincipal(ctx); err != nil {
		return err
	}
	if b.fromStart {
		if err := b.startReplicas(ctx); err != nil {
			return err
		}
	}
	var err error
	if b.bare, err = living(ctx, b.pprof); err != nil {
		return err
	}
	wait := b.cpuProfile(ctx, "fill", 15*time.Second)
	cpu, err := b.product.Principal.CPU()
	if err != nil {
		return err
	}
	requests, err := b.countRequests(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	b.fleet.startAll(b.ctx, b.product.Address())
	if err := b.fleet.until(ctx, "connect", func(open, _ int) bool { return open == b.agents }); err != nil {
		return err
	}
	connected := time.Since(began)
	b.Add("empty spokes: all agents connected", connected.Seconds(), "s")
	b.connectRate = float64(b.agents) / connected.Seconds()
	b.Add("empty spokes: agents connected per second", b.connectRate, "/s")
	if err := b.filled(ctx); err != nil {
		return err
	}
	if err := b.hub.until(ctx, "all Applications are on the hub", func() bool { return int(b.hub.count.Load()) == b.agents*b.apps }); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := b.product.Principal.CPU()
	if err != nil {
		return err
	}
	b.Add("empty spokes: all Applications replicated", took.Seconds(), "s")
	b.AtMost(1.2, "empty spokes: ratio to writing the Applications on the hub", took.Seconds()/b.wrote.Seconds(), "×")
	b.Add("empty spokes: principal's CPU for each agent", millis(after-cpu)/float64(b.agents), "ms")
	if err := b.settled(ctx); err != nil {
		return err
	}
	now, err := b.countRequests(ctx)
	if err != nil {
		return err
	}
	b.Add("empty spokes: writes at the hub's API server for each agent, until all is quiet", (now.writes-requests.writes)/float64(b.agents), "")
	return wait()
}

// settled waits until all agents are in sync and the Applications of the hub have not changed for a while. Effects of a
// first contact must not count for the next part.
func (b *bench) settled(ctx context.Context) error {
	if err := b.waitAllInSync(ctx); err != nil {
		return err
	}
	const quietPeriod, long = 5 * time.Second, 5 * time.Minute
	for began, before := time.Now(), int64(-1); b.hub.writes.Load() != before; {
		if time.Since(began) > long {
			return fmt.Errorf("something writes Applications on the hub although nothing changes, for %v", long)
		}
		before = b.hub.writes.Load()
		pause(ctx, quietPeriod)
	}
	return ctx.Err()
}

// cold restarts all processes while both sides are in sync.
func (b *bench) cold(ctx context.Context) error {
	b.fleet.stop(b.fleet.members...)
	b.product.Principal.Kill()
	defer deferGC()()
	began, own := time.Now(), ownCPU()
	if err := b.product.Principal.Start(); err != nil {
		return err
	}
	b.fleet.startAll(b.ctx, b.product.Address())
	if err := b.fleet.until(ctx, "connect", func(open, _ int) bool { return open > 0 }); err != nil {
		return err
	}
	wait := b.cpuProfile(ctx, "cold", 4*time.Second)
	if err := b.fleet.until(ctx, "connect", func(open, _ int) bool { return open == b.agents }); err != nil {
		return err
	}
	connected := time.Since(began)
	if err := b.fleet.until(ctx, "compare", func(_, proven int) bool { return proven == b.agents }); err != nil {
		return err
	}
	inSync := time.Since(began)
	cpu, err := b.product.Principal.CPU()
	if err != nil {
		return err
	}
	b.Add("cold: all agents connected", connected.Seconds(), "s")
	b.connectRate = float64(b.agents) / connected.Seconds()
	b.Add("cold: handshakes per second", b.connectRate, "/s")
	b.AtMost(b.scaled(5), "cold: all agents in sync", inSync.Seconds(), "s")
	b.Add("cold: principal's CPU for each agent", millis(cpu)/float64(b.agents), "ms")
	b.Add("cold: CPU of each agent, its cluster included", millis(ownCPU()-own)/float64(b.agents), "ms")
	return wait()
}

// filled waits until the cluster of every managed agent has its Applications.
func (b *bench) filled(ctx context.Context) error {
	for _, m := range b.fleet.members {
		for m.mode == kind.Managed && m.cluster.Count(memcluster.Applications) < b.apps {
			select {
			case <-m.cluster.Changed():
			case <-time.After(100 * time.Millisecond): // a change in between is possible
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// emptied restarts all processes after the clusters of all managed agents have lost their Applications. Unlike at the
// first contact, the objects of the agents exist on the hub.
func (b *bench) emptied(ctx context.Context) error {
	b.fleet.stop(b.fleet.members...)
	b.product.Principal.Kill()
	for _, m := range b.fleet.members {
		if m.mode != kind.Managed {
			continue
		}
		if err := m.cluster.Clear(memcluster.Applications); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := b.product.Principal.Start(); err != nil {
		return err
	}
	b.fleet.startAll(b.ctx, b.product.Address())
	if err := b.filled(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	b.Add("emptied spokes: all Applications replicated", took.Seconds(), "s")
	b.AtMost(1.3, "emptied spokes: ratio to writing the Applications on the hub", took.Seconds()/b.wrote.Seconds(), "×")
	return b.settled(ctx)
}

// kills is the number of times that the principal is killed in one run. One is not significant.
const kills = 3

// killed kills the principal with SIGKILL and starts it again.
func (b *bench) killed(ctx context.Context) error {
	for i := range kills {
		if i > 0 { // an agent that was disconnected twice in a short time waits longer, by design
			pause(ctx, 30*time.Second)
		}
		if err := b.killOnce(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) killOnce(ctx context.Context) error {
	b.product.Principal.Kill()
	if err := b.fleet.until(ctx, "notice", func(open, _ int) bool { return open == 0 }); err != nil {
		return err
	}
	began := time.Now()
	if err := b.product.Principal.Start(); err != nil {
		return err
	}
	pause(ctx, time.Second)
	wait := b.cpuProfile(ctx, "killed", 10*time.Second)
	if err := b.fleet.until(ctx, "come back", func(open, proven int) bool { return open == b.agents && proven == b.agents }); err != nil {
		return err
	}
	b.AtMost(b.scaled(15), "principal killed (-9) and started: all agents in sync", time.Since(began).Seconds(), "s")
	messages, err := b.bytes(ctx, "message")
	if err != nil {
		return err
	}
	b.AtMost(2048, "principal killed (-9) and started: bytes of messages for each agent", messages/float64(b.agents), "bytes")
	return wait()
}

// scaled scales a target for 1,000 agents to the number of agents.
func (b *bench) scaled(target float64) float64 { return target * max(1, float64(b.agents)/1000) }

// bytes returns the bytes that the principal has sent and received since its start: of "message", or of "wire" with
// HTTP/2 and TLS.
func (b *bench) bytes(ctx context.Context, of string) (float64, error) {
	sent, err := b.product.Principal.Metric(ctx, "argocd_agent_principal_"+of+"_sent_bytes_total")
	if err != nil {
		return 0, err
	}
	received, err := b.product.Principal.Metric(ctx, "argocd_agent_principal_"+of+"_received_bytes_total")
	return sent + received, err
}
