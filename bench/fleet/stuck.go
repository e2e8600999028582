package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/report"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// affectedAgents returns the agents that are disturbed: managed agents of the first half.
func (b *bench) affectedAgents() []*member {
	var some []*member
	for _, m := range b.fleet.members[:max(1, b.agents/2)] {
		if m.mode == kind.Managed && len(some) < max(1, b.agents/10) {
			some = append(some, m)
		}
	}
	return some
}

// flood changes the objects of some agents several times, so that there is much to send to them.
func (b *bench) flood(ctx context.Context, some []*member) error {
	for range 3 {
		text := fmt.Sprintf("%d %s", b.next(), strings.Repeat("x", 2000))
		if err := parallel(len(some)*b.apps, func(i int) error {
			return b.hub.patch(ctx, some[i/b.apps].name, appName(i%b.apps), fmt.Sprintf(`{"metadata":{"annotations":{"bench":%q}}}`, text))
		}); err != nil {
			return err
		}
	}
	return nil
}

// stuck stops a tenth of the agents from reading, in three ways, while there is much to send to them. It measures the
// effect on the other agents. Each measurement is compared with measurements before and after it.
func (b *bench) stuck(ctx context.Context) error {
	some := b.affectedAgents()
	if len(some) == 0 || b.agents < 2 {
		report.Progress("Skipping: no managed agents left")
		return nil
	}
	defer deferGC()()
	before, err := b.whileFlooded(ctx, some)
	if err != nil {
		return err
	}
	for _, way := range []struct {
		what  string
		begin func(context.Context, []*member) error
		end   func(...*member)
	}{
		{"agents unresponsive", b.hang(0), b.fleet.stop},
		{"agents read slowly", b.hang(time.Second), b.fleet.stop},
		{"links blackholed", b.blackholeLinks, b.unlink},
	} {
		if err := way.begin(ctx, some); err != nil {
			return err
		}
		during, err := b.whileFlooded(ctx, some)
		if err != nil {
			return err
		}
		way.end(some...)
		for _, m := range some {
			b.fleet.start(b.ctx, m, b.product.Address())
		}
		if err := b.waitAllInSync(ctx); err != nil {
			return err
		}
		after, err := b.whileFlooded(ctx, some)
		if err != nil {
			return err
		}
		what := "a tenth of the " + way.what + ": "
		b.addRatios(what+"spec of other agents", during.spec, before.spec, after.spec)
		b.addRatios(what+"status of other agents", during.status, before.status, after.status)
		b.Add(what+"principal's memory, ratio to before", during.memory/before.memory, "×")
		before = after
	}
	return nil
}

// addRatios reports the ratio to the latencies without faults.
func (b *bench) addRatios(what string, during []time.Duration, well ...[]time.Duration) {
	all := slices.Sorted(slices.Values(slices.Concat(well...)))
	ratio := func(p float64) float64 {
		return float64(report.Percentile(during, p)) / float64(report.Percentile(all, p))
	}
	b.Add(what+", median, ratio to normal", ratio(50), "×")
	b.AtMost(1.1, what+", 99th percentile, ratio to normal", ratio(99), "×")
}

// waitAllInSync waits until all agents are connected and in sync.
func (b *bench) waitAllInSync(ctx context.Context) error {
	return b.fleet.until(ctx, "all are well again", func(open, proven int) bool { return open == b.agents && proven == b.agents })
}

// others contains the measurements of undisturbed agents.
type others struct {
	spec, status []time.Duration // sorted
	memory       float64         // of the principal
}

// whileFlooded measures the other agents while there is much to send to some. The load of the hub by the flood is
// always included.
func (b *bench) whileFlooded(ctx context.Context, some []*member) (others, error) {
	if err := b.flood(ctx, some); err != nil {
		return others{}, err
	}
	pause(ctx, 5*time.Second)
	spec, status, err := b.measure(ctx, b.rounds(2000))
	return others{spec, status, float64(b.product.Principal.Status().Memory)}, err
}

// hang replaces agents by stalled agents.
func (b *bench) hang(between time.Duration) func(context.Context, []*member) error {
	return func(_ context.Context, some []*member) error {
		b.fleet.stop(some...)
		_, err := b.stallAgents(some, between)
		return err
	}
}

func (b *bench) stallAgents(some []*member, between time.Duration) ([]*stalledAgent, error) {
	all := make([]*stalledAgent, len(some))
	return all, parallel(len(some), func(i int) (err error) {
		all[i], err = b.fleet.listen(b.ctx, some[i], b.product.Address(), between)
		return err
	})
}

// blackholeLinks connects agents through links that then drop everything in both directions.
func (b *bench) blackholeLinks(ctx context.Context, some []*member) (err error) {
	b.fleet.stop(some...)
	for _, m := range some {
		if m.link, err = b.lab.Link(b.product.Address()); err != nil {
			return err
		}
		b.fleet.start(b.ctx, m, "")
	}
	if err := b.fleet.until(ctx, "connect through links", func(open, _ int) bool { return open == b.agents }); err != nil {
		return err
	}
	for _, m := range some {
		if err := m.link.Cut(faultproxy.Blackhole); err != nil {
			return err
		}
	}
	return nil
}

// unlink stops agents with blackholed links, and their links.
func (b *bench) unlink(some ...*member) {
	for _, m := range some {
		_ = m.link.Close()
	}
	b.fleet.stop(some...)
	for _, m := range some {
		m.link = nil
	}
}
