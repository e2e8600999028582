package podrun

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is one run of the binary.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // result, valid after done
}

// startProcess starts cmd so that it ends with us. The kernel sends that signal when the *thread* that started the
// process ends, so a thread is reserved for the lifetime of the process.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second // a remaining child can keep the output open
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // remaining children
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop stops the process and waits for its end. After the grace period, or when hurry is closed, it is killed.
func (p *process) stop(grace time.Duration, hurry <-chan struct{}) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a stopped process must receive it
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	case <-hurry:
	}
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	<-p.done
}
