package redis

import (
	"bytes"
	"context"
	"net"
)

// requestConn sends the proxy's own requests over one connection. It has one caller at a time.
type requestConn struct {
	conn    net.Conn
	replies *replyReader
}

// newRequestConn takes ownership of conn.
func newRequestConn(conn net.Conn, bound limits) *requestConn {
	return &requestConn{conn, newReplyReader(conn, bound)}
}

// do sends one request and returns the elements of its reply.
func (c *requestConn) do(ctx context.Context, args ...string) ([][]byte, error) {
	reply, err := c.doRaw(ctx, 1, appendCommand(nil, args...))
	if err != nil {
		return nil, err
	}
	return decode(reply[0])
}

// get returns the value of a key that is stored plain or compressed, and nil if there is none.
func (c *requestConn) get(ctx context.Context, key string, most int) ([]byte, error) {
	values, err := c.do(ctx, "MGET", key, key+gzipSuffix)
	switch {
	case err != nil:
		return nil, err
	case len(values) != 2:
		return nil, protocolError("%d values for two keys", len(values))
	case values[1] != nil:
		return unzip(values[1], most, nil)
	}
	return values[0], nil
}

// doRaw sends count requests together and returns their replies. After an error, the connection must be closed.
func (c *requestConn) doRaw(ctx context.Context, count int, raw []byte) ([][]byte, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialTimeout)
		defer cancel()
	}
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	_, failed := c.conn.Write(raw) // the peer can have sent the reason before it closed the connection
	replies := make([][]byte, count)
	for i := range replies {
		reply, err := c.replies.next()
		switch {
		case err == nil:
			replies[i] = bytes.Clone(reply)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case failed != nil:
			return nil, failed
		default:
			return nil, err
		}
	}
	return replies, nil
}

func (c *requestConn) close() { _ = c.conn.Close() }
