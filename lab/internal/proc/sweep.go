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

// Sweep kills every process of the lab in folder but those spared and this one, and returns when they are gone.
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

// reap collects a process if it has become our child; a zombie has no environment, so Members no longer sees it.
func reap(pid int) { _, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) }

// Keep runs a supervisor and, when it is gone for whatever reason, everything that it left behind. It returns the
// supervisor's error. The caller must be a process of its own: it becomes the parent of all orphans below it.
func Keep(folder string, supervisor *exec.Cmd, started func()) error {
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

// WaitGone blocks until a process that is not our child has ended, or ctx is done.
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
