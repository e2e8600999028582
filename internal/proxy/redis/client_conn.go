package redis

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// clientConn is the connection of one client. One goroutine reads its requests, another one the replies of Redis.
type clientConn struct {
	server  *Server
	conn    net.Conn
	replies *replyForwarder
	proto   atomic.Int32 // RESP version

	channels map[string]*subscriber // confirmed by Redis, guarded by agentPool.mu. If nil, the client is gone.

	pushes  sync.Mutex
	pushed  map[string]bool // channels of agents with a message that is not written yet
	pushing bool            // a goroutine writes them

	// For the goroutine that reads requests:
	requests    *commandReader
	readTimeout time.Duration
	multi       bool    // between MULTI and EXEC
	agentAccess *string // Redis' error for reading agents' keys, empty if allowed. If nil, it is not known.
}

var (
	errGone         = errors.New("client disconnected")
	errQuit         = errors.New("client quit")
	errShutdown     = errors.New("proxy is shutting down")
	errUpstreamLost = errors.New("connection to the hub's Redis lost")
)

var (
	// hubReplyLimits allow the largest value that Redis can hold.
	hubReplyLimits = limits{bulk: 512 << 20, elements: maxElements, total: 1 << 40}
	// firstLimits apply to a client that has not authenticated, as in Redis.
	firstLimits = limits{bulk: 16 << 10, elements: 16, total: 64 << 10}
)

func newClientConn(server *Server, conn net.Conn) *clientConn {
	c := &clientConn{server: server, conn: conn, readTimeout: server.cfg.FirstRequest, channels: map[string]*subscriber{}}
	c.proto.Store(2)
	c.replies = newReplyForwarder(conn, server.cfg.ReplyTimeout, server.cfg.WriteTimeout)
	c.replies.message = c.deliverMessage
	c.requests = newCommandReader(c, firstLimits)
	return c
}

// run serves the client until the connection of the client or of Redis ends.
func (c *clientConn) run() {
	err := c.tlsHandshake()
	if err == nil {
		err = c.serve()
	}
	if errors.Is(err, errProtocol) {
		_ = c.replies.answer(errorReply("ERR " + err.Error()))
	}
	if errors.Is(err, errProtocol) || errors.Is(err, errQuit) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.replies.finish(c.server.cfg.ReplyTimeout)
	}
	c.replies.fail(err)
	c.server.agents.unsubscribe(c, "", true)
}

func (c *clientConn) serve() error {
	for {
		args, err := c.requests.next()
		if err == nil {
			err = c.dispatch(args)
		}
		if err != nil {
			return err
		}
	}
}

// Read implements io.Reader for the requests. A subscriber can be silent.
func (c *clientConn) Read(b []byte) (int, error) {
	if err := c.replies.waitRoom(c.server.cfg.MaxPipeline); err != nil {
		return 0, err
	}
	for {
		_ = c.conn.SetReadDeadline(time.Now().Add(c.readTimeout))
		n, err := c.conn.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) && c.replies.isSubscribed() {
			continue
		}
		if c.readTimeout = c.server.cfg.IdleTimeout; n > 0 && c.replies.requests == nil {
			if err := c.connect(); err != nil {
				return 0, err
			}
		}
		return n, err
	}
}

// connect connects to Redis. A client that Redis accepts without a password can send large requests.
func (c *clientConn) connect() error {
	redis, err := c.server.cfg.Hub.dial(c.server.agents.ctx)
	if err != nil {
		c.server.cfg.Log.Warn("Failed to connect to the hub's Redis", "error", err)
		_ = c.replies.answer(errorReply("ERR argocd-agent: " + err.Error()))
		return errQuit
	}
	c.replies.connect(redis)
	c.server.tasks.Go(func() { c.replies.receive(hubReplyLimits) })
	refusal, err := c.checkAgentAccess()
	if refusal == "" {
		c.trust()
	}
	return err
}

func (c *clientConn) trust() {
	c.requests.limits = limits{bulk: 512 << 20, elements: maxArguments, total: 512 << 20}
}

// dispatch handles one request. An error ends the connection.
func (c *clientConn) dispatch(args [][]byte) error {
	name := commandName(args)
	class := classes[name]
	switch {
	case class == refused:
		_ = c.replies.answer(errorReply("ERR " + name + " is not supported by the argocd-agent Redis proxy"))
		return errQuit
	case class == quit:
		_ = c.replies.answer([]byte("+OK\r\n"))
		return errQuit
	case name == "CLIENT" && len(args) > 1 && isWord(args[1], "REPLY"):
		return c.replies.answer(errorReply("ERR CLIENT REPLY is not supported by the argocd-agent Redis proxy"))
	case class == handshake && !c.multi:
		return c.handshake(name, args)
	case c.multi:
		if name == "EXEC" || name == "DISCARD" {
			c.multi, c.agentAccess = false, nil
		}
	case class == subscribe:
		return c.replies.subscribe(args, "")
	case class == keyed:
		if handled, err := c.serveAgentKey(name, args); handled {
			return err
		}
	default:
		c.multi = name == "MULTI"
	}
	c.replies.forward(c.requests.raw)
	return nil
}

// handshake forwards HELLO, AUTH or SELECT and follows the change if Redis accepts it.
func (c *clientConn) handshake(name string, args [][]byte) error {
	reply, err := c.replies.exchange(args)
	if err != nil {
		return err
	}
	c.agentAccess = nil
	if reply[0] != '-' {
		c.trust()
		if name == "HELLO" && len(args) > 1 {
			proto, _ := strconv.Atoi(string(args[1]))
			c.proto.Store(int32(proto)) //nolint:gosec // Redis accepted it: 2 or 3
		}
	}
	return c.replies.answer(reply)
}

// serveAgentKey answers a request with a key of an agent. It returns false if all keys belong to the hub.
func (c *clientConn) serveAgentKey(name string, args [][]byte) (handled bool, err error) {
	isGet := name == "GET" && len(args) == 2
	for _, arg := range args[1:] {
		key, target, ok := c.server.cfg.resolve(arg)
		if !ok && (!isGet || target.Frozen == "") {
			continue
		}
		reply, err := c.agentReply(isGet, args, agentLookup{target, key})
		if err == nil {
			err = c.replies.answer(reply)
		}
		return true, err
	}
	return false, nil
}

// agentReply returns the reply to a request with a key of an agent or of a frozen Application.
func (c *clientConn) agentReply(isGet bool, args [][]byte, l agentLookup) ([]byte, error) {
	if l.target.Frozen != "" {
		reply, err := c.replies.exchange(args)
		if text := string(reply); text == "$-1\r\n" || text == "_\r\n" {
			reply = errorReply("ERR argocd-agent: " + l.target.Frozen)
		}
		return reply, err
	}
	refusal, err := c.checkAgentAccess()
	if err != nil || refusal != "" {
		return []byte(refusal), err
	}
	if !isGet {
		return errorReply("ERR this key belongs to agent " + l.target.Agent + ", only GET is allowed"), nil
	}
	c.replies.flush()
	switch value, err := c.server.agents.get(l); {
	case err != nil:
		return errorReply("ERR " + err.Error()), nil //nolint:nilerr // the client gets it
	case value != nil:
		return appendBulk(nil, value), nil
	default:
		return appendNil(nil, int(c.proto.Load())), nil
	}
}

// probeKey is like a key of an agent's Application. It does not exist.
const probeKey = "app|resources-tree|argocd-agent_probe|0"

// checkAgentAccess returns the error with which Redis refuses the client keys like those of agents. It is empty if Redis
// allows them.
func (c *clientConn) checkAgentAccess() (refusal string, err error) {
	if c.agentAccess == nil {
		reply, err := c.replies.exchange([][]byte{[]byte("GET"), []byte(probeKey)})
		if err != nil {
			return "", err
		}
		if reply[0] == '-' {
			refusal = string(reply)
		}
		c.agentAccess = &refusal
	}
	return *c.agentAccess, nil
}

// deliverMessage forwards a message of the hub's Redis. After a confirmation, the client receives messages of agents, or
// no longer receives them.
func (c *clientConn) deliverMessage(frame []byte, m message) error {
	err := c.replies.write(frame, false)
	switch m.confirms {
	case "subscribe":
		c.server.agents.subscribe(c, string(m.name))
	case "unsubscribe":
		c.server.agents.unsubscribe(c, string(m.name), false)
	}
	return err
}

// push delivers a message of an agent. It does not wait for the client. The message has no payload: Argo CD publishes none,
// and an agent could choose it. Messages of one channel that the client has not read yet are one, so that their number is
// bounded by the channels of the client, and not by what agents publish.
func (c *clientConn) push(channel string) {
	c.pushes.Lock()
	defer c.pushes.Unlock()
	if c.pushed == nil {
		c.pushed = map[string]bool{}
	}
	c.pushed[channel] = true
	if !c.pushing {
		c.pushing = true
		c.server.tasks.Go(c.writePushed)
	}
}

func (c *clientConn) writePushed() {
	for {
		c.pushes.Lock()
		var messages []byte
		for channel := range c.pushed {
			messages = append(messages, messageReply(int(c.proto.Load()), "message", channel, "")...)
		}
		c.pushed, c.pushing = nil, len(messages) > 0
		c.pushes.Unlock()
		if len(messages) == 0 {
			return
		}
		_ = c.replies.write(messages, true) // on error, the connection ends
	}
}
