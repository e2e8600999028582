// Command drill breaks real clusters at random while users edit on both sides, and then compares every object.
//
// It starts a hub with a standby in another cluster, and a managed and an autonomous workload cluster with Argo CD and an
// agent. Each step injects a fault: it kills, stops or separates a program, an API server, etcd or Redis, fills a disk,
// replaces a program by another release, or the standby takes over. The first steps are one of each class of faults, in an
// order that the seed selects. Users create, edit, delete and sync Applications at the same time, and edit AppProjects, a
// repository and the registrations of agents, also on the side that does not own them. From time to time everything is
// repaired, and the drill waits until both sides and the standby are equal. Then it checks that no object and no edit was
// lost, that nothing was deleted that no user deleted, that workloads are gone only if users asked for that, and that each
// command ran once. At the end there are three failovers, a standby that lacks the last changes is promoted, each cluster is
// restored from an older snapshot, and the hub loses its etcd and is rebuilt from its agents.
//
// The seed selects edits and faults. Timing is that of the machine, so a seed does not repeat a run exactly.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = `Breaks real clusters while users edit, and then compares every object.

  drill [flags]

  drill                     40 faults, failovers, restores from snapshots and a rebuild, about half an hour
  drill -seed 7             other edits and faults, in another order
  drill -hours 2            until two hours have passed, with memory and goroutines of all programs
  drill -older FILE         programs are also replaced by another release of argocd-agent, and back

It prints every fault and edit. If both sides do not become equal, or an object, an edit or a command is lost, it prints what
differs and exits with 1. The logs of all programs are then in the directory that it names.

`

func main() {
	o := options{out: os.Stderr, patience: 5 * time.Minute} // much longer than it takes
	var hours float64
	flag.Uint64Var(&o.seed, "seed", 1, "selects edits and faults")
	flag.IntVar(&o.steps, "steps", 40, "number of faults. The first 34 (32 without -older) are of different classes")
	flag.Float64Var(&hours, "hours", 0, "run for this time instead of a number of faults")
	flag.StringVar(&o.older, "older", "", "binary of another release, for upgrades and downgrades")
	flag.BoolVar(&o.restores, "restores", true, "restore each cluster from an older snapshot at the end")
	flag.BoolVar(&o.hubs, "hubs", true, "with a second hub, and a rebuild at the end")
	flag.BoolVar(&o.failover, "failovers", true, "fail over between the hubs")
	flag.StringVar(&o.file, "curves", "dist/drill.csv", "file that gets memory and goroutines over time. If empty, none")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	o.duration = time.Duration(hours * float64(time.Hour))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		os.Exit(1)
	}
}
