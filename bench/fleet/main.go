// Command fleet measures a whole fleet on one machine: one real principal on a real hub API server with fsync, and many
// real agents in this process. Each agent has an identity, a connection and an in-memory cluster.
//
// It measures from the outside where possible: at the API server, in /proc and in the clusters of the agents.
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

// settings are the options of a run.
type settings struct {
	agents, apps int
	size         int  // bytes that are added to the spec of each Application of the hub
	principals   int  // replicas
	fromStart    bool // all replicas are started before the agents
	runs         int
	autonomous   float64       // share of agents, 0 to 1
	rest         time.Duration // observation period at rest
	stream       time.Duration // duration of the status stream
	rate         float64       // rate of the status stream as a share of the hub's write rate
	churn        time.Duration // duration of reconciledAt changes every two minutes. If 0, one change
	faults       bool
	linkProfile  netem.Profile // profile of every link
	only         string        // names of parts
	profiles     string        // directory. If empty, no profiles
	json         string
}

const usage = `Measures a fleet: many agents on one principal, on one machine.

  fleet [flags]

It starts a hub (a real API server and etcd, with fsync), a principal, and the agents in this process. The agents run the
code of the product, each with a certificate, a connection and an in-memory cluster. The benchmark runs its parts in
order and prints a table with figures, their range and their targets. It also saves the figures as JSON.

  fleet -agents 100 -rest 20s -stream 20s       short run, two minutes
  fleet                                         1,000 agents with 10 Applications each, about ten minutes
  fleet -runs 3                                 three runs: medians and range
  fleet -latency 25ms -loss 0.01 -cuts 2        links with faults; -seed repeats the fault pattern of another run
  fleet -only stream -stream 10m                long stream; memory must not grow
  fleet -only churn -churn 12m                  reconciledAt changes every two minutes
  fleet -only hang,outage                       unresponsive agents, status 429, full etcd
  fleet -only hostile                           one agent that floods the principal
  fleet -principals 4 -only principals          agents spread over four principal replicas, and one is killed
  fleet -principals 4 -only principals -from-start
                                                four principal replicas from the start, and one is killed
  fleet -only freshness                         all agents lose their network; Applications show it

Parts, for -only: ` + partNames + `.
The Applications are always written first, and the agents always connect with empty spokes.

`

func main() {
	if text, ok := os.LookupEnv(hostileVariable); ok {
		if err := runHostile(text); err != nil {
			fmt.Fprintln(os.Stderr, "hostile agent:", err)
			os.Exit(1)
		}
		return
	}
	debug.SetGCPercent(garbage)
	s := settings{}
	flag.IntVar(&s.agents, "agents", 1000, "how many agents")
	flag.IntVar(&s.apps, "apps", 10, "Applications of each agent")
	flag.IntVar(&s.size, "size", 0, "bytes of Helm values that are added to each Application of the hub; real Applications are larger than those of the benchmark")
	flag.IntVar(&s.principals, "principals", 1, "principal replicas; with more than one, the part principals runs")
	flag.BoolVar(&s.fromStart, "from-start", false, "start all principal replicas before the agents, instead of one and then the others")
	flag.IntVar(&s.runs, "runs", 1, "how often everything is done, each time with a new hub")
	flag.Float64Var(&s.autonomous, "autonomous", 0, "share of the agents that are autonomous, 0 to 1")
	flag.DurationVar(&s.rest, "rest", 2*time.Minute, "how long the fleet is watched at rest; agents send a beacon each minute")
	flag.DurationVar(&s.stream, "stream", time.Minute, "duration of the stream of status changes")
	flag.Float64Var(&s.rate, "rate", 0.3, "rate of the stream as a share of the write rate of the hub's API server")
	flag.DurationVar(&s.churn, "churn", 0, "how long reconciledAt of every Application changes every two minutes; 0: it moves once, within 15 s")
	flag.BoolVar(&s.faults, "faults", false, "add the slow parts: disconnected agents, unresponsive agents until they are disconnected, write outages of the hub, and a hostile agent")
	flag.DurationVar(&s.linkProfile.Latency, "latency", 0, "delay of every link, one way")
	flag.Float64Var(&s.linkProfile.Loss, "loss", 0, "share of lost TCP segments, 0 to 1. A lost segment delays its connection until it is retransmitted")
	flag.Float64Var(&s.linkProfile.Cuts, "cuts", 0, "broken connections per agent and hour")
	flag.Uint64Var(&s.linkProfile.Seed, "seed", 1, "random seed of the fault pattern")
	flag.StringVar(&s.only, "only", "", "parts to run, separated by commas")
	flag.StringVar(&s.profiles, "profiles", "", "directory for CPU, heap, mutex and goroutine profiles of the principal")
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
	if w := s.linkProfile; !w.IsZero() {
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

// partNames lists the selectable parts in their order.
const partNames = "cold, emptied, rest, singles, stream, churn, webhook, killed, principals, stuck, freshness, hang, outage, sessions, hostile"

func (s settings) check() error {
	known := strings.Split(partNames, ", ")
	for _, part := range s.chosen() {
		if !slices.Contains(known, part) {
			return fmt.Errorf("there is no part %q: choose of %s", part, partNames)
		}
	}
	if s.agents < 1 || s.apps < 1 || s.apps > 100 || s.runs < 1 || s.principals < 1 {
		return errors.New("there has to be an agent, 1 to 100 Applications of each, a principal, and a run")
	}
	if s.fromStart && (s.principals < 2 || s.only != "principals") {
		return errors.New("-from-start needs several -principals and -only principals: other parts restart one principal")
	}
	for what, share := range map[string]float64{"-autonomous": s.autonomous, "-loss": s.linkProfile.Loss, "-rate": s.rate} {
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

// wants reports whether a part is selected.
func (s settings) wants(part string) bool {
	if part == "principals" && s.principals < 2 {
		return false
	}
	if s.only == "" {
		return s.faults || !slices.Contains([]string{"freshness", "hang", "outage", "hostile"}, part)
	}
	return slices.Contains(s.chosen(), part)
}

// once runs all parts with one hub.
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
		{"churn", "reconciledAt of every Application changes", b.churning},
		{"webhook", "a refresh of every Application at once", b.webhook},
		{"killed", "the principal is killed and started again", b.killed},
		{"principals", "more principal replicas, and one is killed", b.replicas},
		{"stuck", "a tenth of the agents stop reading", b.stuck},
		{"freshness", "all agents are disconnected: what Applications show", b.freshness},
		{"hang", "unresponsive agents until the hub disconnects them", b.untilCut},
		{"outage", "write outages of the hub's API server", b.outages},
		{"sessions", "sessions over the in-memory transport", b.sessions},
		{"hostile", "one hostile agent at full rate", b.hostile},
	} {
		if s.wants(p.name) {
			parts = append(parts, b.part(p.title, p.do))
		}
	}
	return report.Run(ctx, parts...)
}

// enoughFiles raises the limit of open files and reports if the fleet needs more.
func enoughFiles(s settings) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("get limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise limit of open files: %w", err)
	}
	if need := uint64(s.agents + 500); limit.Max < need {
		return fmt.Errorf("%d agents need %d open files, limit is %d: raise it (ulimit -Hn) or use fewer agents", s.agents, need, limit.Max)
	}
	return nil
}
