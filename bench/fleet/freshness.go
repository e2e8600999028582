package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/bench/report"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// freshness disconnects all agents, first for less than the threshold and then for longer. It measures what showing that
// on the Applications costs the hub, and how long it takes in both directions.
func (b *bench) freshness(ctx context.Context) error {
	pause(ctx, 10*time.Second+time.Duration(b.agents)*25*time.Millisecond) // the statuses of Agents are written
	watching, stop := context.WithCancel(ctx)
	defer stop()
	f, err := b.watchFreshness(watching)
	if err != nil {
		return err
	}
	all := b.agents * b.apps

	b.fleet.stop(b.fleet.members...)
	pause(ctx, 20*time.Second)
	b.fleet.startAll(b.ctx, b.product.Address())
	if err := b.waitAllInSync(ctx); err != nil {
		return err
	}
	pause(ctx, time.Minute)
	apps, _ := f.reset()
	b.AtMost(0.001, "all agents disconnected for 20 s: writes for each Application", float64(apps.total)/float64(all), "")

	lost := time.Now()
	b.fleet.stop(b.fleet.members...)
	if err := f.until(ctx, "all Applications show the outage", all); err != nil {
		return err
	}
	took := time.Since(lost)
	apps, agents := f.reset()
	b.freshnessFigures("all agents lost", apps, agents, all)
	b.Add("all agents lost: all Applications show it after", took.Seconds(), "s")

	back := time.Now()
	b.fleet.startAll(b.ctx, b.product.Address())
	if err := b.waitAllInSync(ctx); err != nil {
		return err
	}
	inSync := time.Since(back)
	if err := f.until(ctx, "no Application shows the outage", 0); err != nil {
		return err
	}
	took = time.Since(back)
	apps, agents = f.reset()
	b.freshnessFigures("all agents back", apps, agents, all)
	b.Add("all agents back: in sync after", inSync.Seconds(), "s")
	b.Add("all agents back: no Application shows the outage after", took.Seconds(), "s")
	return nil
}

func (b *bench) freshnessFigures(when string, apps, agents writeCounts, all int) {
	b.AtMost(100, when+": writes of Applications, most in a second", float64(apps.most), "/s")
	b.AtMost(1, when+": writes for each Application", float64(apps.total)/float64(all), "")
	b.Add(when+": writes of Agents, most in a second", float64(agents.most), "/s")
}

// freshnessWatch counts writes and which Applications show an outage.
type freshnessWatch struct {
	mu           sync.Mutex
	shown        map[string]bool
	apps, agents map[int64]int // writes by second
	changed      chan struct{}
}

// writeCounts are writes of one resource: all of them, and the most in a second.
type writeCounts struct{ total, most int }

func (b *bench) watchFreshness(ctx context.Context) (*freshnessWatch, error) {
	client, err := kube.NewClient(b.lab.Hub().Admin())
	if err != nil {
		return nil, err
	}
	f := &freshnessWatch{shown: map[string]bool{}, apps: map[int64]int{}, agents: map[int64]int{}, changed: make(chan struct{}, 1)}
	agents := kind.Resource{Group: v1alpha1.Group, Version: v1alpha1.Version, Plural: v1alpha1.Resource, Kind: v1alpha1.Kind}
	for _, resource := range []kind.Resource{kind.Applications, agents} {
		watcher := kube.NewWatcher(client, kube.Watch{Resource: resource}, f.take, slog.New(slog.DiscardHandler), rand.Float64)
		go func() { _ = watcher.Run(ctx) }()
	}
	return f, nil
}

func (f *freshnessWatch) take(_ context.Context, in reconcile.Input) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	observed, ok := in.(reconcile.Observed)
	switch {
	case !ok:
		return nil
	case observed.Resource == kind.Applications:
		f.apps[time.Now().Unix()]++
		o := observed.Object
		if name := o.Namespace() + "/" + o.Name(); kind.ShowsDisconnected(o) {
			f.shown[name] = true
		} else {
			delete(f.shown, name)
		}
	default:
		f.agents[time.Now().Unix()]++
	}
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return nil
}

// until waits until as many Applications show an outage.
func (f *freshnessWatch) until(ctx context.Context, what string, shown int) error {
	limit := time.NewTimer(20 * time.Minute)
	defer limit.Stop()
	for {
		f.mu.Lock()
		now := len(f.shown)
		f.mu.Unlock()
		if now == shown {
			return nil
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("%s: %d do after 20 minutes", what, now)
		}
	}
}

// reset returns the writes since the last call.
func (f *freshnessWatch) reset() (apps, agents writeCounts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	apps, agents = countWrites(f.apps), countWrites(f.agents)
	clear(f.apps)
	clear(f.agents)
	report.Progress("%d writes of Applications, %d of Agents", apps.total, agents.total)
	return apps, agents
}

func countWrites(bySecond map[int64]int) (c writeCounts) {
	for _, n := range bySecond {
		c.total += n
	}
	if len(bySecond) > 0 {
		c.most = slices.Max(slices.Collect(maps.Values(bySecond)))
	}
	return c
}
