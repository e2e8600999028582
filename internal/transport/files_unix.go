//go:build unix

package transport

import "golang.org/x/sys/unix"

// openFiles is how many files this process may have open, connections among them.
// Go has raised it as far as the system lets it.
func openFiles() (int, bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return int(min(limit.Cur, 1<<30)), true
}
