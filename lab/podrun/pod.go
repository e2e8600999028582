package podrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Pod is a container that runs as a local process until Stop.
type Pod struct {
	o          Options
	container  *corev1.Container
	volumes    *volumes
	mounts     map[string]string // mount path to local directory
	rewrite    rewriter
	kubeconfig string // empty if the pod has no token
	output     io.Writer
	grace      time.Duration

	readiness, liveness, startup *probe

	cancel  context.CancelFunc // starts Stop
	hurry   chan struct{}      // closed when Stop must not wait any longer
	hurried sync.Once
	ended   chan struct{} // closed when all goroutines have ended
	restart chan struct{} // requests a restart
	writing sync.Mutex    // one Refresh at a time

	mu      sync.Mutex
	status  Status
	changed chan struct{} // closed and replaced when the status changes
}

// Status is the state of a pod.
type Status struct {
	// PID of the process, or zero.
	PID int
	// Ready is the result of the readiness probe.
	Ready bool
	// Starts is the number of starts of the process.
	Starts int
	// LastExit is the result of the previous run, if any.
	LastExit error
	// LastProbe is the last error of a probe.
	LastProbe error
	// LastRefresh is the last error of an update of the volumes.
	LastRefresh error
}

// Start prepares the volumes and runs the container. ctx limits the start only. The pod ends with Stop.
func Start(ctx context.Context, o Options) (*Pod, error) {
	p, err := prepare(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("run pod %s/%s: %w", o.Namespace, cmp.Or(o.Name, o.Container), err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	var wg sync.WaitGroup
	wg.Go(func() { p.keepRunning(life) })
	wg.Go(func() { p.keepFresh(life) })
	go func() {
		wg.Wait()
		if file, ok := p.output.(*os.File); ok && o.Output == nil {
			_ = file.Close()
		}
		close(p.ended)
	}()
	return p, nil
}

func prepare(ctx context.Context, o Options) (*Pod, error) {
	container, err := o.pick()
	if err != nil {
		return nil, err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if err := o.complete(container); err != nil {
		return nil, err
	}
	p := &Pod{
		o: o, container: container, output: o.Output, grace: 30 * time.Second,
		hurry: make(chan struct{}), ended: make(chan struct{}), restart: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	if seconds := o.Template.Spec.TerminationGracePeriodSeconds; seconds != nil {
		p.grace = time.Duration(*seconds) * time.Second
	}
	if err := p.prepareProbes(); err != nil {
		return nil, err
	}
	for _, dir := range []string{"", "home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, dir), 0o700); err != nil {
			return nil, err
		}
	}
	if p.volumes, p.mounts, err = newVolumes(&p.o, container); err != nil {
		return nil, err
	}
	p.rewrite = newRewriter(p.mounts, o.Addresses, o.Ports)
	if err := p.volumes.write(ctx); err != nil {
		return nil, err
	}
	if account, ok := p.mounts[accountPath]; ok {
		if p.kubeconfig, err = writeKubeconfig(&p.o, account); err != nil {
			return nil, err
		}
	}
	if _, err := p.command(ctx); err != nil { // fail now instead of in the background
		return nil, err
	}
	if p.output == nil {
		p.output, err = os.OpenFile(p.OutputFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	return p, err
}

func (p *Pod) prepareProbes() error {
	for _, it := range []struct {
		name string
		from *corev1.Probe
		into **probe
	}{
		{"readiness", p.container.ReadinessProbe, &p.readiness},
		{"liveness", p.container.LivenessProbe, &p.liveness},
		{"startup", p.container.StartupProbe, &p.startup},
	} {
		made, err := p.o.newProbe(p.container, it.from)
		if err != nil {
			return fmt.Errorf("%s probe: %w", it.name, err)
		}
		*it.into = made
	}
	if every := p.o.ProbeEvery; every > 0 {
		if r := p.readiness; r != nil {
			r.delay, r.period = 0, every
		}
		if s := p.startup; s != nil { // its failure kills, so its total timeout stays
			s.failures = max(s.failures, int((s.delay+time.Duration(s.failures)*s.period)/every))
			s.delay, s.period = 0, every
		}
	}
	return nil
}

// Refresh updates the mounted Secrets, ConfigMaps and tokens. Objects that cannot be read are not changed.
func (p *Pod) Refresh(ctx context.Context) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if err := p.volumes.write(ctx); err != nil {
		return fmt.Errorf("refresh pod %s/%s: %w", p.o.Namespace, p.o.Name, err)
	}
	return nil
}

// Restart stops the process with SIGTERM, starts it without a pause, and returns when it has started.
func (p *Pod) Restart(ctx context.Context) error {
	before := p.Status().Starts
	select {
	case p.restart <- struct{}{}:
	default: // already requested
	}
	return p.wait(ctx, "restart", func(s Status) bool { return s.Starts > before && s.PID != 0 })
}

// Signal sends a signal to the process: SIGKILL for a crash, SIGSTOP and SIGCONT for a pause.
func (p *Pod) Signal(signal syscall.Signal) error {
	pid := p.Status().PID
	if pid == 0 {
		return fmt.Errorf("pod %s/%s has no process at the moment", p.o.Namespace, p.o.Name)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("send %v to pod %s/%s: %w", signal, p.o.Namespace, p.o.Name, err)
	}
	return nil
}

// Stop ends the pod: SIGTERM, and SIGKILL after the grace period or when ctx ends. It waits for the process and all
// goroutines.
func (p *Pod) Stop(ctx context.Context) error {
	p.cancel()
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
	}
	p.hurried.Do(func() { close(p.hurry) })
	<-p.ended
	return fmt.Errorf("pod %s/%s did not end in time and was killed: %w", p.o.Namespace, p.o.Name, context.Cause(ctx))
}

// Status returns the state of the pod.
func (p *Pod) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// WaitReady waits until the pod is ready, across restarts.
func (p *Pod) WaitReady(ctx context.Context) error {
	return p.wait(ctx, "become ready", func(s Status) bool { return s.Ready })
}

// WaitStarts waits until the process has been started n times.
func (p *Pod) WaitStarts(ctx context.Context, n int) error {
	return p.wait(ctx, fmt.Sprintf("start %d times", n), func(s Status) bool { return s.Starts >= n && s.PID != 0 })
}

// OutputFile returns the file of the output, if Options.Output is nil.
func (p *Pod) OutputFile() string { return filepath.Join(p.o.Dir, "output.log") }

// Dir returns the local directory of a mount path, or "".
func (p *Pod) Dir(mountPath string) string { return p.mounts[mountPath] }

// Kubeconfig returns the kubeconfig file of the pod, with its ServiceAccount token, or "" if it mounts none.
func (p *Pod) Kubeconfig() string { return p.kubeconfig }

func (p *Pod) set(change func(*Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.status)
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait waits until the condition is true, or returns why it is not.
func (p *Pod) wait(ctx context.Context, what string, condition func(Status) bool) error {
	for {
		p.mu.Lock()
		now, changed := p.status, p.changed
		p.mu.Unlock()
		if condition(now) {
			return nil
		}
		var err error
		select {
		case <-changed:
			continue
		case <-p.ended:
			err = errors.New("the pod was stopped")
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		where := "see its output"
		if p.o.Output == nil {
			where += " in " + p.OutputFile()
		}
		for _, last := range []struct {
			what string
			err  error
		}{{"exit", now.LastExit}, {"probe", now.LastProbe}, {"refresh", now.LastRefresh}} {
			if last.err != nil {
				err = fmt.Errorf("%w; last %s: %w", err, last.what, last.err)
			}
		}
		return fmt.Errorf("pod %s/%s did not %s after %d starts, %s: %w", p.o.Namespace, p.o.Name, what, now.Starts, where, err)
	}
}
