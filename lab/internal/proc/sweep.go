package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep kills every process of the lab in directory except the given ones and this one, and waits for their end.
func Sweep(ctx context.Context, folder string, spare ...int) error {
	for {
		alive := false
		for _, pid := range Members(folder) {
			if slices.Contains(spare, pid) {
				continue
			}
			alive = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
			reap(pid)
		}
		if !alive {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("end the processes of %s: %w", folder, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// reap waits for a process that has become our child. A zombie has no environment, so Members does not find it.
func reap(pid int) { _, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) }

// RunWithCleanup runs a supervisor and, after its end for any reason, kills all processes that it left. It returns the error of
// the supervisor. The caller must be a separate process: it becomes the parent of all orphans below it.
func RunWithCleanup(folder string, supervisor *exec.Cmd, started func()) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	if err := start(supervisor, syscall.SIGTERM); err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	started()
	failure := supervisor.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := Sweep(ctx, folder); err != nil {
		return err
	}
	return failure
}

// WaitGone waits until a process that is not our child has ended, or ctx is done.
func WaitGone(ctx context.Context, pid int) error {
	handle, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	watched := os.NewFile(uintptr(handle), "pidfd")
	defer watched.Close()
	poll := []unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		n, err := unix.Poll(poll, 200)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("watch process %d: %w", pid, err)
		}
		if n > 0 {
			return nil
		}
	}
	return context.Cause(ctx)
}
