package resource

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
)

// An upgraded connection ends as a whole: when either side has ended its half, when the request's context ends. That is
// how terminals and port-forwards are used, and a caller who was killed looks exactly like one that ended its half.
// ReverseProxy thinks otherwise, in three places: it keeps the second direction of connections that can be half closed;
// when the context ends it closes only the far side and waits for a caller who may have nothing more to say; and it
// forgets bytes that a caller sent before it saw the answer. upgradeWriter and wholeBody set that right.

// upgradeWriter hands out connections that end with ctx.
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
	return &wholeConn{Conn: conn, early: buf.Reader}, buf, nil
}

// WriteHeader passes answers on, but not the Agent's question for a body: it is the Hub's, which asks its caller itself.
func (w *upgradeWriter) WriteHeader(code int) {
	if code != http.StatusContinue {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap is how http.ResponseController finds the other abilities.
func (w *upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// wholeConn has no CloseWrite, and begins with what had been read already.
type wholeConn struct {
	net.Conn
	early *bufio.Reader
}

func (c *wholeConn) Read(p []byte) (int, error) {
	if n := c.early.Buffered(); n > 0 {
		return c.early.Read(p[:min(n, len(p))])
	}
	return c.Conn.Read(p)
}

// wholeBody makes the far side of an upgraded connection one that cannot be half closed.
func wholeBody(res *http.Response) {
	if body, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		res.Body = struct{ io.ReadWriteCloser }{body}
	}
}

// fullDuplex lets an answer begin before the body of its request has ended. Without it net/http's server takes up to
// 256 KiB of the body away, unseen, when the answer begins. HTTP/2 has it anyway.
func fullDuplex(w http.ResponseWriter) { _ = http.NewResponseController(w).EnableFullDuplex() }
