package transport

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setOptions says how the kernel is to treat a connection between hub and agent.
//
// It gives up the connection when nobody confirms what was sent on it for that
// long. Keepalive finds a connection that died while it was idle; this finds one
// that died while it was used. gRPC would do it for one that is not wrapped.
//
// And it takes little more than it can send. What is in the kernel goes first, however
// small and urgent what follows is; what waits in gRPC goes by turns, a piece of
// each stream. So a key stroke passes a list of 50 MB on a line that is slower
// than the list is read. What is on its way does not count, so distance costs
// no throughput.
func setOptions(conn net.Conn, timeout time.Duration) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // it is closed already
	}
	// An old kernel that cannot do this still has keepalive, and is only slower.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(timeout.Milliseconds()))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}

// maxUnsent is what may wait in the kernel to be sent: a few of gRPC's writes, so
// that there is always something to send.
const maxUnsent = 64 << 10
