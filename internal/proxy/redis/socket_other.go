//go:build !linux

package redis

import (
	"errors"
	"syscall"
)

// readSome and writeSome are one system call on a socket that never blocks.

func readSome(fd uintptr, b []byte) (int, syscall.Errno) { return outcome(syscall.Read(int(fd), b)) }

func writeSome(fd uintptr, b []byte) (int, syscall.Errno) { return outcome(syscall.Write(int(fd), b)) }

func outcome(n int, err error) (int, syscall.Errno) {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return 0, errno
	}
	return n, 0
}
