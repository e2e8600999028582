package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/report"
)

// rest measures the idle cost of the binaries.
func (b *bench) rest(ctx context.Context) error {
	want := map[string]string{}
	for i := range 10 {
		name := fmt.Sprintf("rest-%d", i)
		if err := b.hub.create(ctx, name, "v1"); err != nil {
			return err
		}
		want[name] = "v1/"
	}
	if err := b.spoke.until(ctx, want); err != nil {
		return err
	}
	const span = 30 * time.Second
	agentBefore, err := b.agent.CPU()
	if err != nil {
		return err
	}
	principalBefore, err := b.product.Principal.CPU()
	if err != nil {
		return err
	}
	pause(ctx, span)
	agentAfter, err := b.agent.CPU()
	if err != nil {
		return err
	}
	principalAfter, err := b.product.Principal.CPU()
	if err != nil {
		return err
	}
	b.AtMost(0.5, "agent's CPU at rest", 100*float64(agentAfter-agentBefore)/float64(span), "% of a core")
	b.AtMost(0.5, "principal's CPU at rest", 100*float64(principalAfter-principalBefore)/float64(span), "% of a core")
	b.AtMost(30, "agent's memory with 10 Applications", float64(b.agent.Status().Memory)/1e6, "MB RSS")
	b.AtMost(45, "principal's memory with 10 Applications", float64(b.product.Principal.Status().Memory)/1e6, "MB RSS")
	return nil
}

// batches is the number of measurements of single changes in one run, after some for warm-up.
const batches = 5

// latency measures single changes from the response to the write on one side to the watch event on the other.
func (b *bench) latency(ctx context.Context) error {
	const name, warmUp, rounds = "rest-0", 20, 300
	last := "v1"
	for batch := range batches + 1 {
		n := rounds
		if batch == 0 {
			n = warmUp
		}
		number := func(i int) string { return fmt.Sprintf("n%d-%d", batch, i) }
		spec, err := measure(ctx, n, name, b.spoke, b.hub.retarget, number, func(i int) string { return number(i) + "/" + b.spoke.message(name) })
		if err != nil {
			return err
		}
		last = number(n - 1)
		status, err := measure(ctx, n, name, b.hub, b.spoke.report, number, func(i int) string { return last + "/" + number(i) })
		if err != nil {
			return err
		}
		if batch == 0 {
			continue
		}
		b.AtMost(10, "spec, hub to spoke, median", millis(report.Percentile(spec, 50)), "ms")
		b.AtMost(25, "spec, hub to spoke, 99th percentile", millis(report.Percentile(spec, 99)), "ms")
		b.AtMost(10, "status, spoke to hub, median", millis(report.Percentile(status, 50)), "ms")
		b.AtMost(25, "status, spoke to hub, 99th percentile", millis(report.Percentile(status, 99)), "ms")
	}
	return nil
}

// measure makes one change after the other and returns the sorted latencies.
func measure(ctx context.Context, n int, name string, to *side, change func(context.Context, string, string) error, number, mark func(int) string) ([]time.Duration, error) {
	var took []time.Duration
	for i := range n {
		if err := change(ctx, name, number(i)); err != nil {
			return nil, err
		}
		written := time.Now()
		if err := to.until(ctx, map[string]string{name: mark(i)}); err != nil {
			return nil, err
		}
		took = append(took, time.Since(written))
	}
	slices.Sort(took)
	return took, nil
}

// burst creates 300 Applications with one writer, and then changes their status 1,500 times.
func (b *bench) burst(ctx context.Context) error {
	const apps, reports = 300, 1500
	want := map[string]string{}
	began := time.Now()
	for i := range apps {
		name := fmt.Sprintf("burst-%d", i)
		if err := b.hub.create(ctx, name, "v1"); err != nil {
			return err
		}
		want[name] = "v1/"
	}
	written := time.Since(began)
	if err := b.spoke.until(ctx, want); err != nil {
		return err
	}
	b.AtMost(1.1, "300 Applications, time to converge over time to write", float64(time.Since(began))/float64(written), "×")
	b.AtMost(30, "agent's memory after 300 Applications", float64(b.agent.Status().Memory)/1e6, "MB RSS")

	began = time.Now()
	for i := range reports {
		name, message := fmt.Sprintf("burst-%d", i%apps), fmt.Sprintf("m%d", i)
		if err := b.spoke.report(ctx, name, message); err != nil {
			return err
		}
		want[name] = "v1/" + message
	}
	written = time.Since(began)
	if err := b.hub.until(ctx, want); err != nil {
		return err
	}
	b.AtMost(1.1, "1,500 status changes, time to converge over time to write", float64(time.Since(began))/float64(written), "×")
	b.AtMost(30, "agent's memory after 300 Applications and 1,500 status changes", float64(b.agent.Status().Memory)/1e6, "MB RSS")
	return nil
}

// reconnect measures the cost of a new connection without changes.
func (b *bench) reconnect(ctx context.Context) error {
	want := map[string]string{}
	for i := range 1000 - 310 {
		name := fmt.Sprintf("many-%d", i)
		if err := b.hub.create(ctx, name, "v1"); err != nil {
			return err
		}
		want[name] = "v1/"
	}
	if err := b.spoke.until(ctx, want); err != nil {
		return err
	}
	pause(ctx, 3*time.Second) // let messages in transit arrive
	counters := func() (in, out, connects float64, err error) {
		for name, value := range map[string]*float64{
			"argocd_agent_message_received_bytes_total": &in, "argocd_agent_message_sent_bytes_total": &out, "argocd_agent_connects_total": &connects,
		} {
			if *value, err = b.agent.Metric(ctx, name); err != nil {
				return
			}
		}
		return
	}
	for range reconnects {
		in, out, connects, err := counters()
		if err != nil {
			return err
		}
		b.agent.Link.Reset()
		for now := connects; now == connects; {
			pause(ctx, 100*time.Millisecond)
			if _, _, now, err = counters(); err != nil {
				return err
			}
		}
		pause(ctx, 3*time.Second)
		inAfter, outAfter, _, err := counters()
		if err != nil {
			return err
		}
		b.AtMost(1024, "reconnect with 1,000 unchanged Applications, from the hub", inAfter-in, "bytes")
		b.AtMost(1024, "reconnect with 1,000 unchanged Applications, to the hub", outAfter-out, "bytes")
	}
	return nil
}

// reconnects is the number of measurements in one run.
const reconnects = 3

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
