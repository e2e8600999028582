package podrun

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// keepRunning restarts the process until ctx ends. The pause doubles while the process exits early.
func (p *Pod) keepRunning(ctx context.Context) {
	longest := 32 * p.o.Backoff
	wait := p.o.Backoff
	for {
		began := time.Now()
		planned, err := p.live(ctx)
		if ctx.Err() != nil {
			return
		}
		p.set(func(s *Status) { s.LastExit = err })
		if planned {
			continue
		}
		if time.Since(began) > 2*longest {
			wait = p.o.Backoff
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			wait = min(2*wait, longest)
		case <-p.restart:
			wait = p.o.Backoff
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// live is one run of the process. It reports whether Restart ended it.
func (p *Pod) live(ctx context.Context) (planned bool, err error) {
	cmd, err := p.command(ctx)
	if err != nil {
		return false, err
	}
	proc, err := startProcess(cmd)
	if err != nil {
		return false, err
	}
	p.set(func(s *Status) {
		s.PID, s.Starts = proc.pid(), s.Starts+1
		s.Ready = p.readiness == nil && p.startup == nil
	})
	probing, endProbes := context.WithCancel(ctx)
	var wg sync.WaitGroup
	sick := make(chan error, 2) // one of the startup and one of the liveness probe
	wg.Go(func() { p.probe(probing, &wg, sick) })

	var reason error
	select {
	case <-proc.done:
	case <-ctx.Done():
	case <-p.restart:
		planned = true
	case reason = <-sick:
	}
	endProbes()
	wg.Wait()
	p.set(func(s *Status) { s.Ready = false })
	proc.stop(p.grace, p.hurry) // no effect if it has ended
	p.set(func(s *Status) { s.PID = 0 })
	if reason == nil {
		return planned, proc.err
	}
	// A process that exits also fails its probe: report both.
	if proc.err == nil {
		return planned, fmt.Errorf("ended because of %w", reason)
	}
	return planned, fmt.Errorf("%w, after %w", proc.err, reason)
}

// probe runs the startup probe and, after its success, the other two.
func (p *Pod) probe(ctx context.Context, wg *sync.WaitGroup, sick chan<- error) {
	failed := func(name string, err error) {
		p.set(func(s *Status) { s.LastProbe = err })
		select {
		case sick <- fmt.Errorf("the %s probe: %w", name, err):
		default: // it is already stopping
		}
	}
	if p.startup != nil && !p.hasStarted(ctx, failed) {
		return
	}
	if p.liveness != nil {
		wg.Go(func() {
			p.liveness.run(ctx, func(err error) {
				if err != nil {
					failed("liveness", err)
				}
			})
		})
	}
	if p.readiness == nil {
		p.set(func(s *Status) { s.Ready = true })
		return
	}
	p.readiness.run(ctx, func(err error) {
		p.set(func(s *Status) {
			if s.Ready = err == nil; err != nil {
				s.LastProbe = err
			}
		})
	})
}

// hasStarted waits for the first result of the startup probe.
func (p *Pod) hasStarted(ctx context.Context, failed func(string, error)) (started bool) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	p.startup.run(ctx, func(err error) {
		if started = err == nil; !started {
			failed("startup", err)
		}
		done()
	})
	return started
}

// command returns the command of the next run. Variables are read again, as for a restarted container.
func (p *Pod) command(ctx context.Context) (*exec.Cmd, error) {
	env, err := p.o.environment(ctx, p.container)
	if err != nil {
		return nil, err
	}
	overlaid := maps.Clone(env)
	maps.Copy(overlaid, p.o.Env)
	var args []string
	for _, arg := range slices.Concat(p.container.Command, p.container.Args) {
		args = append(args, expand(arg, overlaid))
	}
	if len(p.container.Command) == 0 { // the entrypoint of the image, which Binary replaces
		args = append([]string{filepath.Base(p.o.Binary)}, args...)
	}
	program := p.o.Binary
	if program == "" {
		program = p.rewrite.value(args[0])
	}
	if program, err = exec.LookPath(program); err != nil {
		return nil, fmt.Errorf("find the binary of container %s (Options.Binary): %w", p.container.Name, err)
	}
	cmd := exec.Command(program)
	cmd.Args = slices.Concat(args[:1], p.rewrite.args(args[1:], p.o.Flags))
	cmd.Dir = p.o.Dir
	if p.container.WorkingDir != "" {
		if dir := p.rewrite.value(p.container.WorkingDir); dir != p.container.WorkingDir {
			cmd.Dir = dir
		}
	}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.Env = p.processEnv(env)
	return cmd, nil
}

// processEnv returns the complete environment: some variables of this machine, those of the container, and overrides.
func (p *Pod) processEnv(env map[string]string) []string {
	all := map[string]string{
		"PATH": os.Getenv("PATH"), "HOSTNAME": p.o.Name,
		"HOME": filepath.Join(p.o.Dir, "home"), "TMPDIR": filepath.Join(p.o.Dir, "tmp"),
	}
	if folder, ok := p.mounts["/tmp"]; ok {
		all["TMPDIR"] = folder
	}
	if p.kubeconfig != "" {
		all["KUBECONFIG"] = p.kubeconfig
	}
	for name, value := range env {
		all[name] = p.rewrite.port(name, p.rewrite.value(value))
	}
	maps.Copy(all, p.o.Env)
	list := make([]string, 0, len(all))
	for name, value := range all {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// refreshAgain is the pause after a failed update of the volumes.
const refreshAgain = 5 * time.Second

// keepFresh updates the volumes when the source reports changes and before a token expires, until ctx ends.
func (p *Pod) keepFresh(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	changes := make(chan struct{}, 1)
	if watcher, ok := p.o.Source.(Watcher); ok {
		wg.Go(func() {
			watcher.Watch(ctx, p.o.Namespace, func() {
				select {
				case changes <- struct{}{}:
				default: // already requested
				}
			})
		})
	}
	var failed bool
	for {
		next, ok := p.volumes.tokens.next()
		if failed && (!ok || next > refreshAgain) {
			next, ok = refreshAgain, true
		}
		if !ok {
			next = 24 * time.Hour // nothing is due
		}
		timer := time.NewTimer(next)
		select {
		case <-changes:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		err := p.Refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		failed = err != nil
		p.set(func(s *Status) { s.LastRefresh = err })
	}
}
