// Package supervisor is the process that owns a running lab: it starts all components, serves the control socket, and
// stops all components.
//
// Its parent is the cleanup process (see proc.Keep), which cleans up if the supervisor is killed. Both hold the lock of
// the lab's directory, so that the lock is free when nothing runs.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/internal/cluster"
	"github.com/argocd-agent/argocd-agent/lab/internal/control"
	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/ports"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// Reasons for the end of a lab.
var (
	errDown      = errors.New("stopped by lab down")
	errAbandoned = errors.New("who started it went away before it was ready")
	errOrphaned  = errors.New("the process it was started for has ended")
	errSignal    = errors.New("it was interrupted")
)

// startTimeout is long, because a busy machine is slow. A component that cannot start fails earlier.
const startTimeout = 5 * time.Minute

// supervisor is one running lab.
type supervisor struct {
	spec     model.Spec
	group    *proc.Group
	ports    *ports.Block
	end      context.CancelCauseFunc
	progress *Reporter
	clusters []*cluster.Cluster
	begun    time.Time
}

// Run starts the lab of the spec in directory, reports its progress, and returns when the lab has ended and nothing runs.
// The other end of leash is closed when the process that waits for the lab ends. It is used until the lab is ready.
func Run(folder string, report *Reporter, leash io.Reader) error {
	var spec model.Spec
	if err := model.Read(model.SpecFile(folder), &spec); err != nil {
		return report.Failed(fmt.Errorf("read what lab to start: %w", err))
	}
	fmt.Fprintf(os.Stderr, "lab: starting %d clusters in %s\n", len(spec.Clusters), folder)
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	s := &supervisor{spec: spec, group: &proc.Group{}, end: end, progress: report, begun: time.Now()}
	var err error
	if s.ports, err = ports.Claim(filepath.Join(os.TempDir(), fmt.Sprintf("argocd-agent-lab-ports-%d", os.Getuid()))); err != nil {
		return report.Failed(err)
	}
	ready := make(chan struct{})
	s.watchForReasonsToEnd(ctx, leash, ready)

	var background sync.WaitGroup
	err = s.start(ctx, &background)
	if err == nil {
		close(ready)
		report.Ready()
		<-ctx.Done()
		err = context.Cause(ctx)
	} else if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	fmt.Fprintf(os.Stderr, "lab: ending: %v\n", err)
	end(err)
	s.group.Close()
	background.Wait()
	sweep, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if swept := proc.Sweep(sweep, folder, os.Getppid()); swept != nil {
		return swept
	}
	if errors.Is(err, errDown) || errors.Is(err, errOrphaned) {
		return nil
	}
	return report.Failed(err)
}

// watchForReasonsToEnd cancels the lab for the first reason.
func (s *supervisor) watchForReasonsToEnd(ctx context.Context, leash io.Reader, ready <-chan struct{}) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		s.end(errSignal)
	}()
	go func() {
		_, _ = io.Copy(io.Discard, leash)
		select {
		case <-ready:
		default:
			s.end(errAbandoned)
		}
	}()
	if s.spec.WhilePID != 0 {
		go func() {
			if proc.WaitGone(ctx, s.spec.WhilePID) == nil {
				s.end(errOrphaned)
			}
		}()
	}
}

// Status returns all components.
func (s *supervisor) Status() []proc.Status { return s.group.Status() }

// Port reserves a port of the lab for a process of a user.
func (s *supervisor) Port() (int, error) { return s.ports.Next() }

// Down ends the lab.
func (s *supervisor) Down() { s.end(errDown) }

// Act stops, continues, kills or restarts a component. A restart returns when the component is ready.
func (s *supervisor) Act(ctx context.Context, name, action string, change proc.Change) error {
	component, err := s.group.Find(name)
	if err != nil {
		return err
	}
	switch action {
	case control.Stop:
		return component.Stop()
	case control.Continue:
		return component.Continue()
	case control.Kill:
		component.Kill()
		return nil
	case control.Restart:
		if err := component.Restart(change); err != nil {
			return err
		}
		return component.WaitReadyAgain(ctx)
	}
	return fmt.Errorf("cannot %q a component: there are stop, continue, kill and restart", action)
}

// RunWithCleanup is the main function of the cleanup process: it runs the supervisor, then cleans up. started is called when the
// supervisor has its inherited files.
func RunWithCleanup(folder, program string, started func(), inherited ...*os.File) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP) // the supervisor handles these signals
	command := exec.Command(program, "supervise", folder)
	command.Env = append(os.Environ(), proc.LabVariable(folder))
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.ExtraFiles = inherited
	failure := proc.RunWithCleanup(folder, command, started)
	var spec model.Spec
	if err := model.Read(model.SpecFile(folder), &spec); err == nil && spec.Ephemeral && failure == nil {
		return os.RemoveAll(folder)
	}
	return failure
}
