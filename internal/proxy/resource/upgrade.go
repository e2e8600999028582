package resource

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
)

// An upgraded connection ends as a whole if either side closes its half or the request's context ends, because a killed
// caller looks like one that closed its half. ReverseProxy differs in three ways: it keeps the other half open, it closes
// only the server side when the context ends, and it loses bytes that a caller sent before the response. upgradeWriter and
// noHalfClose correct that.

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

// noHalfClose hides CloseWrite of an upgraded server connection.
func noHalfClose(res *http.Response) {
	if body, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		res.Body = struct{ io.ReadWriteCloser }{body}
	}
}

// fullDuplex allows a response before the end of the request body. Without it, net/http's HTTP/1 server discards up to 256
// KiB of the body when the response begins.
func fullDuplex(w http.ResponseWriter) { _ = http.NewResponseController(w).EnableFullDuplex() }
