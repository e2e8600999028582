package redis

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// client sends requests of our own over one connection, pipelined: who asks first is answered first.
type client struct {
	conn   net.Conn
	writes sync.Mutex // around write and the place in waiting, so that both have the same order

	mu      sync.Mutex
	waiting []pending // oldest first
	err     error     // set once: the connection is of no use any more

	done chan struct{} // closed when the reader has ended
}

type pending struct {
	since time.Time
	reply chan []byte // gets one reply; closed without one if the connection ends
}

var errClosed = errors.New("the connection was closed")

// newClient owns conn from now on.
func newClient(conn net.Conn, bound limits) *client {
	c := &client{conn: conn, done: make(chan struct{})}
	go c.read(bound)
	return c
}

// do sends one request and waits for its reply as long as ctx lasts. The reply belongs to the caller.
func (c *client) do(ctx context.Context, args ...string) ([]byte, error) {
	reply, err := c.send(ctx, appendCommand(nil, args...))
	if err != nil {
		return nil, err
	}
	select {
	case b, open := <-reply:
		if !open {
			return nil, c.failure()
		}
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *client) send(ctx context.Context, raw []byte) (<-chan []byte, error) {
	reply := make(chan []byte, 1)
	c.writes.Lock()
	defer c.writes.Unlock()
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	c.waiting = append(c.waiting, pending{since: time.Now(), reply: reply})
	c.mu.Unlock()
	deadline, bounded := ctx.Deadline()
	if !bounded {
		deadline = time.Now().Add(dialTimeout)
	}
	_ = c.conn.SetWriteDeadline(deadline)
	if _, err := c.conn.Write(raw); err != nil {
		c.close(err) // half a request may have left: nothing can follow it
		return nil, err
	}
	return reply, nil
}

func (c *client) read(bound limits) {
	defer close(c.done)
	replies := newReader(c.conn, bound)
	for {
		reply, err := replies.next()
		if err != nil {
			c.close(err)
			return
		}
		c.mu.Lock()
		if len(c.waiting) == 0 {
			c.mu.Unlock()
			if _, err = bulks(reply); err == nil { // else the other side says why it cannot serve us
				err = protocolError("a reply to nothing")
			}
			c.close(err)
			return
		}
		first := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.mu.Unlock()
		first.reply <- append([]byte(nil), reply...)
	}
}

// oldest tells since when somebody has been waiting for a reply; zero: nobody is.
func (c *client) oldest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return time.Time{}
	}
	return c.waiting[0].since
}

func (c *client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// close ends the connection; whoever waits for a reply gets err.
func (c *client) close(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	_ = c.conn.Close()
	for _, w := range waiting {
		close(w.reply)
	}
}

// shut closes and waits until nothing runs any more.
func (c *client) shut() {
	c.close(errClosed)
	<-c.done
}
