package redis

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// requestConn sends the proxy's own requests over one connection. Callers share it, and replies arrive in the order of
// the requests.
type requestConn struct {
	conn   net.Conn
	writes sync.Mutex // gives requests and pending the same order

	mu      sync.Mutex
	pending []*pendingBatch // oldest first
	err     error           // set once, when the connection ends

	done chan struct{} // closed when the reading goroutine has ended
}

type pendingBatch struct {
	since   time.Time
	replies [][]byte
	want    int
	done    chan struct{} // closed when all replies are here, or the connection has ended
}

var errClosed = errors.New("connection closed")

// newRequestConn takes ownership of conn.
func newRequestConn(conn net.Conn, bound limits) *requestConn {
	c := &requestConn{conn: conn, done: make(chan struct{})}
	go c.read(bound)
	return c
}

// do sends one request and returns the elements of its reply.
func (c *requestConn) do(ctx context.Context, args ...string) ([][]byte, error) {
	reply, err := c.doRaw(ctx, 1, appendCommand(nil, args...))
	if err != nil {
		return nil, err
	}
	return decode(reply[0])
}

// doRaw sends count requests together and returns their replies.
func (c *requestConn) doRaw(ctx context.Context, count int, raw []byte) ([][]byte, error) {
	batch := &pendingBatch{since: time.Now(), want: count, done: make(chan struct{})}
	if err := c.send(ctx, batch, raw); err != nil {
		return nil, err
	}
	select {
	case <-batch.done:
		if len(batch.replies) < count {
			return nil, c.failure()
		}
		return batch.replies, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *requestConn) send(ctx context.Context, batch *pendingBatch, raw []byte) error {
	c.writes.Lock()
	defer c.writes.Unlock()
	c.mu.Lock()
	err := c.err
	if err == nil {
		c.pending = append(c.pending, batch)
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(dialTimeout)
	}
	_ = c.conn.SetWriteDeadline(deadline)
	if _, err := c.conn.Write(raw); err != nil {
		c.close(err) // a part of the request can have been sent
		return err
	}
	return nil
}

func (c *requestConn) read(bound limits) {
	defer close(c.done)
	replies := newReplyReader(c.conn, bound)
	for {
		reply, err := replies.next()
		if err == nil {
			err = c.deliver(reply)
		}
		if err != nil {
			c.close(err)
			return
		}
	}
}

func (c *requestConn) deliver(reply []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		if _, err := decode(reply); err != nil {
			return err // the peer reports why it closes the connection
		}
		return protocolError("unexpected reply")
	}
	first := c.pending[0]
	if first.replies = append(first.replies, bytes.Clone(reply)); len(first.replies) == first.want {
		c.pending = c.pending[1:]
		close(first.done)
	}
	return nil
}

// stalled reports whether the oldest request has waited for longer than d.
func (c *requestConn) stalled(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > 0 && time.Since(c.pending[0].since) > d
}

func (c *requestConn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// close ends the connection. Pending requests fail with err.
func (c *requestConn) close(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	for _, batch := range c.pending {
		close(batch.done)
	}
	c.pending = nil
	_ = c.conn.Close()
}

// shut closes the connection and waits for the reading goroutine.
func (c *requestConn) shut() {
	c.close(errClosed)
	<-c.done
}
