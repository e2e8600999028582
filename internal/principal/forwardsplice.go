package principal

import (
	"bufio"
	"io"
	"net"
	"sync"
)

// splice carries bytes between another principal and a tunnel until either is
// closed. One direction may end before the other does.
func splice(conn net.Conn, first *bufio.Reader, tunnel net.Conn) {
	var up sync.WaitGroup
	up.Go(func() {
		defer tunnel.Close()
		if buffered, _ := first.Peek(first.Buffered()); len(buffered) > 0 {
			if _, err := tunnel.Write(buffered); err != nil {
				return
			}
		}
		if _, err := io.Copy(tunnel, conn); err == nil && closeWrite(tunnel) {
			// The other principal sends nothing more, and may still read. When it is
			// gone altogether that shows below TLS, which has said all it has to.
			if below, ok := conn.(interface{ NetConn() net.Conn }); ok {
				_, _ = below.NetConn().Read(make([]byte, 1))
			}
		}
	})
	_, err := io.Copy(conn, tunnel)
	if err == nil && closeWrite(conn) {
		if end, ok := tunnel.(interface{ Done() <-chan struct{} }); ok {
			<-end.Done() // until then it can still be written to
		}
		_ = conn.Close()
	} else if below, ok := conn.(interface{ NetConn() net.Conn }); ok {
		_ = below.NetConn().Close() // broken off, and no end in order
	}
	_ = conn.Close()
	up.Wait()
}

// closeWrite ends one direction, where that can be done.
func closeWrite(conn net.Conn) bool {
	half, ok := conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}
