package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/report"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// faulty lets the hub's API server get into trouble. The principal reaches it through a proxy then, which counts what is
// tried and which makes everything slower: figures of this part are to be compared with each other only.
func (b *bench) faulty(ctx context.Context) error {
	hub := b.lab.Hub()
	var err error
	if b.faults, err = hub.FaultyAPI(); err != nil {
		return err
	}
	if err := b.product.Principal.RestartWith(ctx, "--kubeconfig", b.faults.Kubeconfig); err != nil {
		return err
	}
	pause(ctx, 5*time.Second) // all have noticed
	if err := b.whole(ctx); err != nil {
		return err
	}
	var fault *faultproxy.Fault
	if err := b.trouble(ctx, "the hub answers every write with 429",
		func(context.Context) error {
			fault = b.faults.Add(faultproxy.Rule{Match: writing, Do: faultproxy.TooManyRequests(1)})
			return nil
		},
		func(context.Context) error { fault.Remove(); return nil }); err != nil {
		return err
	}
	return b.trouble(ctx, "the hub's etcd is full", hub.FillDisk, hub.FreeDisk)
}

var writing = faultproxy.Match{Verbs: faultproxy.WriteVerbs}

// untilCut lets a tenth of the agents hang for as long as it takes the hub to notice.
func (b *bench) untilCut(ctx context.Context) error {
	some := b.affectedAgents()
	if len(some) == 0 {
		return nil
	}
	memory, lines := float64(b.product.Principal.Status().Memory), b.logged()
	b.fleet.stop(some...)
	all, err := b.stallAgents(some, 0)
	if err != nil {
		return err
	}
	if err := b.flood(ctx, some); err != nil {
		return err
	}
	most, long := memory, time.After(10*time.Minute)
	var held []float64
	for _, d := range all {
		select {
		case <-d.cut:
			held = append(held, d.heldFor().Seconds())
		case <-long:
			return fmt.Errorf("%s hangs, and was not cut within 10 minutes", d.name)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		most = max(most, float64(b.product.Principal.Status().Memory))
	}
	b.Add("agents that hang, and answer pings: cut after", report.Median(held), "s")
	b.AtMost(300, "agents that hang, and answer pings: the last is cut after", slices.Max(held), "s")
	b.AtMost(1.2, "agents that hang, and answer pings: principal's memory until then over before", most/memory, "×")
	b.Add("agents that hang, and answer pings: warnings of the principal", b.logged()-lines, "")
	b.fleet.stop(some...)
	for _, m := range some {
		b.fleet.start(b.ctx, m, b.product.Address())
	}
	return b.whole(ctx)
}

// How long a trouble lasts, and after how much of it the principal has to have adapted.
const (
	troubleFor   = 45 * time.Second
	troubleKnown = 15 * time.Second
)

// trouble changes the status of all Applications, and of some again and again, while the hub cannot write them. It asks
// how much the principal tries meanwhile, whether it says so, and how long it takes until everything is there after the end.
func (b *bench) trouble(ctx context.Context, what string, begin, end func(context.Context) error) error {
	report.Progress("%s", what)
	all := b.agents * b.apps
	memory := b.sampled(ctx, time.Second)
	before, lines, ends := float64(b.product.Principal.Status().Memory), b.logged(), b.fleet.ends()
	if err := begin(ctx); err != nil {
		return err
	}
	began := time.Now()
	for i := range all {
		if err := b.touch(b.fleet.members[i/b.apps], appName(i%b.apps)); err != nil {
			return err
		}
	}
	tried, known := 0, time.Time{}
	rate := b.rate * b.writes
	for changes := 0; time.Since(began) < troubleFor && ctx.Err() == nil; pause(ctx, 10*time.Millisecond) {
		for due := int(time.Since(began).Seconds() * rate); changes < due; changes++ {
			if err := b.touch(b.fleet.members[rand.IntN(b.agents)], appName(rand.IntN(b.apps))); err != nil {
				return err
			}
		}
		if known.IsZero() && time.Since(began) > troubleKnown {
			known, tried = time.Now(), b.faults.Count(writing)
		}
	}
	b.AtMost(5, what+": writes that the principal tries meanwhile", float64(b.faults.Count(writing)-tried)/time.Since(known).Seconds(), "/s")
	says, err := b.product.Principal.Metric(ctx, "argocd_agent_principal_api_trouble")
	if err != nil {
		return err
	}
	b.AtLeast(1, what+": its metric says so", says, "")
	waiting, err := b.product.Principal.Metric(ctx, "argocd_agent_principal_api_writes_waiting")
	if err != nil {
		return err
	}
	b.Add(what+": writes that wait in the principal", waiting, "")
	if err := end(ctx); err != nil {
		return err
	}
	ended, writes := time.Now(), b.hub.writes.Load()
	if _, err := b.hub.status.arrived(ctx, 10*time.Minute); err != nil {
		return err
	}
	took := time.Since(ended)
	samples := memory()
	b.AtMost(20+2*float64(all)/b.writes, what+": after its end everything has arrived, none lost", took.Seconds(), "s")
	b.AtMost(2.5, what+": writes on the hub after it, for each Application that changed", float64(b.hub.writes.Load()-writes)/float64(all), "")
	b.AtMost(1.5, what+": principal's memory, most over before", slices.Max(samples)/before, "×")
	b.Add(what+": sessions that ended", float64(b.fleet.ends()-ends), "")
	b.AtMost(50, what+": warnings of the principal", b.logged()-lines, "")
	b.tellKinds(lines)
	return b.whole(ctx)
}

// logged is how many lines the principal has written into its log, which has warnings only.
func (b *bench) logged() float64 { return float64(len(b.log())) }

func (b *bench) log() []string {
	text, err := os.ReadFile(b.product.Principal.Status().Log)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// tellKinds shows which messages there were after the first lines, and one example of each.
func (b *bench) tellKinds(after float64) {
	counts, example := map[string]int{}, map[string]string{}
	for _, line := range b.log()[int(after):] {
		_, message, _ := strings.Cut(line, "msg")
		message = strings.TrimLeft(message, "=\":")
		message, _, _ = strings.Cut(message, "\"")
		counts[message]++
		example[message] = line
	}
	for _, message := range slices.Sorted(maps.Keys(counts)) {
		report.Progress("%d × %s", counts[message], example[message])
	}
}
