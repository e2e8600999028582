package resource

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// An upgraded connection ends as a whole if either side closes its half or the request's context ends, because a killed
// caller looks like one that closed its half. ReverseProxy differs in four ways: it keeps the other half open, it closes
// only the server side when the context ends, it loses bytes that a caller sent before the response, and it loses the last
// bytes of a server that no longer reads. upgradeWriter and upgradedServer correct that.

// upgradeWriter returns hijacked connections that end with ctx.
type upgradeWriter struct {
	http.ResponseWriter
	ctx context.Context
}

func (w *upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(w.ctx, func() { _ = conn.Close() })
	return &noHalfCloseConn{Conn: conn, early: buf.Reader}, buf, nil
}

// WriteHeader forwards status codes except 100 Continue, which is between Agent and Hub.
func (w *upgradeWriter) WriteHeader(code int) {
	if code != http.StatusContinue {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap implements the interface of http.ResponseController.
func (w *upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// noHalfCloseConn has no CloseWrite. It first returns the bytes that were already buffered.
type noHalfCloseConn struct {
	net.Conn
	early *bufio.Reader
}

func (c *noHalfCloseConn) Read(p []byte) (int, error) {
	if n := c.early.Buffered(); n > 0 {
		return c.early.Read(p[:min(n, len(p))])
	}
	return c.Conn.Read(p)
}

// lastBytesTimeout is how long a caller has to read the last bytes of a server that no longer reads.
const lastBytesTimeout = time.Minute

// upgradedServer is an upgraded server connection. It has no CloseWrite. A server that ends, for example because an exec
// session is over, may stop reading before it has sent everything. So a failed write does not end the connection: what the
// caller sends is dropped, and the server's data is read to its end. Then, or after lastBytesTimeout, the connection ends.
type upgradedServer struct {
	io.ReadWriteCloser
	cancel func() // ends the request, also while the caller does not read
	failed bool   // only Write uses it, which ReverseProxy calls from one goroutine
}

func (s *upgradedServer) Write(p []byte) (int, error) {
	if !s.failed {
		if _, err := s.ReadWriteCloser.Write(p); err != nil {
			s.failed = true
			time.AfterFunc(lastBytesTimeout, s.cancel)
		}
	}
	return len(p), nil
}

// keepLastBytes makes an upgraded server connection an upgradedServer. cancel ends the context of upgradeWriter.
func keepLastBytes(res *http.Response, cancel func()) {
	if body, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		res.Body = &upgradedServer{ReadWriteCloser: body, cancel: cancel}
	}
}

// fullDuplex allows a response before the end of the request body. Without it, net/http's HTTP/1 server discards up to 256
// KiB of the body when the response begins.
func fullDuplex(w http.ResponseWriter) { _ = http.NewResponseController(w).EnableFullDuplex() }
