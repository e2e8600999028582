package link

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout has the kernel give up a connection when nobody confirms what
// was sent on it for this long. Keepalive finds a connection that died while it
// was idle; this finds one that died while it was used. gRPC would do it for a
// connection that is not wrapped.
func setUserTimeout(conn net.Conn, timeout time.Duration) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // it is closed already
	}
	// An old kernel that can not do this still has keepalive.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(timeout.Milliseconds()))
	})
}
