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

// affectedAgents is the agents that something is done to: managed ones of the first half.
func (b *bench) affectedAgents() []*member {
	var some []*member
	for _, m := range b.fleet.members[:max(1, b.agents/2)] {
		if m.mode == kind.Managed && len(some) < max(1, b.agents/10) {
			some = append(some, m)
		}
	}
	return some
}

// flood changes what the hub has for some agents, several times, so that there is much to send to them.
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

// stuck lets a tenth of the agents take nothing any more, in three ways, while there is much to send to them, and asks
// whether the others notice: each time is compared with the times before and after it, when all are well.
func (b *bench) stuck(ctx context.Context) error {
	some := b.affectedAgents()
	if len(some) == 0 || b.agents < 2 {
		report.Progress("there are no managed agents to spare")
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
		{"hang, and answer pings", b.hang(0), b.fleet.stop},
		{"read one message a second", b.hang(time.Second), b.fleet.stop},
		{"are swallowed by their links", b.blackholeLinks, b.unlink},
	} {
		if err := way.begin(ctx, some); err != nil {
			return err
		}
		meanwhile, err := b.whileFlooded(ctx, some)
		if err != nil {
			return err
		}
		way.end(some...)
		for _, m := range some {
			b.fleet.start(b.ctx, m, b.product.Address())
		}
		if err := b.whole(ctx); err != nil {
			return err
		}
		after, err := b.whileFlooded(ctx, some)
		if err != nil {
			return err
		}
		what := "a tenth of the agents " + way.what + ": "
		b.addRatios(what+"spec of the others", meanwhile.spec, before.spec, after.spec)
		b.addRatios(what+"status of the others", meanwhile.status, before.status, after.status)
		b.Add(what+"principal's memory over before", meanwhile.memory/before.memory, "×")
		before = after
	}
	return nil
}

// addRatios compares times with those of when all was well.
func (b *bench) addRatios(what string, meanwhile []time.Duration, well ...[]time.Duration) {
	all := slices.Sorted(slices.Values(slices.Concat(well...)))
	ratio := func(p float64) float64 {
		return float64(report.Percentile(meanwhile, p)) / float64(report.Percentile(all, p))
	}
	b.Add(what+", median over when all are well", ratio(50), "×")
	b.AtMost(1.1, what+", 99th percentile over when all are well", ratio(99), "×")
}

// whole waits until all agents are connected and proven equal.
func (b *bench) whole(ctx context.Context) error {
	_, err := b.fleet.until(ctx, "all are well again", func(open, proven int) bool { return open == b.agents && proven == b.agents })
	return err
}

// others is what agents to whom nothing was done have felt.
type others struct {
	spec, status []time.Duration // sorted
	memory       float64         // of the principal
}

// whileFlooded measures the others while there is, or was a moment ago, much to send to some: what the hub itself feels of
// that is always there.
func (b *bench) whileFlooded(ctx context.Context, some []*member) (others, error) {
	if err := b.flood(ctx, some); err != nil {
		return others{}, err
	}
	pause(ctx, 5*time.Second)
	spec, status, err := b.measure(ctx, b.rounds(2000))
	return others{spec, status, float64(b.product.Principal.Status().Memory)}, err
}

// hang puts stand-ins in the place of agents.
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

// blackholeLinks lets agents connect by way of links that then swallow everything, in both directions.
func (b *bench) blackholeLinks(ctx context.Context, some []*member) (err error) {
	b.fleet.stop(some...)
	for _, m := range some {
		if m.link, err = b.lab.Link(b.product.Address()); err != nil {
			return err
		}
		b.fleet.start(b.ctx, m, "")
	}
	if _, err := b.fleet.until(ctx, "connect through links", func(open, _ int) bool { return open == b.agents }); err != nil {
		return err
	}
	for _, m := range some {
		if err := m.link.Cut(faultproxy.Blackhole); err != nil {
			return err
		}
	}
	return nil
}

// unlink ends agents that were swallowed, and their links.
func (b *bench) unlink(some ...*member) {
	for _, m := range some {
		_ = m.link.Close()
	}
	b.fleet.stop(some...)
	for _, m := range some {
		m.link = nil
	}
}
