package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/fleet/memcluster"
	"github.com/argocd-agent/argocd-agent/bench/report"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file contains the parts with changes while all agents are connected.

// next returns the number of a new change.
func (b *bench) next() int {
	b.number++
	return b.number
}

// touch changes the status of an Application on its spoke, as an application controller does.
func (b *bench) touch(m *member, app string) error {
	n := b.next()
	b.hub.status.expect(m.name+"/"+app, n, time.Now())
	return m.cluster.Patch(memcluster.Applications, argocd, app, map[string]any{"status": map[string]any{
		"health": map[string]any{"status": "Healthy", "message": text(n)}, "sync": map[string]any{"status": "Synced"}}})
}

// retarget changes the spec of an Application on its owner.
func (b *bench) retarget(ctx context.Context, m *member, app string) error {
	n := b.next()
	b.specs.expect(m.name+"/"+app, n, time.Now())
	return b.hub.patch(ctx, m.name, app, fmt.Sprintf(`{"spec":{"source":{"targetRevision":%q}}}`, text(n)))
}

// managed returns a managed agent of the second half, which no part disturbs. If there is none, it returns nil.
func (b *bench) managed() *member {
	m := b.fleet.members[b.agents/2+rand.IntN(b.agents-b.agents/2)]
	if m.mode != kind.Managed {
		return nil
	}
	return m
}

// batches is the number of measurements of single changes in one run, after one for warm-up.
const batches = 5

// rounds returns the number of changes in a batch. It is smaller if each change takes long.
func (b *bench) rounds(n int) int {
	if !b.linkProfile.IsZero() {
		return n / 4
	}
	return n
}

// singles measures single changes.
func (b *bench) singles(ctx context.Context) error {
	defer deferGC()()
	if _, _, err := b.measure(ctx, 50); err != nil {
		return err
	}
	for range batches {
		spec, status, err := b.measure(ctx, b.rounds(400))
		if err != nil {
			return err
		}
		b.addLatency("single changes: spec, hub to spoke", spec, 0)
		b.addLatency("single changes: status, spoke to hub", status, 0)
	}
	return nil
}

// measure makes single changes one after the other, in both directions.
func (b *bench) measure(ctx context.Context, rounds int) (spec, status []time.Duration, err error) {
	for range rounds {
		m := b.managed()
		if m == nil {
			continue
		}
		app := appName(rand.IntN(b.apps))
		if err := b.retarget(ctx, m, app); err != nil {
			return nil, nil, err
		}
		if err := b.specs.wait(ctx, time.Minute); err != nil {
			return nil, nil, err
		}
	}
	spec, err = b.specs.arrived(ctx, time.Minute)
	if err != nil {
		return nil, nil, err
	}
	for range rounds {
		if err := b.touch(b.fleet.members[b.agents/2+rand.IntN(b.agents-b.agents/2)], appName(rand.IntN(b.apps))); err != nil {
			return nil, nil, err
		}
		if err := b.hub.status.wait(ctx, time.Minute); err != nil {
			return nil, nil, err
		}
	}
	status, err = b.hub.status.arrived(ctx, time.Minute)
	return spec, status, err
}

func (b *bench) addLatency(what string, took []time.Duration, p99 float64) {
	b.Add(what+", median", millis(report.Percentile(took, 50)), "ms")
	b.AtMost(p99, what+", 99th percentile", millis(report.Percentile(took, 99)), "ms")
}

// streaming changes statuses of the whole fleet at a constant rate.
func (b *bench) streaming(ctx context.Context) error {
	defer deferGC()()
	rate := b.rate * b.writes
	wait := b.cpuProfile(ctx, "stream", min(b.stream, 30*time.Second))
	cpu, err := b.product.Principal.CPU()
	if err != nil {
		return err
	}
	memory := b.sampled(ctx, 2*time.Second)
	writes := b.hub.writes.Load()
	began := time.Now()
	sent := 0
	for time.Since(began) < b.stream && ctx.Err() == nil {
		for due := int(time.Since(began).Seconds() * rate); sent < due; sent++ {
			if err := b.touch(b.fleet.members[rand.IntN(b.agents)], appName(rand.IntN(b.apps))); err != nil {
				return err
			}
		}
		pause(ctx, 5*time.Millisecond)
	}
	took, err := b.hub.status.arrived(ctx, 2*time.Minute)
	samples := memory()
	if err != nil {
		return err
	}
	span := time.Since(began)
	after, err := b.product.Principal.CPU()
	if err != nil {
		return err
	}
	b.Add(fmt.Sprintf("status stream of %v: changes, none lost", b.stream), float64(sent), "")
	b.Add("status stream: rate", float64(sent)/b.stream.Seconds(), "/s")
	b.addLatency("status stream: spoke to hub", took, 1000)
	b.Add("status stream: writes on the hub", float64(b.hub.writes.Load()-writes)/span.Seconds(), "/s")
	refused, err := b.product.Principal.Metric(ctx, "argocd_agent_principal_api_writes_unavailable_total")
	if err != nil {
		return err
	}
	b.Add("status stream: unavailable responses of the hub", refused, "")
	b.Add("status stream: principal's CPU for each change", float64((after-cpu).Microseconds())/float64(sent), "µs")
	b.Add("status stream: principal's memory, at most", slices.Max(samples)/1e6, "MB RSS")
	b.AtMost(1.1, "status stream: principal's memory, last quarter to second", growth(samples), "×")
	return wait()
}

// webhook requests a refresh of all Applications, as a push to Git does, during single changes.
func (b *bench) webhook(ctx context.Context) error {
	stop := b.control(ctx)
	defer stop()
	single := make(chan error, 1)
	var spec []time.Duration
	began := time.Now()
	go func() {
		var err error
		spec, _, err = b.measure(ctx, 50)
		single <- err
	}()
	if err := parallel(b.agents*b.apps, func(i int) error {
		return b.hub.patch(ctx, b.fleet.members[i/b.apps].name, appName(i%b.apps), `{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"}}}`)
	}); err != nil {
		return err
	}
	written := time.Since(began)
	if err := b.hub.until(ctx, "all refreshes are done", func() bool { return b.hub.refreshes.Load() == 0 }); err != nil {
		return err
	}
	took := time.Since(began)
	if err := <-single; err != nil {
		return err
	}
	b.Add(fmt.Sprintf("refresh of %d Applications at once: done", b.agents*b.apps), took.Seconds(), "s")
	b.Add("refresh of all at once: done, ratio to requesting it", took.Seconds()/written.Seconds(), "×")
	b.addLatency("refresh of all at once: spec of other agents", spec, 0)
	return nil
}

// control handles refreshes on every spoke, as the Argo CD application controller does, until it is stopped.
func (b *bench) control(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{}, len(b.fleet.members))
	for _, m := range b.fleet.members {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				changed := m.cluster.Changed()
				var asked []string
				m.cluster.Each(memcluster.Applications, func(fields map[string]any) {
					if meta, _ := fields["metadata"].(map[string]any); dig(meta, "annotations", "argocd.argoproj.io/refresh") != "" {
						asked = append(asked, dig(meta, "name"))
					}
				})
				for _, app := range asked {
					_ = m.cluster.Patch(memcluster.Applications, argocd, app, map[string]any{
						"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/refresh": nil}},
						"status":   map[string]any{"reconciledAt": time.Now().UTC().Format(time.RFC3339)}})
				}
				if len(asked) > 0 {
					continue
				}
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		}()
	}
	return func() {
		cancel()
		for range b.fleet.members {
			<-done
		}
	}
}
