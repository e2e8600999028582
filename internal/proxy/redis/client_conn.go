package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// clientConn is the connection of one client. One goroutine reads its requests. Replies return through a replyQueue.
type clientConn struct {
	server        *Server
	conn          net.Conn
	ctx           context.Context // ends with the connection
	replies       replyQueue
	subscriptions clientSubscriptions
	upstream      atomic.Pointer[dedicatedConn] // nil until the first request that needs Redis

	// For the reading goroutine:
	requests    *commandReader
	readTimeout time.Duration
	trusted     bool    // Redis accepted the client, so that it can send large requests
	multi       bool    // between MULTI and EXEC
	agentAccess *string // Redis' error for reading agents' keys, empty if allowed. If nil, it is not known.

	proto atomic.Int32 // RESP version
}

var (
	errGone           = errors.New("client disconnected")
	errQuit           = errors.New("client quit")
	errSlowSubscriber = errors.New("client does not read its messages")
	errShutdown       = errors.New("proxy is shutting down")
	errUpstreamLost   = errors.New("connection to the hub's Redis lost")
)

// hubReplyLimits allow the largest value that Redis can hold.
var hubReplyLimits = limits{bulk: 512 << 20, elements: maxElements, total: 1 << 40}

func newClientConn(ctx context.Context, server *Server, conn net.Conn) *clientConn {
	c := &clientConn{server: server, conn: conn, readTimeout: server.cfg.FirstRequest}
	var cancel context.CancelCauseFunc
	c.ctx, cancel = context.WithCancelCause(ctx)
	c.proto.Store(2)
	c.replies.init(conn, &server.cfg, &server.tasks, cancel)
	c.subscriptions.c = c
	c.requests = newCommandReader(c, limits{bulk: firstBulk, elements: firstElements, total: 4 * firstBulk, widen: c.widen})
	return c
}

// run serves the client until the connection of the client or of Redis ends.
func (c *clientConn) run() {
	err := c.serve()
	if errors.Is(err, errProtocol) {
		c.answer(errorReply("ERR " + err.Error()))
	}
	if errors.Is(err, errProtocol) || errors.Is(err, errQuit) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		// Requests that were received before the end get their replies.
		timer := time.AfterFunc(c.server.cfg.ReplyTimeout, func() { c.replies.fail(errGone) })
		c.flush()
		c.replies.waitComplete()
		c.replies.waitWritten()
		timer.Stop()
	}
	c.replies.fail(err)
	c.subscriptions.close(true)
}

func (c *clientConn) serve() error {
	for {
		cmd, err := c.requests.next()
		if err != nil {
			return err
		}
		if err := c.dispatch(cmd); err != nil {
			return err
		}
	}
}

// Read implements io.Reader for the requests. It sends pending requests to Redis before it waits. A subscriber can be
// silent.
func (c *clientConn) Read(b []byte) (int, error) {
	c.flush()
	for {
		_ = c.conn.SetReadDeadline(time.Now().Add(c.readTimeout))
		n, err := c.conn.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) && c.subscriptions.active() {
			continue
		}
		c.readTimeout = c.server.cfg.IdleTimeout
		return n, err
	}
}

func (c *clientConn) flush() {
	if d := c.upstream.Load(); d != nil {
		d.flush()
	}
}

// widen allows large requests to a client that Redis accepts without a password.
func (c *clientConn) widen() (limits, bool) {
	if refusal, err := c.checkAgentAccess(); err == nil && refusal == "" {
		c.trust()
	}
	return c.requests.limits, c.trusted
}

func (c *clientConn) trust() {
	c.trusted = true
	most := c.server.cfg.MaxRequest
	c.requests.limits = limits{bulk: most, elements: maxArguments, total: most}
}

// answer replies to the current request.
func (c *clientConn) answer(reply []byte) {
	if slot, ok := c.replies.reserve(c.flush); ok {
		c.replies.complete(slot, reply)
		c.replies.flush()
	}
}

// dispatch handles one request. An error ends the connection.
func (c *clientConn) dispatch(cmd command) error {
	var room [16]byte
	name := upper(cmd.args[0], &room)
	rule := rules[string(name)]
	switch {
	case rule.class == refused:
		c.answer(errorReply("ERR " + string(name) + " is not supported by the argocd-agent Redis proxy"))
		return errQuit
	case rule.class == quit:
		c.answer([]byte("+OK\r\n"))
		return errQuit
	case rule.class == connLocal && len(cmd.args) > 1 && isWord(cmd.args[1], "REPLY"):
		c.answer(errorReply("ERR CLIENT REPLY is not supported by the argocd-agent Redis proxy"))
		return nil
	case rule.class == handshake && (!c.multi || string(name) == "RESET"):
		return c.handshake(cmd, string(name))
	case c.multi:
		if string(name) == "EXEC" || string(name) == "DISCARD" {
			c.multi, c.agentAccess = false, nil
		}
		return c.forward(cmd.raw, expectedReply{})
	case rule.class == subscribe:
		// Confirmations are not replies, so the replies to earlier requests have to be complete.
		if c.flush(); !c.replies.waitComplete() {
			return errGone
		}
		return c.forward(cmd.raw, expectedReply{kind: strings.ToLower(string(name)), left: len(cmd.args) - 1})
	case rule.access != none && len(cmd.args) > 1:
		if handled, err := c.serveAgentKeys(cmd, rule.access); handled || err != nil {
			return err
		}
	case string(name) == "MULTI":
		c.multi = true
	}
	return c.forward(cmd.raw, expectedReply{prompt: rule.class == stateless})
}

// connected returns the client's connection to Redis and opens it if needed.
func (c *clientConn) connected() (*dedicatedConn, error) {
	if d := c.upstream.Load(); d != nil {
		return d, nil
	}
	d, err := openDedicated(c.ctx, c)
	if err != nil {
		c.server.cfg.Log.Warn("Failed to connect to the hub's Redis", "error", err)
		c.answer(errorReply("ERR argocd-agent: " + err.Error()))
		return nil, errQuit
	}
	c.upstream.Store(d)
	return d, nil
}

// forward sends a request to Redis. The client receives the reply.
func (c *clientConn) forward(raw []byte, reply expectedReply) error {
	d, err := c.connected()
	if err != nil {
		return err
	}
	var ok bool
	if reply.slot, ok = c.replies.reserve(d.flush); !ok {
		return errGone
	}
	d.send(raw, reply)
	return nil
}

// exchange sends a request to Redis and returns the reply.
func (c *clientConn) exchange(raw []byte) ([]byte, error) {
	d, err := c.connected()
	if err != nil {
		return nil, err
	}
	reply := make(chan []byte, 1)
	d.send(raw, expectedReply{prompt: true, to: reply})
	d.flush()
	select {
	case b := <-reply:
		return b, nil
	case <-c.ctx.Done():
		return nil, errGone
	}
}

// handshake forwards HELLO, AUTH, SELECT or RESET and follows the change if Redis accepts it.
func (c *clientConn) handshake(cmd command, name string) error {
	reply, err := c.exchange(cmd.raw)
	if err != nil {
		return err
	}
	c.agentAccess = nil
	switch {
	case reply[0] == '-':
	case name == "RESET":
		c.multi, c.trusted = false, false
		c.requests.limits = limits{bulk: firstBulk, elements: firstElements, total: 4 * firstBulk, widen: c.widen}
		c.subscriptions.close(false)
		c.proto.Store(2)
	default:
		if c.trust(); name == "HELLO" && len(cmd.args) > 1 {
			if proto, err := strconv.Atoi(string(cmd.args[1])); err == nil {
				c.proto.Store(int32(proto)) //nolint:gosec // Redis accepted it: 2 or 3
			}
		}
	}
	c.answer(reply)
	return nil
}
