package forward

import (
	"bufio"
	"io"
	"net"
	"sync"
)

// splice copies bytes between another replica and a tunnel until either is closed. One direction can end first.
func splice(conn net.Conn, buffered *bufio.Reader, tunnel net.Conn) {
	var up sync.WaitGroup
	up.Go(func() {
		defer tunnel.Close()
		if first, _ := buffered.Peek(buffered.Buffered()); len(first) > 0 {
			if _, err := tunnel.Write(first); err != nil {
				return
			}
		}
		if _, err := io.Copy(tunnel, conn); err == nil && closeWrite(tunnel) {
			// The other replica has closed its write side and may still read. Its end shows below TLS.
			if below, ok := conn.(interface{ NetConn() net.Conn }); ok {
				_, _ = below.NetConn().Read(make([]byte, 1))
			}
		}
	})
	_, err := io.Copy(conn, tunnel)
	if err == nil && closeWrite(conn) {
		if end, ok := tunnel.(interface{ Done() <-chan struct{} }); ok {
			<-end.Done() // until then the tunnel can be written to
		}
		_ = conn.Close()
	} else if below, ok := conn.(interface{ NetConn() net.Conn }); ok {
		_ = below.NetConn().Close() // without close_notify, because the copy failed
	}
	_ = conn.Close()
	up.Wait()
}

// closeWrite closes the write side if conn supports it.
func closeWrite(conn net.Conn) bool {
	half, ok := conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}
