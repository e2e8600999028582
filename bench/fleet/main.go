// Command fleet measures a whole fleet on one machine: one real principal on a real hub API server that syncs to disk,
// and many real agents in this process, each with an identity, a connection and a cluster of its own in memory.
//
// It looks from the outside wherever it can: at the API server, at /proc, at the clusters of the agents.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/report"
)

// settings of a run.
type settings struct {
	agents, apps int
	autonomous   float64       // share of agents, 0 to 1
	rest         time.Duration // how long the fleet is watched at rest
	stream       time.Duration // how long the status stream lasts
	rate         float64       // of it, as a share of what the hub's API server writes
	latency      time.Duration // of every link, one way; needs a proxy for each agent
	profiles     string        // folder; empty: none
	json         string
}

func main() {
	s := settings{}
	flag.IntVar(&s.agents, "agents", 1000, "how many agents")
	flag.IntVar(&s.apps, "apps", 10, "Applications of each agent")
	flag.Float64Var(&s.autonomous, "autonomous", 0, "share of the agents that are autonomous, 0 to 1")
	flag.DurationVar(&s.rest, "rest", time.Minute, "how long the fleet is watched at rest")
	flag.DurationVar(&s.stream, "stream", time.Minute, "how long the stream of status changes lasts")
	flag.Float64Var(&s.rate, "rate", 0.3, "rate of the stream, as a share of the writes per second that the hub's API server does")
	flag.DurationVar(&s.latency, "latency", 0, "delay of every link, one way")
	flag.StringVar(&s.profiles, "profiles", "", "folder for CPU, heap, mutex and goroutine profiles of the principal")
	flag.StringVar(&s.json, "json", "dist/bench-fleet.json", "file for the figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	if err := enoughFiles(s); err != nil {
		return err
	}
	b, err := newBench(ctx, s)
	if err != nil {
		return err
	}
	defer b.close()
	if err := report.Run(ctx,
		b.part("writing the Applications", b.write),
		b.part("empty spokes: connect and converge", b.fill),
		b.part("all processes cold, both sides equal: connect and compare", b.cold),
		b.part("at rest", b.atRest),
		b.part("latency of single changes", b.singles),
		b.part("a stream of status changes", b.streaming),
		b.part("reconciledAt of every Application moves", b.churn),
		b.part("a refresh of every Application at once", b.webhook),
		b.part("the principal is killed and started again", b.killed),
		b.part("a tenth of the agents read nothing any more", b.stuck),
	); err != nil {
		return err
	}
	return b.Finish(b.json)
}

// enoughFiles raises the limit of open files as far as it may, and says so if a fleet needs more.
func enoughFiles(s settings) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("ask for the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	need := uint64(s.agents + 500)
	if s.latency > 0 {
		need = uint64(4*s.agents + 500)
	}
	if limit.Max < need {
		return fmt.Errorf("%d agents need %d open files, and %d are permitted: raise the limit (ulimit -Hn) or take fewer agents", s.agents, need, limit.Max)
	}
	return nil
}
