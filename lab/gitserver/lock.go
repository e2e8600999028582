package gitserver

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes an exclusive lock that other processes respect too, and
// returns what gives it back. The lock ends with the process at the latest.
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
