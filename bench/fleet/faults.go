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

// outages injects faults into the hub's API server. The principal uses it through a proxy that counts requests. The
// proxy is slower, so compare figures of this part only with each other.
func (b *bench) outages(ctx context.Context) error {
	hub := b.lab.Hub()
	var err error
	if b.faults, err = hub.FaultyAPI(); err != nil {
		return err
	}
	if err := b.product.Principal.RestartWith(ctx, "--kubeconfig", b.faults.Kubeconfig); err != nil {
		return err
	}
	pause(ctx, 5*time.Second) // all have detected it
	if err := b.waitAllInSync(ctx); err != nil {
		return err
	}
	var fault *faultproxy.Fault
	if err := b.outage(ctx, "the hub answers every write with 429",
		func(context.Context) error {
			fault = b.faults.Add(faultproxy.Rule{Match: writing, Do: faultproxy.TooManyRequests(1)})
			return nil
		},
		func(context.Context) error { fault.Remove(); return nil }); err != nil {
		return err
	}
	return b.outage(ctx, "the hub's etcd is full", hub.FillDisk, hub.FreeDisk)
}

var writing = faultproxy.Match{Verbs: faultproxy.WriteVerbs}

// untilCut stalls a tenth of the agents until the hub closes their connections.
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
			held = append(held, d.connectedFor().Seconds())
		case <-long:
			return fmt.Errorf("%s was not disconnected within 10 minutes", d.name)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		most = max(most, float64(b.product.Principal.Status().Memory))
	}
	b.Add("unresponsive agents: disconnected after", report.Median(held), "s")
	b.AtMost(300, "unresponsive agents: last disconnected after", slices.Max(held), "s")
	b.AtMost(1.2, "unresponsive agents: principal's memory, ratio to before", most/memory, "×")
	b.Add("unresponsive agents: warnings of the principal", b.logged()-lines, "")
	b.fleet.stop(some...)
	for _, m := range some {
		b.fleet.start(b.ctx, m, b.product.Address())
	}
	return b.waitAllInSync(ctx)
}

// Duration of an outage, and the time after which the principal must have adapted.
const (
	outageDuration = 45 * time.Second
	adaptTime      = 15 * time.Second
)

// outage changes the status of all Applications, and of some repeatedly, while the hub cannot write them. It measures
// the write attempts of the principal, checks its metric, and measures the time until everything has arrived
// afterwards.
func (b *bench) outage(ctx context.Context, what string, begin, end func(context.Context) error) error {
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
	for changes := 0; time.Since(began) < outageDuration && ctx.Err() == nil; pause(ctx, 10*time.Millisecond) {
		for due := int(time.Since(began).Seconds() * rate); changes < due; changes++ {
			if err := b.touch(b.fleet.members[rand.IntN(b.agents)], appName(rand.IntN(b.apps))); err != nil {
				return err
			}
		}
		if known.IsZero() && time.Since(began) > adaptTime {
			known, tried = time.Now(), b.faults.Count(writing)
		}
	}
	b.AtMost(5, what+": write attempts of the principal", float64(b.faults.Count(writing)-tried)/time.Since(known).Seconds(), "/s")
	says, err := b.product.Principal.Metric(ctx, "argocd_agent_principal_api_write_outage")
	if err != nil {
		return err
	}
	b.AtLeast(1, what+": metric reports it", says, "")
	waiting, err := b.product.Principal.Metric(ctx, "argocd_agent_principal_api_writes_waiting")
	if err != nil {
		return err
	}
	b.Add(what+": queued writes of the principal", waiting, "")
	if err := end(ctx); err != nil {
		return err
	}
	ended, writes := time.Now(), b.hub.writes.Load()
	if _, err := b.hub.status.arrived(ctx, 10*time.Minute); err != nil {
		return err
	}
	took := time.Since(ended)
	samples := memory()
	b.AtMost(20+2*float64(all)/b.writes, what+": everything arrived after the end, none lost", took.Seconds(), "s")
	b.AtMost(2.5, what+": writes on the hub afterwards per changed Application", float64(b.hub.writes.Load()-writes)/float64(all), "")
	b.AtMost(1.5, what+": principal's memory, maximum ratio to before", slices.Max(samples)/before, "×")
	b.Add(what+": ended sessions", float64(b.fleet.ends()-ends), "")
	b.AtMost(50, what+": warnings of the principal", b.logged()-lines, "")
	b.tellKinds(lines)
	return b.waitAllInSync(ctx)
}

// logged returns the number of lines in the log of the principal, which contains only warnings.
func (b *bench) logged() float64 { return float64(len(b.log())) }

func (b *bench) log() []string {
	text, err := os.ReadFile(b.product.Principal.Status().Log)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// tellKinds prints the messages after the first lines, with one example of each.
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
