package grpc

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unsent is what waits in the kernel to be sent on a connection.
func unsent(t *testing.T, conn net.Conn) (n int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) }))
	must(t, err)
	return n
}

func TestSetOptions_LimitsUnsentBytes(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	stuck := func(prepare func(net.Conn)) int {
		near, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		defer near.Close()
		far, err := l.Accept() // and does not read
		must(t, err)
		defer far.Close()
		prepare(near)
		must(t, near.SetWriteDeadline(time.Now().Add(time.Second)))
		for err == nil {
			_, err = near.Write(make([]byte, 16<<10))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return unsent(t, near)
	}
	most := maxUnsent + 16<<10 // the last write may go beyond it
	if n := stuck(func(net.Conn) {}); n <= most {
		t.Skipf("this kernel keeps %d bytes by itself", n)
	}
	if n := stuck(func(conn net.Conn) { setOptions(conn, time.Minute) }); n > most {
		t.Errorf("%d bytes wait, more than %d", n, most)
	}
}
