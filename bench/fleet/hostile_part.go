package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/report"
)

const (
	// containerMemory is the default memory limit of the principal's container. Go gets nine tenths of it.
	containerMemory = 512 << 20
	goMemory        = containerMemory / 10 * 9

	hostileName   = "hostile"
	hostileWarmUp = 15 * time.Second
)

// hostile measures the other agents and the principal's memory while one agent sends as much as it can. Before and after
// it, it measures without the hostile agent. Then another process takes the cores that the hostile agent would take: it
// has a machine of its own in a real fleet, and the ratio must not contain what it takes from this one.
func (b *bench) hostile(ctx context.Context) error {
	if err := b.hub.namespace(ctx, hostileName); err != nil {
		return err
	}
	cert, key, ca, err := b.product.Credentials(hostileName)
	if err != nil {
		return err
	}
	if err := b.product.Principal.RestartWithEnv(ctx, "GOMEMLIMIT", strconv.Itoa(goMemory)); err != nil {
		return err
	}
	if err := b.waitAllInSync(ctx); err != nil {
		return err
	}
	defer deferGC()()
	if _, _, err := b.measure(ctx, 50); err != nil {
		return err
	}
	before, err := b.withoutHostile(ctx)
	if err != nil {
		return err
	}
	process, err := startHostile(ctx, hostileConfig{Server: b.product.Address(), Name: hostileName, Cert: cert, Key: key, CA: ca})
	if err != nil {
		return err
	}
	began := time.Now()
	memory := b.sampled(ctx, 200*time.Millisecond)
	pause(ctx, hostileWarmUp)
	wait := b.cpuProfile(ctx, "hostile", 20*time.Second)
	during, err := b.quiet(ctx)
	samples := memory()
	span := time.Since(began).Seconds()
	counts, endErr := process.end()
	if err != nil {
		return err
	}
	if endErr != nil {
		return endErr
	}
	if err := wait(); err != nil {
		return err
	}
	report.Progress("the hostile agent's last session ended: %s", counts.LastReason)
	pause(ctx, 10*time.Second) // its last writes
	after, err := b.withoutHostile(ctx)
	if err != nil {
		return err
	}
	b.Add("hostile agent: messages", float64(counts.Messages)/span, "/s")
	b.Add("hostile agent: bytes of messages", float64(counts.Bytes)/span/1e6, "MB/s")
	b.Add("hostile agent: sessions", float64(counts.Sessions), "")
	b.Add("hostile agent: attempts to connect", float64(counts.Attempts)/span, "/s")
	b.addHostile("spec", during.spec, before.spec, after.spec)
	b.addHostile("status", during.status, before.status, after.status)
	b.AtMost(containerMemory/1e6, "hostile agent: principal's memory, at most, of its limit", slices.Max(samples)/1e6, "MB RSS")
	return nil
}

// withoutHostile measures single changes while a process with the priority of a hostile agent only computes.
func (b *bench) withoutHostile(ctx context.Context) (others, error) {
	process, err := startHostile(ctx, hostileConfig{})
	if err != nil {
		return others{}, err
	}
	measured, err := b.quiet(ctx)
	if _, endErr := process.end(); err == nil {
		err = endErr
	}
	return measured, err
}

// quiet measures single changes of the other agents.
func (b *bench) quiet(ctx context.Context) (others, error) {
	spec, status, err := b.measure(ctx, b.rounds(1000))
	return others{spec: spec, status: status}, err
}

func (b *bench) addHostile(what string, during []time.Duration, well ...[]time.Duration) {
	all := slices.Sorted(slices.Values(slices.Concat(well...)))
	b.Add(fmt.Sprintf("without it: %s of other agents, 99th percentile", what), millis(report.Percentile(all, 99)), "ms")
	b.Add(fmt.Sprintf("hostile agent: %s of other agents, median", what), millis(report.Percentile(during, 50)), "ms")
	b.Add(fmt.Sprintf("hostile agent: %s of other agents, 99th percentile", what), millis(report.Percentile(during, 99)), "ms")
	b.AtMost(2, fmt.Sprintf("hostile agent: %s of other agents, 99th percentile, ratio to without it", what),
		float64(report.Percentile(during, 99))/float64(report.Percentile(all, 99)), "×")
}
