package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// ErrRunning means that a lab already runs in the directory.
var ErrRunning = errors.New("a lab is running there already")

// claimDir creates the directory and locks it. The lock is held while a lab runs in it.
func claimDir(folder string) (*os.File, error) {
	if err := checkDir(folder); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("create the lab's directory: %w", err)
	}
	lock, err := os.OpenFile(model.LockFile(folder), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lab's lock: %w", err)
	}
	err = takeLock(lock, folder)
	if err == nil {
		return lock, nil
	}
	_ = lock.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("use %s: %w: look at it with `lab status`, end it with `lab down`, or choose another directory with -lab",
			folder, ErrRunning)
	}
	return nil, fmt.Errorf("lock %s: %w", folder, err)
}

// takeLock takes the lock unless a lab runs. A lab that is ending can keep it for a moment.
func takeLock(lock *os.File, folder string) error {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || len(proc.Members(folder)) > 0 || time.Now().After(deadline) {
			return err
		}
	}
}

// checkDir rejects a directory with other content, because it would be deleted.
func checkDir(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) || (err == nil && len(entries) == 0) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the lab's directory: %w", err)
	}
	if _, err := os.Stat(model.LockFile(folder)); err != nil {
		return fmt.Errorf("%s holds something other than a lab: choose an empty or a new directory", folder)
	}
	return nil
}

// spaceToRun is the disk space that a lab needs for about a day.
const spaceToRun = 1 << 30

// prepareDir deletes the files and processes of an earlier lab, and creates the files for the supervisor.
func prepareDir(ctx context.Context, spec model.Spec, program string) error {
	if err := proc.Sweep(ctx, spec.Folder); err != nil {
		return err
	}
	if err := clearDir(spec.Folder); err != nil {
		return err
	}
	if err := checkSpace(spec.Folder, spaceToRun); err != nil {
		return err
	}
	for _, folder := range []string{model.LogFolder(spec.Folder), model.BinFolder(spec.Folder)} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("create a directory of the lab: %w", err)
		}
	}
	if err := copyBinary(ctx, program, supervisorBinary(spec.Folder)); err != nil {
		return err
	}
	return model.Write(model.SpecFile(spec.Folder), spec)
}

func checkSpace(folder string, needed uint64) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return fmt.Errorf("get free space of %s: %w", folder, err)
	}
	if free := stat.Bavail * uint64(stat.Bsize); free < needed {
		return fmt.Errorf("%s has %d MiB left and a lab needs %d MiB: free some space, or choose a directory on another disk with -lab",
			folder, free>>20, needed>>20)
	}
	return nil
}

// clearDir deletes everything except the lock.
func clearDir(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("clear the lab's directory: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if path == model.LockFile(folder) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("clear the lab's directory: %w", err)
		}
	}
	return nil
}
