package redis

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// replyForwarder forwards the replies of Redis to one client. The proxy writes its own replies while Redis owes none, so
// the client receives all replies in the order of its requests.
//
// One goroutine reads the client's requests and calls send, subscribe, exchange and answer. Another one calls receive.
type replyForwarder struct {
	client   net.Conn
	requests *bufio.Writer // to Redis, for the goroutine that reads the client's requests
	timeout  time.Duration // Redis must reply within this time

	message   func(frame []byte, m message) error // writes a message to a subscriber
	delivered func(weight int64)                  // called after each reply and message. If nil, it is not called.

	writes sync.Mutex
	out    *bufio.Writer // to the client

	mu          sync.Mutex
	changed     sync.Cond
	redis       net.Conn
	owed        int       // replies, or confirmations of one subscribe command
	weight      int64     // of the requests since owed was 0
	owedSince   time.Time // when owed was 0
	subscribing bool      // a subscribe command is not confirmed yet
	subscribed  int       // channels and patterns
	capture     bool      // the next reply is for the proxy
	captured    []byte
	err         error // set once, when the connection ends
}

func newReplyForwarder(client net.Conn, timeout, writeTimeout time.Duration) *replyForwarder {
	f := &replyForwarder{client: client, timeout: timeout, out: bufio.NewWriterSize(timeoutWriter{client, writeTimeout}, bufferSize)}
	f.changed.L = &f.mu
	return f
}

// connect takes ownership of a connection to Redis.
func (f *replyForwarder) connect(redis net.Conn) {
	f.requests = bufio.NewWriterSize(timeoutWriter{redis, f.timeout}, bufferSize)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.redis = redis; f.err != nil {
		_ = redis.Close()
	}
}

// expect records that Redis owes replies.
func (f *replyForwarder) expect(replies int, kind expected) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owed == 0 {
		f.owedSince = time.Now()
	}
	f.owed += replies
	f.weight += kind.weight
	f.subscribing, f.capture = kind.subscribing, kind.capture
}

// expected describes the reply to a request.
type expected struct {
	subscribing, capture bool  // see replyForwarder
	weight               int64 // passed to delivered when Redis owes no reply
}

// send forwards a request, with a prefix before the first arguments after its name. The caller calls flush before it
// waits for anything.
func (f *replyForwarder) send(args [][]byte, prefix string, names int, reply expected) {
	f.expect(1, reply)
	f.encode(args, prefix, names)
}

// forward forwards a request as it was received. The caller calls flush before it waits for anything.
func (f *replyForwarder) forward(raw []byte) {
	f.expect(1, expected{})
	_, _ = f.requests.Write(raw) // flush returns the error
}

func (f *replyForwarder) encode(args [][]byte, prefix string, names int) {
	head := appendHeader(f.requests.AvailableBuffer(), '*', len(args))
	for i, arg := range args {
		before := ""
		if i > 0 && i <= names {
			before = prefix
		}
		head = append(appendHeader(head, '$', len(before)+len(arg)), before...)
		_, _ = f.requests.Write(head) // flush returns the error
		_, _ = f.requests.Write(arg)
		head = append(f.requests.AvailableBuffer(), '\r', '\n')
	}
	_, _ = f.requests.Write(head)
}

// subscribe forwards a subscribe or unsubscribe command and waits until Redis has confirmed or refused it.
func (f *replyForwarder) subscribe(args [][]byte, prefix string) error {
	if err := f.wait(); err != nil {
		return err
	}
	f.expect(max(1, len(args)-1), expected{subscribing: true})
	f.encode(args, prefix, len(args)-1)
	return f.wait()
}

// exchange forwards a request and returns the reply instead of forwarding it.
func (f *replyForwarder) exchange(args [][]byte) ([]byte, error) {
	if err := f.wait(); err != nil {
		return nil, err
	}
	f.send(args, "", 0, expected{capture: true})
	err := f.wait()
	return f.captured, err
}

// answer replies to the current request without Redis.
func (f *replyForwarder) answer(reply []byte) error {
	if err := f.wait(); err != nil {
		return err
	}
	return f.write(reply, true)
}

func (f *replyForwarder) flush() {
	if f.requests == nil {
		return
	}
	if err := f.requests.Flush(); err != nil {
		f.fail(errUpstreamLost)
	}
}

// wait waits until Redis owes no reply.
func (f *replyForwarder) wait() error { return f.waitRoom(0) }

// waitRoom waits while Redis owes more than a number of replies.
func (f *replyForwarder) waitRoom(most int) error {
	f.flush()
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.err == nil && f.owed > most {
		f.changed.Wait()
	}
	return f.err
}

func (f *replyForwarder) isSubscribed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.subscribing || f.subscribed > 0
}

// write writes to the client.
func (f *replyForwarder) write(b []byte, flush bool) error {
	f.writes.Lock()
	defer f.writes.Unlock()
	_, err := f.out.Write(b)
	if err == nil && flush {
		err = f.out.Flush()
	}
	if err != nil {
		f.fail(errGone)
	}
	return err
}

// Read implements io.Reader for the replies of Redis.
func (f *replyForwarder) Read(b []byte) (int, error) {
	if err := f.write(nil, true); err != nil {
		return 0, err
	}
	for {
		_ = f.redis.SetReadDeadline(time.Now().Add(f.timeout))
		n, err := f.redis.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || f.overdue(time.Now()) {
			return n, err
		}
	}
}

// overdue reports whether Redis should have replied by now, if it sent nothing since the timeout.
func (f *replyForwarder) overdue(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owed > 0 && now.Sub(f.owedSince) >= f.timeout
}

// receive forwards replies and messages until a connection ends. Replies that are complete reach the client.
func (f *replyForwarder) receive(bound limits) {
	replies := newReplyReader(f, bound)
	for {
		frame, err := replies.next()
		if err == nil {
			err = f.deliver(frame)
		}
		if err != nil {
			_ = f.write(nil, true)
			f.fail(errUpstreamLost)
			return
		}
	}
}

func (f *replyForwarder) deliver(frame []byte) error {
	var m message
	// In RESP2, a message is an array like any other. Only a subscriber receives messages.
	if frame[0] == '>' || frame[0] == '*' && f.isSubscribed() {
		m = readMessage(frame)
	}
	f.mu.Lock()
	capture := f.capture && !m.message
	if capture {
		f.capture, f.captured = false, bytes.Clone(frame)
	}
	f.mu.Unlock()
	var err error
	switch {
	case m.message:
		err = f.message(frame, m)
	case !capture:
		err = f.write(frame, false)
	}
	if weight := f.received(m); f.delivered != nil {
		f.delivered(weight)
	}
	return err
}

// received accounts for a reply or a message. When Redis owes no more replies, it returns the weight of the requests.
func (f *replyForwarder) received(m message) (weight int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.confirms != "" {
		f.subscribed = m.count
	}
	switch {
	case f.subscribing && !m.message: // Redis refuses the command
		f.owed = 0
	case f.owed > 0 && (!m.message || f.subscribing && m.confirms != ""):
		f.owed--
	}
	if f.owed == 0 {
		weight, f.weight = f.weight, 0
		f.subscribing = false
	}
	f.changed.Broadcast()
	return weight
}

// fail ends both connections. The first error is kept.
func (f *replyForwarder) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		_ = f.client.Close()
		if f.redis != nil {
			_ = f.redis.Close()
		}
	}
	f.changed.Broadcast()
}

// finish waits for the replies to the requests that were received before the end.
func (f *replyForwarder) finish(limit time.Duration) {
	timer := time.AfterFunc(limit, func() { f.fail(errTimeout) })
	defer timer.Stop()
	if f.wait() == nil {
		_ = f.write(nil, true)
	}
}

// timeoutWriter fails if the peer takes no bytes for a time.
type timeoutWriter struct {
	conn    net.Conn
	timeout time.Duration
}

// Write implements io.Writer.
func (w timeoutWriter) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		_ = w.conn.SetWriteDeadline(time.Now().Add(w.timeout))
		var some int
		some, err = w.conn.Write(b[n:min(len(b), n+1<<20)])
		n += some
	}
	return n, err
}

// message is a frame that Redis sends to subscribers.
type message struct {
	message  bool   // false for a reply
	confirms string // subscribe, unsubscribe, psubscribe, punsubscribe. Empty for a published message.
	name     []byte // of the channel
	count    int    // of channels and patterns after a confirmation
}

func readMessage(frame []byte) message {
	m := message{message: frame[0] == '>'}
	parts, err := decode(frame)
	if err != nil || len(parts) < 3 {
		return m
	}
	switch kind := string(parts[0]); kind {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe":
		m = message{message: true, confirms: kind, name: parts[1]}
		m.count, _ = strconv.Atoi(string(parts[2]))
	case "message", "pmessage":
		m.message = true
	}
	return m
}
