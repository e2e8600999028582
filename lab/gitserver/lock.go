package gitserver

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes an exclusive lock between processes, and returns its release function. The lock ends with the process.
func lockFile(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, &os.PathError{Op: "flock", Path: file, Err: err}
	}
	return func() { _ = f.Close() }, nil
}
