// Command sync measures what synchronisation costs and how quick it is, seen from the two API servers: a real hub and a
// real spoke with fsync on, the programs as users run them, no Argo CD controller that would disturb.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// figure is one line of the table.
type figure struct {
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Target float64 `json:"target,omitempty"` // at most; 0: none
}

type bench struct {
	lab     *lab.Lab
	product *product.Product
	agent   *product.Agent
	hub     *side
	spoke   *side
	figures []figure
}

func run(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "bench-sync-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	progress("building")
	file, err := product.Build(ctx, folder)
	if err != nil {
		return err
	}
	progress("starting a hub and a spoke, with fsync")
	l, err := lab.Up(ctx, lab.Options{Folder: filepath.Join(folder, "lab"), Spokes: []lab.Spoke{{Name: "w1", Role: lab.Managed}},
		Bare: true, Fsync: true, WhilePID: os.Getpid(), Ephemeral: true, Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { _ = l.Down(context.Background()) }()
	b := &bench{lab: l}
	if b.product, err = product.New(l, file); err != nil {
		return err
	}
	defer b.product.Close()
	if err := b.start(ctx); err != nil {
		return err
	}
	if info, err := os.Stat(file); err == nil {
		b.add("binary, stripped", float64(info.Size())/1e6, "MB", 60)
	}
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"rest: memory and CPU with 10 Applications", b.rest},
		{"latency of single changes", b.latency},
		{"a burst of 300 Applications and 1,500 status changes", b.burst},
		{"reconnect with 1,000 unchanged Applications", b.reconnect},
	} {
		progress(part.name)
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return b.print()
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

func (b *bench) add(what string, value float64, unit string, target float64) {
	b.figures = append(b.figures, figure{what, value, unit, target})
}

// print writes the table for people and, beside it, JSON for programs.
func (b *bench) print() error {
	fmt.Printf("\n%s, %d cores, %s, %s\n\n", runtime.Version(), runtime.NumCPU(), commit(), time.Now().UTC().Format(time.DateTime))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "measured\tat most\t\t")
	for _, f := range b.figures {
		target, verdict := "", ""
		if f.Target > 0 {
			target = fmt.Sprintf("%.4g %s", f.Target, f.Unit)
			if verdict = "ok"; f.Value > f.Target {
				verdict = "MISSED"
			}
		}
		fmt.Fprintf(w, "%.4g %s\t%s\t%s\t  %s\n", f.Value, f.Unit, target, verdict, f.What)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	body, err := json.MarshalIndent(b.figures, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll("dist", 0o755); err != nil {
		return err
	}
	return os.WriteFile("dist/bench-sync.json", append(body, '\n'), 0o600)
}

func progress(what string) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), what)
}

func commit() string {
	head, err := os.ReadFile(".git/HEAD")
	if err != nil {
		return "unknown commit"
	}
	if ref, ok := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: "); ok {
		if head, err = os.ReadFile(filepath.Join(".git", ref)); err != nil {
			return "unknown commit"
		}
	}
	return "commit " + string(head[:min(len(head), 12)])
}
