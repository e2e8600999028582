package grpc

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setOptions sets the socket options of a connection between hub and agent.
//
// The kernel ends the connection if sent data is not acknowledged for that long. Keepalive finds an idle connection that
// broke, this one finds a busy connection. gRPC would set it on a connection that is not wrapped.
//
// The kernel buffers little more than it can send. It sends its buffer first, even if something small and urgent
// follows, while gRPC sends a piece of each stream in turn. So a key stroke passes a list of 50 MB on a slow network.
// Data in transit does not count, so distance costs no throughput.
func setOptions(conn net.Conn, timeout time.Duration) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // it is closed
	}
	// An old kernel without these options still has keepalive.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(timeout.Milliseconds()))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}

// maxUnsent is the number of unsent bytes in the kernel: a few writes of gRPC, so that there is always data to send.
const maxUnsent = 64 << 10

// openFiles returns the number of files that this process may have open, connections included. Go has raised it to the
// hard limit.
func openFiles() (int, bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return int(min(limit.Cur, 1<<30)), true
}
