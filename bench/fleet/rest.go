package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/report"
)

// atRest measures the idle fleet.
func (b *bench) atRest(ctx context.Context) error {
	// After agents have connected, the principal writes a status for each, fifty per second. Wait for these writes.
	pause(ctx, 10*time.Second+time.Duration(b.agents)*25*time.Millisecond)
	messages, err := b.bytes(ctx, "message")
	if err != nil {
		return err
	}
	wire, err := b.bytes(ctx, "wire")
	if err != nil {
		return err
	}
	wait := b.cpuProfile(ctx, "rest", b.rest)
	cpu, err := b.product.Principal.CPU()
	if err != nil {
		return err
	}
	writes, began := b.hub.writes.Load(), time.Now()
	pause(ctx, b.rest)
	after, err := b.product.Principal.CPU()
	if err != nil {
		return err
	}
	span := time.Since(began)
	messagesAfter, err := b.bytes(ctx, "message")
	if err != nil {
		return err
	}
	wireAfter, err := b.bytes(ctx, "wire")
	if err != nil {
		return err
	}
	memory, agents := float64(b.product.Principal.Status().Memory), float64(b.agents)
	if b.agents <= 1000 {
		b.AtMost(150, "rest: principal's memory", memory/1e6, "MB RSS")
	} else {
		b.Add("rest: principal's memory", memory/1e6, "MB RSS")
	}
	b.Add("rest: principal's memory for each agent, objects included", memory/1e3/agents, "kB")
	alive, err := living(ctx, b.pprof)
	if err != nil {
		return err
	}
	if b.autonomous == 0 { // with autonomous agents, the principal did not have all objects before
		b.AtMost(80, "rest: principal's live memory for each agent, without Applications", (alive-b.bare)/1e3/agents, "kB")
	}
	b.AtMost(5, "rest: principal's CPU", 100*float64(after-cpu)/float64(span), "% of a core")
	// All agents send their beacons at about the same time. A part of an interval would have all of them or none.
	if b.rest%time.Minute == 0 {
		hourly := float64(time.Hour) / float64(span) / agents
		b.Add("rest: bytes of messages for each agent and hour", (messagesAfter-messages)*hourly, "bytes")
		b.AtMost(20_000, "rest: the same with pings, HTTP/2 and TLS", (wireAfter-wire)*hourly, "bytes")
	} else {
		report.Progress("no traffic at rest, because -rest is not a multiple of one minute")
	}
	b.Add("rest: writes of Applications on the hub", float64(b.hub.writes.Load()-writes)/span.Seconds(), "/s")
	if own, err := ownMemory(); err == nil {
		b.Add("rest: memory of this process for each agent, its cluster included", own/1e3/agents, "kB")
	}
	report.Progress("principal: %.0f MB, of which %.0f MB are alive", memory/1e6, alive/1e6)
	return wait()
}

// living returns the bytes of heap and stacks of a principal after a garbage collection. port serves its profiles.
func living(ctx context.Context, port int) (float64, error) {
	resp, err := fetch(ctx, fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/heap?gc=1&debug=1", port))
	if err != nil {
		return 0, fmt.Errorf("read memory of the principal: %w", err)
	}
	defer resp.Body.Close()
	sum, found := 0.0, 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, rest, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "# "), " = ")
		if name != "HeapAlloc" && name != "Stack" {
			continue
		}
		first, _, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseFloat(first, 64)
		if err != nil {
			return 0, fmt.Errorf("read the principal's memory: %w", err)
		}
		sum += n
		found++
	}
	if found != 2 {
		return 0, fmt.Errorf("read memory of the principal: found %d of 2 numbers", found)
	}
	return sum, nil
}

// ownMemory returns the resident memory of this process.
func ownMemory() (float64, error) {
	stat, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(stat), &size, &resident); err != nil {
		return 0, err
	}
	return resident * float64(os.Getpagesize()), nil
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // fails only for invalid arguments
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// sampled samples the memory of the principal until it is stopped.
func (b *bench) sampled(ctx context.Context, every time.Duration) (stop func() []float64) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan []float64, 1)
	go func() {
		var all []float64
		for beat := time.NewTicker(every); ; {
			all = append(all, float64(b.product.Principal.Status().Memory))
			select {
			case <-beat.C:
			case <-ctx.Done():
				beat.Stop()
				done <- all
				return
			}
		}
	}()
	return func() []float64 {
		cancel()
		return <-done
	}
}

// growth returns the ratio of the last quarter of the samples to the second quarter. The first quarter is warm-up.
func growth(samples []float64) float64 {
	n := len(samples)
	if n < 4 {
		return samples[n-1] / samples[0]
	}
	return report.Median(samples[n-n/4:]) / report.Median(samples[n/4:n/2])
}
