// Command sync measures cost and latency of replication at the two API servers: a real hub and a real spoke with fsync,
// and the binaries as users run them. No Argo CD controller runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/argocd-agent/argocd-agent/bench/report"
	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

const usage = `Measures one agent between two real API servers: latency, bursts, memory, bytes of a reconnect.

  sync [flags]

Short measurements are repeated within a run. -runs 3 repeats the whole benchmark with new clusters.
The table has medians, ranges and targets. The figures are also saved as JSON.

`

func main() {
	runs := flag.Int("runs", 1, "number of runs, each with new clusters")
	file := flag.String("json", "dist/bench-sync.json", "file for the figures")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *runs, *file)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type bench struct {
	lab     *lab.Lab
	product *product.Product
	agent   *product.Agent
	hub     *side
	spoke   *side
	*report.Report
}

func run(ctx context.Context, runs int, file string) error {
	if runs < 1 {
		return errors.New("-runs must be at least 1")
	}
	figures := report.New("Replication between two API servers, one agent")
	var err error
	for range runs {
		if err = once(ctx, figures); err != nil {
			break
		}
	}
	return figures.End(file, err)
}

// once runs all parts with new clusters.
func once(ctx context.Context, figures *report.Report) error {
	folder, err := os.MkdirTemp("", "bench-sync-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	report.Progress("building")
	file, err := product.Build(ctx, folder)
	if err != nil {
		return err
	}
	report.Progress("starting a hub and a spoke, with fsync")
	l, err := lab.Up(ctx, lab.Options{Dir: filepath.Join(folder, "lab"), Spokes: []lab.Spoke{{Name: "w1", Role: lab.Managed}},
		Bare: true, Fsync: true, WhilePID: os.Getpid(), Ephemeral: true, Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { _ = l.Down(context.Background()) }()
	b := &bench{lab: l, Report: figures}
	if b.product, err = product.New(l, file); err != nil {
		return err
	}
	defer b.product.Close()
	if err := b.start(ctx); err != nil {
		return err
	}
	if info, err := os.Stat(file); err == nil {
		b.AtMost(60, "binary, stripped", float64(info.Size())/1e6, "MB")
	}
	return report.Run(ctx,
		report.Part{Name: "rest: memory and CPU with 10 Applications", Do: b.rest},
		report.Part{Name: "latency of single changes", Do: b.latency},
		report.Part{Name: "a burst of 300 Applications and 1,500 status changes", Do: b.burst},
		report.Part{Name: "reconnect with 1,000 unchanged Applications", Do: b.reconnect},
	)
}

func (b *bench) start(ctx context.Context) error {
	var err error
	if b.hub, err = newSide(ctx, b.lab.Hub(), "w1"); err != nil {
		return err
	}
	if b.spoke, err = newSide(ctx, b.lab.Cluster("w1"), lab.ArgoCDNamespace); err != nil {
		return err
	}
	if err := b.product.StartPrincipal(ctx); err != nil {
		return err
	}
	if b.agent, err = b.product.StartAgent(ctx, "w1", "managed"); err != nil {
		return err
	}
	return b.agent.Connected(ctx)
}
