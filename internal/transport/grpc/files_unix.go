//go:build unix

package grpc

import "golang.org/x/sys/unix"

// openFiles returns the number of files that this process may have open, connections included. Go has raised it to the
// hard limit.
func openFiles() (int, bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return int(min(limit.Cur, 1<<30)), true
}
