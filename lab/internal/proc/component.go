package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Spec says how a component is run.
type Spec struct {
	Name    string // for people, such as hub/etcd
	Program string
	Args    []string
	Env     []string // the whole environment
	Folder  string   // working folder
	Log     string   // file that receives stdout and stderr
}

// State is what a component is doing.
type State string

// The states of a component.
const (
	Running    State = "running"
	Stopped    State = "stopped"    // frozen by Stop, until Continue
	Killed     State = "killed"     // ended by Kill, until Restart
	Restarting State = "restarting" // ended by itself, about to be started again
)

// Status is a snapshot of a component.
type Status struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	PID      int       `json:"pid,omitempty"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`
	Memory   int64     `json:"memory"` // resident bytes
	Log      string    `json:"log"`
}

// Component is one supervised process. It is started again when it ends by itself, as a kubelet would.
type Component struct {
	mu       sync.Mutex
	spec     Spec
	state    State
	since    time.Time
	restarts int
	run      *run // the current process; nil while there is none
	revive   *time.Timer
	probe    func(context.Context) error // how it was found ready
}

// run is one life of the process. ended is closed when it and its group are gone.
type run struct {
	command *exec.Cmd
	ended   chan struct{}
}

// NewComponent describes a component without starting it.
func NewComponent(spec Spec) *Component { return &Component{spec: spec, state: Killed} }

// Start starts the component if it does not run.
func (c *Component) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.startLocked()
}

func (c *Component) startLocked() error {
	if c.run != nil {
		return nil
	}
	log, err := os.OpenFile(c.spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.spec.Name, err)
	}
	defer log.Close()
	command := exec.Command(c.spec.Program, c.spec.Args[1:]...)
	command.Args = c.spec.Args // argv[0] chooses the component in Argo CD's binary
	command.Env, command.Dir = c.spec.Env, c.spec.Folder
	command.Stdout, command.Stderr = log, log
	if err := start(command, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start %s: %w", c.spec.Name, err)
	}
	c.run = &run{command: command, ended: make(chan struct{})}
	c.state, c.since = Running, time.Now()
	go c.wait(c.run)
	return nil
}

// wait collects a process that ended and decides whether it is started again.
func (c *Component) wait(r *run) {
	err := r.command.Wait()
	killGroup(r.command.Process.Pid)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == r {
		c.run = nil
	}
	close(r.ended)
	if c.state == Killed || c.run != nil {
		return
	}
	c.state, c.since = Restarting, time.Now()
	c.restarts++
	pause := min(time.Duration(c.restarts)*200*time.Millisecond, 3*time.Second)
	if log, openErr := os.OpenFile(c.spec.Log, os.O_APPEND|os.O_WRONLY, 0); openErr == nil {
		fmt.Fprintf(log, "lab: %s ended by itself (%v); starting it again in %s\n", c.spec.Name, err, pause)
		_ = log.Close()
	}
	c.revive = time.AfterFunc(pause, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.state == Restarting {
			_ = c.startLocked()
		}
	})
}

// Stop freezes the process (SIGSTOP): it keeps its connections and answers nothing.
func (c *Component) Stop() error { return c.signal(syscall.SIGSTOP, Running, Stopped) }

// Continue lets a stopped process go on.
func (c *Component) Continue() error { return c.signal(syscall.SIGCONT, Stopped, Running) }

func (c *Component) signal(signal syscall.Signal, from, to State) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != from || c.run == nil {
		return fmt.Errorf("%s is %s, not %s", c.spec.Name, c.state, from)
	}
	if err := syscall.Kill(-c.run.command.Process.Pid, signal); err != nil {
		return fmt.Errorf("signal %s: %w", c.spec.Name, err)
	}
	c.state, c.since = to, time.Now()
	return nil
}

// Kill ends the process at once (SIGKILL) and leaves it dead until Restart. It returns when the process is gone.
func (c *Component) Kill() { c.end(syscall.SIGKILL) }

// end ends the process and returns when it is gone; one that ignores the signal is killed after some seconds.
func (c *Component) end(signal syscall.Signal) {
	c.mu.Lock()
	wasStopped := c.state == Stopped
	c.state, c.since = Killed, time.Now()
	if c.revive != nil {
		c.revive.Stop()
	}
	r := c.run
	c.mu.Unlock()
	if r == nil {
		return
	}
	pid := r.command.Process.Pid
	_ = syscall.Kill(pid, signal)
	if wasStopped { // a frozen process sees no signal but SIGKILL
		_ = syscall.Kill(-pid, syscall.SIGCONT)
	}
	select {
	case <-r.ended:
	case <-time.After(5 * time.Second):
		killGroup(pid)
		<-r.ended
	}
}

// Change alters how a component is run, from its next start on.
type Change struct {
	Flags map[string]string `json:"flags,omitempty"` // --flag to value; an empty value removes the flag
	Env   map[string]string `json:"env,omitempty"`
}

// Restart ends the process gracefully, if it runs, and starts it with the changes applied.
func (c *Component) Restart(change Change) error {
	c.end(syscall.SIGTERM)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spec.Args = withFlags(c.spec.Args, change.Flags)
	c.spec.Env = withEnv(c.spec.Env, change.Env)
	return c.startLocked()
}

// Status tells what the component is doing.
func (c *Component) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	status := Status{Name: c.spec.Name, State: c.state, Since: c.since, Restarts: c.restarts, Log: c.spec.Log}
	if c.run != nil {
		status.PID = c.run.command.Process.Pid
		status.Memory = residentBytes(status.PID)
	}
	return status
}

// ErrKeepsEnding says that a component does not stay up.
var ErrKeepsEnding = errors.New("it keeps ending")

// WaitReady returns when probe succeeds. It gives up when the process has ended by itself three times, or ctx is done,
// and then shows the end of its log.
func (c *Component) WaitReady(ctx context.Context, probe func(context.Context) error) error {
	c.mu.Lock()
	c.probe = probe
	before := c.restarts
	c.mu.Unlock()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		if c.Status().Restarts-before >= 3 {
			return c.failed(errors.Join(ErrKeepsEnding, err))
		}
		select {
		case <-ctx.Done():
			return c.failed(errors.Join(context.Cause(ctx), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// WaitReadyAgain waits as the last WaitReady did.
func (c *Component) WaitReadyAgain(ctx context.Context) error {
	c.mu.Lock()
	probe := c.probe
	c.mu.Unlock()
	if probe == nil {
		return nil
	}
	return c.WaitReady(ctx, probe)
}

func (c *Component) failed(err error) error {
	return fmt.Errorf("wait for %s: %w\nthe end of its log %s:\n%s", c.spec.Name, err, c.spec.Log, tail(c.spec.Log, 15))
}
