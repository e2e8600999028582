package redis

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dedicatedConn is a client's connection to the hub's Redis.
type dedicatedConn struct {
	c    *clientConn
	conn net.Conn
	out  *bufio.Writer // used by the client's reading goroutine

	reading atomic.Bool   // the receiving goroutine waits for Redis
	reads   atomic.Uint64 // counts reads, so that stalled notices progress

	mu       sync.Mutex
	expected fifo[expectedReply] // oldest first

	seen      uint64    // reads at the last call of stalled
	seenSince time.Time // when seen last changed
}

// expectedReply is a request to which Redis has not replied yet.
type expectedReply struct {
	slot   uint64                    // for the reply
	prompt bool                      // Redis has to reply within Config.ReplyTimeout
	to     chan []byte               // receives the reply instead of the client. If nil, the client receives it.
	edit   func(reply []byte) []byte // changes the reply. If nil, the reply is not changed.
	kind   string                    // of a (un)subscribe command, in lower case
	left   int                       // confirmations that a (un)subscribe command still gets, 0 if not known yet
}

// openDedicated connects to the hub's Redis. The client authenticates itself.
func openDedicated(ctx context.Context, c *clientConn) (*dedicatedConn, error) {
	conn, err := c.server.cfg.Hub.dial(ctx)
	if err != nil {
		return nil, err
	}
	d := &dedicatedConn{c: c, conn: conn, seenSince: time.Now()}
	d.out = bufio.NewWriterSize(timeoutWriter{conn, c.server.cfg.WriteTimeout}, bufferSize)
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	c.server.tasks.Go(d.receive)
	return d, nil
}

// send queues a request. The caller calls flush before it waits for anything.
func (d *dedicatedConn) send(raw []byte, reply expectedReply) {
	d.mu.Lock()
	d.expected.push(reply)
	d.mu.Unlock()
	_, _ = d.out.Write(raw) // flush returns the error
}

func (d *dedicatedConn) flush() {
	if err := d.out.Flush(); err != nil {
		d.c.replies.fail(errUpstreamLost)
	}
}

// Read implements io.Reader for the receiving goroutine.
func (d *dedicatedConn) Read(b []byte) (int, error) {
	d.c.replies.flushHere()
	d.mu.Lock()
	next := uint64(0) // a message, or a reply that the client does not receive
	if d.expected.len() > 0 && d.expected.at(0).to == nil {
		next = d.expected.at(0).slot
	}
	d.mu.Unlock()
	d.c.replies.waitRoom(next)
	d.reading.Store(true)
	n, err := d.conn.Read(b)
	d.reads.Add(1)
	d.reading.Store(false)
	return n, err
}

// receive forwards replies and messages until the connection ends. Replies that are complete reach the client.
func (d *dedicatedConn) receive() {
	replies := newReplyReader(d, hubReplyLimits)
	for {
		reply, err := replies.next()
		if err != nil {
			break
		}
		d.deliver(reply)
	}
	d.c.replies.waitWritten()
	d.c.replies.fail(errUpstreamLost)
}

// deliver handles one reply or message.
func (d *dedicatedConn) deliver(reply []byte) {
	q := &d.c.replies
	// In RESP2, a message is an array like any other. Only a subscribed client receives messages.
	if reply[0] == '>' || reply[0] == '*' && (d.subscribing() || d.c.subscriptions.active()) {
		if m := readMessage(reply); m.message {
			q.push(reply)
			if m.confirms != "" {
				d.confirm(m)
			}
			return
		}
	}
	d.mu.Lock()
	if d.expected.len() == 0 {
		d.mu.Unlock()
		q.push(reply) // Redis reports why it closes the connection
		return
	}
	request := d.expected.pop()
	d.mu.Unlock()
	switch {
	case request.to != nil:
		request.to <- bytes.Clone(reply)
	case request.edit != nil:
		q.complete(request.slot, request.edit(reply))
	default:
		q.complete(request.slot, reply)
	}
}

// subscribing reports whether Redis replies next to a (un)subscribe command.
func (d *dedicatedConn) subscribing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expected.len() > 0 && d.expected.at(0).kind != ""
}

// confirm handles the confirmation of one channel. A command is complete when all its channels are confirmed.
func (d *dedicatedConn) confirm(m message) {
	unsubscribed := d.c.subscriptions.count(m.confirms)
	d.c.subscriptions.confirmed(m.confirms, m.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.expected.len() == 0 || d.expected.at(0).kind != m.confirms {
		return // inside a transaction
	}
	head := d.expected.at(0)
	if head.left == 0 { // UNSUBSCRIBE from all channels
		head.left = max(1, unsubscribed)
	}
	if head.left--; head.left == 0 {
		d.c.replies.complete(d.expected.pop().slot, nil)
	}
}

// stalled reports whether Redis has sent nothing for longer than a time although it owes a prompt reply.
func (d *dedicatedConn) stalled(now time.Time, limit time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	reads := d.reads.Load()
	if reads != d.seen || d.expected.len() == 0 || !d.expected.at(0).prompt || !d.reading.Load() {
		d.seen, d.seenSince = reads, now
	}
	return now.Sub(d.seenSince) > limit
}

// message is a frame that Redis sends to subscribers.
type message struct {
	message  bool   // false for a reply
	confirms string // subscribe, unsubscribe, psubscribe and so on. Empty for a published message.
	name     []byte // of the channel
}

func readMessage(frame []byte) message {
	m := message{message: frame[0] == '>'}
	parts, err := decode(frame)
	if err != nil || len(parts) < 3 {
		return m
	}
	switch kind := string(parts[0]); kind {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe":
		return message{message: true, confirms: kind, name: parts[1]}
	case "message", "smessage", "pmessage":
		return message{message: true, name: parts[1]}
	}
	return m
}
