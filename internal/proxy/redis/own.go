package redis

import (
	"context"
	"net"
	"sync"
	"time"
)

// own is a connection to the hub's Redis for one client alone: what is said on it has Redis's own meaning, however much
// state it sets.
type own struct {
	s    *session
	conn net.Conn
	out  []byte // not written yet; the session's reader alone touches it

	mu    sync.Mutex
	queue []expected
	ended bool // on purpose
}

// expected is a reply that is under way. To a subscription Redis answers with several messages, one for each name.
type expected struct {
	seq      uint64
	messages int
}

// openOwn connects in the state that the session is in.
func openOwn(ctx context.Context, s *session) (*own, error) {
	conn, err := s.server.cfg.Hub.connectAs(ctx, s.is)
	if err != nil {
		return nil, err
	}
	o := &own{s: s, conn: quick(conn)}
	s.server.tasks.Go(o.read)
	return o, nil
}

// send adds a request; flush writes it.
func (o *own) send(seq uint64, messages int, raw []byte) {
	o.mu.Lock()
	o.queue = append(o.queue, expected{seq: seq, messages: messages})
	o.mu.Unlock()
	o.out = append(o.out, raw...)
	if len(o.out) > bigBuffer {
		o.flush()
	}
}

func (o *own) flush() {
	if len(o.out) == 0 {
		return
	}
	_ = o.conn.SetWriteDeadline(time.Now().Add(o.s.server.cfg.Stall))
	if _, err := o.conn.Write(o.out); err != nil {
		o.s.output.fail(errBackendLost)
	}
	if cap(o.out) > bigBuffer {
		o.out = nil
	}
	o.out = o.out[:0]
}

func (o *own) read() {
	replies := newReader(o.conn, o.s.server.replyLimits())
	for {
		reply, err := replies.next()
		for err == nil && reply != nil {
			o.take(reply)
			reply, err = replies.buffered()
		}
		o.s.output.flush()
		o.s.output.wait()
		if err != nil {
			break
		}
	}
	o.mu.Lock()
	ended := o.ended
	o.mu.Unlock()
	if !ended {
		o.s.output.fail(errBackendLost)
	}
	_ = o.conn.Close()
}

// take passes one reply or message on.
func (o *own) take(reply []byte) {
	var m message
	if reply[0] == '>' || reply[0] == '*' && o.s.subscribing.Load() {
		m = readMessage(reply)
	}
	if m.is {
		o.s.output.push(reply)
		if m.confirms == "" {
			return
		}
		o.s.subscribed(m.confirms, m.name)
	}
	o.mu.Lock()
	if len(o.queue) == 0 {
		o.mu.Unlock()
		if !m.is { // Redis says why it is about to hang up
			o.s.output.push(reply)
		}
		return
	}
	first := &o.queue[0]
	if m.is {
		first.messages--
		if first.messages > 0 {
			o.mu.Unlock()
			return
		}
		reply = nil // it has been pushed
	}
	seq := first.seq
	o.queue = o.queue[1:]
	o.mu.Unlock()
	o.s.output.complete(seq, 1, reply)
}

// message is what Redis sends to subscribers.
type message struct {
	is       bool   // it is one, not a reply
	confirms string // subscribe, unsubscribe, psubscribe, …; empty: something was published
	name     []byte // of the channel
}

func readMessage(frame []byte) message {
	m := message{is: frame[0] == '>'}
	parts, err := bulks(frame)
	if err != nil || len(parts) < 3 {
		return m
	}
	switch kind := string(parts[0]); kind {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe":
		return message{is: true, confirms: kind, name: parts[1]}
	case "message", "smessage", "pmessage":
		return message{is: true, name: parts[1]}
	}
	return m
}

// close ends the connection without ending the client's.
func (o *own) close() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	_ = o.conn.Close()
}
