package redis

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// output puts the replies to one client into the order of its requests, whoever completes them, and writes them. It never
// lets the one who completes a reply wait for the client: what the client's socket does not take at once is left to a
// goroutine that exists only until the client has caught up.
type output struct {
	conn  net.Conn
	raw   syscall.RawConn // nil: conn is no socket
	try   func(fd uintptr) bool
	stall time.Duration
	room  int // bytes that may be unwritten before open waits
	tasks *sync.WaitGroup
	ended func() // called once when the client is gone; must not wait

	mu      sync.Mutex
	changed sync.Cond
	slots   []slot // a ring; slot i%len is for request i
	head    uint64 // oldest request without a written reply
	tail    uint64 // next request
	hidden  uint64 // the reply to this request is kept instead of written, if hiding
	hiding  bool
	kept    []byte
	out     []byte
	taken   int // bytes that the writing goroutine has in hand
	writing bool
	err     error // set once: the client is gone or is to go

	heavy atomic.Bool // has many large replies under way: see heavyRun

	trying   []byte
	tried    int
	tryError error
}

// A client that asks for much at a time gets a connection of its own to Redis, or others would wait behind its replies.
const (
	heavyRun      = 64 << 10 // bytes of replies that came together
	heavyPipeline = 8        // requests under way at that time
)

// slot holds the replies to a run of requests until those before it have theirs.
type slot struct {
	replies []byte
	count   int // 0: they have not come
}

func (o *output) init(conn net.Conn, cfg *Config, tasks *sync.WaitGroup) {
	o.conn, o.stall, o.room, o.tasks = conn, cfg.Stall, cfg.MaxOutput, tasks
	o.changed.L = &o.mu
	o.try = o.tryWrite
	if socket, ok := conn.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			o.raw = raw
		}
	}
}

// open takes the next places in the order of replies, and waits while too many are taken, at most limit. false: the
// client is gone.
func (o *output) open(count, limit int) (uint64, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && o.full(limit) {
		o.changed.Wait()
	}
	return o.reserve(count)
}

// tryOpen is open that does not wait.
func (o *output) tryOpen(count, limit int) (uint64, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.full(limit) {
		return 0, false
	}
	return o.reserve(count)
}

func (o *output) full(limit int) bool {
	return o.tail-o.head >= uint64(limit) || len(o.out)+o.taken > o.room
}

func (o *output) reserve(count int) (uint64, bool) {
	if o.err != nil {
		return 0, false
	}
	for o.tail-o.head+uint64(count) > uint64(len(o.slots)) {
		o.grow()
	}
	o.tail += uint64(count)
	return o.tail - uint64(count), true
}

func (o *output) grow() {
	slots := make([]slot, max(8, 2*len(o.slots)))
	for i := o.head; i < o.tail; i++ {
		slots[i%uint64(len(slots))] = o.slots[i%uint64(len(o.slots))]
	}
	o.slots = slots
}

// crowded reports whether open would wait.
func (o *output) crowded(limit int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.full(limit)
}

// complete gives the replies to a run of requests, which are copied. Nothing is written before flush.
func (o *output) complete(seq uint64, count int, replies []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seq != o.head {
		o.slots[seq%uint64(len(o.slots))] = slot{replies: append([]byte(nil), replies...), count: count}
		return
	}
	if len(replies) > heavyRun && o.tail-o.head > heavyPipeline {
		o.heavy.Store(true)
	}
	if taken := o.direct(replies); taken > 0 {
		replies = replies[taken:]
	}
	o.pass(replies, count)
	for o.head < o.tail {
		next := &o.slots[o.head%uint64(len(o.slots))]
		if next.count == 0 {
			break
		}
		is := *next
		*next = slot{}
		o.pass(is.replies, is.count)
	}
	o.changed.Broadcast()
}

// directly is from which size on replies are written from where they were read: copying them would cost more than what
// can be saved by writing them together with others.
const directly = 4 << 10

// direct writes replies that are due, as much of them as the socket takes.
func (o *output) direct(replies []byte) int {
	if len(replies) < directly || len(o.out) > 0 || o.writing || o.hiding || o.raw == nil || o.err != nil {
		return 0
	}
	return o.send(replies)
}

// send writes once, and leaves waiting to others.
func (o *output) send(b []byte) int {
	o.trying, o.tried, o.tryError = b, 0, nil
	err := o.raw.Write(o.try)
	o.trying = nil
	if err != nil || o.tryError != nil {
		o.failLocked(errGone)
	}
	return o.tried
}

// pass moves the oldest replies to where they belong.
func (o *output) pass(replies []byte, count int) {
	if o.hiding && o.hidden == o.head {
		o.kept = append([]byte(nil), replies...)
		o.hiding = false
	} else {
		o.out = append(o.out, replies...)
	}
	o.head += uint64(count)
}

// push adds what is no reply to anything: a published message.
func (o *output) push(message []byte) {
	o.mu.Lock()
	if o.err != nil {
		o.mu.Unlock()
		return
	}
	o.out = append(o.out, message...)
	tooMuch := len(o.out)+o.taken > 2*o.room // a subscriber that does not read; no request of it waits
	o.mu.Unlock()
	if tooMuch {
		o.fail(errSlowSubscriber)
	}
}

// hide keeps the reply to a request, for exchange.
func (o *output) hide(seq uint64) {
	o.mu.Lock()
	o.hiding, o.hidden, o.kept = true, seq, nil
	o.mu.Unlock()
}

// wait lets who completes replies wait for the client, where nobody else waits for them.
func (o *output) wait() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && len(o.out)+o.taken > o.room {
		o.changed.Wait()
	}
}

// show takes hide back.
func (o *output) show() {
	o.mu.Lock()
	o.hiding = false
	o.mu.Unlock()
}

// drain waits until every request has its reply; false: the client is gone.
func (o *output) drain() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && o.head != o.tail {
		o.changed.Wait()
	}
	return o.err == nil
}

// flush writes what the socket takes and returns.
func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing || len(o.out) == 0 || o.err != nil {
		return
	}
	if o.raw != nil && len(o.out) < 1<<20 {
		n := o.send(o.out)
		if o.err != nil {
			return
		}
		if n == len(o.out) {
			o.written()
			return
		}
		o.out = o.out[n:]
	}
	o.writing = true
	o.tasks.Go(o.write)
}

func (o *output) tryWrite(fd uintptr) bool {
	n, err := writeSome(fd, o.trying)
	switch err {
	case 0:
		o.tried = n
	case syscall.EAGAIN:
	default:
		o.tryError = err
	}
	return true
}

// written forgets what was written, and the memory of a giant with it.
func (o *output) written() {
	if cap(o.out) > bigBuffer {
		o.out = nil
	}
	o.out = o.out[:0]
	o.changed.Broadcast()
}

// write waits for a client that is slower than its replies.
func (o *output) write() {
	for {
		o.mu.Lock()
		b := o.out
		o.out, o.taken = nil, len(b)
		if len(b) == 0 || o.err != nil {
			o.taken, o.writing = 0, false
			_ = o.conn.SetWriteDeadline(time.Time{})
			o.changed.Broadcast()
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		for len(b) > 0 {
			_ = o.conn.SetWriteDeadline(time.Now().Add(o.stall))
			n, err := o.conn.Write(b[:min(len(b), bigBuffer)])
			if err != nil {
				o.fail(errGone)
				break
			}
			b = b[n:]
		}
	}
}

// fail ends the client's connection. The first reason stays.
func (o *output) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(err)
}

func (o *output) failLocked(err error) {
	if o.err == nil {
		o.err = err
		_ = o.conn.Close()
		o.ended()
	}
	o.changed.Broadcast()
}

// failure tells why the client's connection was ended.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// finish waits until everything is written, for a connection that ends with a last word.
func (o *output) finish() {
	o.flush()
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && (o.writing || len(o.out) > 0) {
		o.changed.Wait()
	}
}
