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

// Spec is the command of a component.
type Spec struct {
	Name    string // display name, such as hub/etcd
	Program string
	Args    []string
	Env     []string // complete environment
	Dir     string   // working directory
	Log     string   // file that receives stdout and stderr
}

// State is the state of a component.
type State string

// The states of a component.
const (
	Running    State = "running"
	Stopped    State = "stopped"    // by Stop, until Continue
	Killed     State = "killed"     // by Kill, until Restart
	Restarting State = "restarting" // exited, and will be started again
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

// Component is one supervised process. It is restarted when it exits, as a kubelet does.
type Component struct {
	mu       sync.Mutex
	spec     Spec
	state    State
	since    time.Time
	restarts int
	run      *run // current process, or nil
	revive   *time.Timer
	probe    func(context.Context) error // probe of the last WaitReady
}

// run is one run of the process. ended is closed when it and its process group have ended.
type run struct {
	command *exec.Cmd
	ended   chan struct{}
}

// NewComponent returns a component without starting it.
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
	command.Args = c.spec.Args // argv[0] selects the component in the binary of Argo CD
	command.Env, command.Dir = c.spec.Env, c.spec.Dir
	command.Stdout, command.Stderr = log, log
	if err := start(command, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start %s: %w", c.spec.Name, err)
	}
	c.run = &run{command: command, ended: make(chan struct{})}
	c.state, c.since = Running, time.Now()
	go c.wait(c.run)
	return nil
}

// wait waits for the end of a process and restarts it if necessary.
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

// Stop stops the process with SIGSTOP. It keeps its connections and does not respond.
func (c *Component) Stop() error { return c.signal(syscall.SIGSTOP, Running, Stopped) }

// Continue continues a stopped process.
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

// Kill ends the process with SIGKILL and waits for its end. It is not restarted until Restart.
func (c *Component) Kill() { c.end(syscall.SIGKILL) }

// end ends the process and waits for its end. After some seconds it is killed.
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
	if wasStopped { // a stopped process reacts only to SIGKILL
		_ = syscall.Kill(-pid, syscall.SIGCONT)
	}
	select {
	case <-r.ended:
	case <-time.After(5 * time.Second):
		killGroup(pid)
		<-r.ended
	}
}

// Change changes the command of a component from its next start on.
type Change struct {
	Flags map[string]string `json:"flags,omitempty"` // --flag to value. An empty value removes the flag
	Env   map[string]string `json:"env,omitempty"`
}

// Restart stops the process gracefully, if it runs, and starts it with the changes.
func (c *Component) Restart(change Change) error {
	c.end(syscall.SIGTERM)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spec.Args = withFlags(c.spec.Args, change.Flags)
	c.spec.Env = withEnv(c.spec.Env, change.Env)
	return c.startLocked()
}

// Status returns the state of the component.
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

// ErrKeepsEnding means that a component exits repeatedly.
var ErrKeepsEnding = errors.New("exits repeatedly")

// WaitReady waits until probe succeeds. It fails if the process has exited three times or ctx is done, and then returns
// the end of its log.
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

// WaitReadyAgain repeats the last WaitReady.
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
