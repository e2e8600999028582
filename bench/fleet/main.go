// Command fleet measures a whole fleet on one machine: one real principal on a real hub API server that syncs to disk,
// and many real agents in this process, each with an identity, a connection and a cluster of its own in memory.
//
// It looks from the outside wherever it can: at the API server, at /proc, at the clusters of the agents.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/fleet/netem"
	"github.com/argocd-agent/argocd-agent/bench/report"
)

// settings of a run.
type settings struct {
	agents, apps int
	runs         int
	autonomous   float64       // share of agents, 0 to 1
	rest         time.Duration // how long the fleet is watched at rest
	stream       time.Duration // how long the status stream lasts
	rate         float64       // of it, as a share of what the hub's API server writes
	churn        time.Duration // how long reconciledAt moves every two minutes; 0: it moves once
	faults       bool
	weather      netem.Profile // of every link
	only         string        // parts, by their names
	profiles     string        // folder; empty: none
	json         string
}

const usage = `Measures a fleet: many agents on one principal, on one machine.

  fleet [flags]

It starts a hub (a real API server and etcd, with fsync) and a principal, and in this process as many agents as you
like: the product's own code, each with a certificate, a connection and a cluster in memory. Then it does what a fleet
goes through, part by part, and ends with a table: what was measured, how far values of the same thing were apart, and
what we want it to be. The same is saved as JSON.

  fleet -agents 100 -rest 20s -stream 20s       a look, in two minutes
  fleet                                         1,000 agents with 10 Applications each, about ten minutes
  fleet -runs 3                                 three times over: medians, and how far they are apart
  fleet -latency 25ms -loss 0.01 -cuts 2        over bad links; -seed repeats the weather of another run
  fleet -only stream -stream 10m                a long stream; its target is that memory stays flat
  fleet -only churn -churn 12m                  reconciledAt moves every two minutes: what of that reaches the hub
  fleet -only hang,trouble                      agents that hang, a hub that answers 429, a full disk of etcd

Parts, for -only: ` + partNames + `.
Writing the Applications and connecting with empty spokes come first, whatever you choose.

`

func main() {
	debug.SetGCPercent(garbage)
	s := settings{}
	flag.IntVar(&s.agents, "agents", 1000, "how many agents")
	flag.IntVar(&s.apps, "apps", 10, "Applications of each agent")
	flag.IntVar(&s.runs, "runs", 1, "how often everything is done, each time with a new hub")
	flag.Float64Var(&s.autonomous, "autonomous", 0, "share of the agents that are autonomous, 0 to 1")
	flag.DurationVar(&s.rest, "rest", 2*time.Minute, "how long the fleet is watched at rest; agents send a beacon each minute")
	flag.DurationVar(&s.stream, "stream", time.Minute, "how long the stream of status changes lasts")
	flag.Float64Var(&s.rate, "rate", 0.3, "rate of the stream, as a share of the writes per second that the hub's API server does")
	flag.DurationVar(&s.churn, "churn", 0, "how long reconciledAt of every Application moves every two minutes; 0: it moves once, within 15 s")
	flag.BoolVar(&s.faults, "faults", false, "add what takes long: agents that hang until they are cut, and a hub in trouble")
	flag.DurationVar(&s.weather.Latency, "latency", 0, "delay of every link, one way")
	flag.Float64Var(&s.weather.Loss, "loss", 0, "share of TCP segments that are lost, 0 to 1; each holds up its connection until it is sent again")
	flag.Float64Var(&s.weather.Cuts, "cuts", 0, "how often each agent's connection breaks, per hour")
	flag.Uint64Var(&s.weather.Seed, "seed", 1, "of what is lost and broken")
	flag.StringVar(&s.only, "only", "", "do only these parts, separated by commas")
	flag.StringVar(&s.profiles, "profiles", "", "folder for CPU, heap, mutex and goroutine profiles of the principal")
	flag.StringVar(&s.json, "json", "dist/bench-fleet.json", "file for the figures")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
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
	if err := errors.Join(s.check(), enoughFiles(s)); err != nil {
		return err
	}
	title := fmt.Sprintf("Fleet: %d agents, %d Applications each, %.0f %% of them autonomous", s.agents, s.apps, 100*s.autonomous)
	if w := s.weather; !w.IsZero() {
		title += fmt.Sprintf("; links with %v one way, %.3g %% loss, %.3g cuts an hour, seed %d", w.Latency, 100*w.Loss, w.Cuts, w.Seed)
	}
	figures := report.New(title)
	var err error
	for i := range s.runs {
		if s.runs > 1 {
			report.Progress("run %d of %d", i+1, s.runs)
		}
		if err = once(ctx, s, figures); err != nil {
			break
		}
	}
	return figures.End(s.json, err)
}

// partNames are those that can be chosen, in their order.
const partNames = "cold, emptied, rest, singles, stream, churn, webhook, killed, stuck, hang, trouble"

func (s settings) check() error {
	known := strings.Split(partNames, ", ")
	for _, part := range s.chosen() {
		if !slices.Contains(known, part) {
			return fmt.Errorf("there is no part %q: choose of %s", part, partNames)
		}
	}
	if s.agents < 1 || s.apps < 1 || s.apps > 100 || s.runs < 1 {
		return errors.New("there has to be an agent, 1 to 100 Applications of each, and a run")
	}
	for what, share := range map[string]float64{"-autonomous": s.autonomous, "-loss": s.weather.Loss, "-rate": s.rate} {
		if share < 0 || share > 1 {
			return fmt.Errorf("%s is a share, from 0 to 1, and not %v", what, share)
		}
	}
	return nil
}

func (s settings) chosen() []string {
	if s.only == "" {
		return nil
	}
	return strings.Split(s.only, ",")
}

// wants reports whether a part is to be done.
func (s settings) wants(part string) bool {
	if s.only == "" {
		return s.faults || part != "hang" && part != "trouble"
	}
	return slices.Contains(s.chosen(), part)
}

// once does everything with one hub.
func once(ctx context.Context, s settings, figures *report.Report) error {
	b, err := newBench(ctx, s, figures)
	if err != nil {
		return err
	}
	defer b.close()
	parts := []report.Part{
		b.part("writing the Applications", b.write),
		b.part("empty spokes: connect and converge", b.fill),
	}
	for _, p := range []struct {
		name, title string
		do          func(context.Context) error
	}{
		{"emptied", "all processes cold, spokes emptied: connect and converge", b.emptied},
		{"cold", "all processes cold, both sides equal: connect and compare", b.cold},
		{"rest", "at rest", b.atRest},
		{"singles", "latency of single changes", b.singles},
		{"stream", "a stream of status changes", b.streaming},
		{"churn", "reconciledAt of every Application moves", b.churning},
		{"webhook", "a refresh of every Application at once", b.webhook},
		{"killed", "the principal is killed and started again", b.killed},
		{"stuck", "a tenth of the agents takes nothing any more", b.stuck},
		{"hang", "agents hang, until the hub cuts them", b.untilCut},
		{"trouble", "the hub's API server is in trouble", b.faulty},
	} {
		if s.wants(p.name) {
			parts = append(parts, b.part(p.title, p.do))
		}
	}
	return report.Run(ctx, parts...)
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
	if need := uint64(s.agents + 500); limit.Max < need {
		return fmt.Errorf("%d agents need %d open files, and %d are permitted: raise the limit (ulimit -Hn) or take fewer agents", s.agents, need, limit.Max)
	}
	return nil
}
