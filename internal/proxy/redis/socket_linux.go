package redis

import (
	"syscall"
	"unsafe"
)

// readSome and writeSome are one system call on a socket that never blocks. The scheduler is not told of it, as it is by
// package syscall: a call takes microseconds, but if another process gets the core meanwhile, the scheduler would give
// the goroutine's place to another thread, and go on looking for such calls at short intervals. Under load that costs a
// fifth of the proxy's time.

func readSome(fd uintptr, b []byte) (int, syscall.Errno) { return once(syscall.SYS_READ, fd, b) }

func writeSome(fd uintptr, b []byte) (int, syscall.Errno) { return once(syscall.SYS_WRITE, fd, b) }

func once(call, fd uintptr, b []byte) (int, syscall.Errno) {
	if len(b) == 0 {
		return 0, 0
	}
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))) //nolint:gosec // as long as it says
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}
