package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/fleet/memcluster"
	"github.com/argocd-agent/argocd-agent/bench/report"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

// bench is a hub with a principal and a fleet of agents.
type bench struct {
	settings
	ctx     context.Context // lifetime of the agents
	folder  string
	lab     *lab.Lab
	product *product.Product
	hub     *hub
	fleet   *fleet
	specs   *latencyTracker // latency of spec changes from the hub
	*report.Report

	faults *lab.FaultyAPI // proxy between principal and hub API server, if faults are injected
	pprof  int            // port
	bare   float64        // live bytes of a principal with all Applications and no agent
	served float64        // live bytes of one principal that serves all agents; 0 if there was none

	connectRate float64 // agents that connected per second, when all did last

	replicaSet *replicaSet // nil if there is only one principal so far

	writes float64
	wrote  time.Duration // time to write all Applications
	number int           // number of the last change
}

func newBench(ctx context.Context, s settings, figures *report.Report) (_ *bench, err error) {
	b := &bench{settings: s, ctx: ctx, specs: newLatencyTracker(), fleet: newFleet(s.linkProfile), Report: figures}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.folder, err = os.MkdirTemp("", "bench-fleet-"); err != nil {
		return nil, err
	}
	report.Progress("building")
	file, err := product.Build(ctx, b.folder)
	if err != nil {
		return nil, err
	}
	report.Progress("starting a hub, with fsync")
	if b.lab, err = lab.Up(ctx, lab.Options{Dir: filepath.Join(b.folder, "lab"), Spokes: []lab.Spoke{}, Bare: true, Fsync: true,
		WhilePID: os.Getpid(), Ephemeral: true, Progress: os.Stderr}); err != nil {
		return nil, err
	}
	if b.product, err = product.New(b.lab, file); err != nil {
		return nil, err
	}
	if b.pprof, err = b.lab.Port(ctx); err != nil {
		return nil, err
	}
	if b.hub, err = newHub(ctx, b.lab.Hub().Admin()); err != nil {
		return nil, err
	}
	report.Progress("making %d agents", s.agents)
	for i := range s.agents {
		mode := kind.Managed
		if float64(i) < s.autonomous*float64(s.agents) {
			mode = kind.Autonomous
		}
		m, err := b.fleet.add(i, mode, b.product.Credentials)
		if err != nil {
			return nil, err
		}
		m.cluster.Observe = func(resource string, fields map[string]any) {
			if resource == memcluster.Applications {
				b.specs.saw(m.name+"/"+dig(fields, "metadata", "name"), dig(fields, "spec", "source", "targetRevision"))
			}
		}
	}
	return b, nil
}

// close stops everything that was started.
func (b *bench) close() {
	b.fleet.stop(b.fleet.members...)
	for _, m := range b.fleet.members {
		if m.link != nil {
			_ = m.link.Close()
		}
	}
	if b.product != nil {
		b.product.Close()
	}
	if b.faults != nil {
		_ = b.faults.Close()
	}
	if b.lab != nil {
		_ = b.lab.Down(context.Background())
	}
	_ = os.RemoveAll(b.folder)
}

// part returns a part that profiles the principal at its end.
func (b *bench) part(name string, do func(context.Context) error) report.Part {
	return report.Part{Name: name, Do: func(ctx context.Context) error {
		if err := do(ctx); err != nil {
			return err
		}
		return b.profile(ctx, name)
	}}
}

// startPrincipal starts the principal for the first time.
func (b *bench) startPrincipal(ctx context.Context) error {
	return b.product.StartPrincipal(ctx, "--pprof-port", strconv.Itoa(b.pprof),
		"--require-registration=false") // the simulated agents register themselves
}

// profile saves profiles of the principal after a part.
func (b *bench) profile(ctx context.Context, part string) error {
	if b.profiles == "" || b.product.Principal == nil {
		return nil
	}
	if err := os.MkdirAll(b.profiles, 0o755); err != nil {
		return err
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, strings.ToLower(part))
	for _, what := range []string{"heap", "mutex", "goroutine", "allocs"} {
		if err := b.save(ctx, what, filepath.Join(b.profiles, name+"."+what+".pprof")); err != nil {
			return err
		}
	}
	return nil
}

// cpuProfile starts a CPU profile of the principal, and one of this process with all agents. The returned function waits
// for their end.
func (b *bench) cpuProfile(ctx context.Context, name string, span time.Duration) (wait func() error) {
	if b.profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		if err := os.MkdirAll(b.profiles, 0o755); err != nil {
			done <- err
			return
		}
		own, err := os.Create(filepath.Join(b.profiles, name+".agents.cpu.pprof"))
		if err != nil {
			done <- err
			return
		}
		defer own.Close()
		if err := pprof.StartCPUProfile(own); err != nil {
			done <- err
			return
		}
		err = b.save(ctx, fmt.Sprintf("profile?seconds=%d", max(1, int(span.Seconds()))), filepath.Join(b.profiles, name+".cpu.pprof"))
		pprof.StopCPUProfile()
		done <- err
	}()
	return func() error { return <-done }
}

func (b *bench) save(ctx context.Context, what, file string) error {
	return saveProfile(ctx, b.pprof, what, file)
}

// saveProfile saves a profile of the program that serves its profiles at a port.
func saveProfile(ctx context.Context, port int, what, file string) error {
	resp, err := fetch(ctx, fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/%s", port, what))
	if err != nil {
		return fmt.Errorf("profile the principal: %w", err)
	}
	defer resp.Body.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, resp.Body)
	return err
}

// dig returns a nested string of an object.
func dig(fields map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		fields, _ = fields[name].(map[string]any)
	}
	text, _ := fields[path[len(path)-1]].(string)
	return text
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
