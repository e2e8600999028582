package transport

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// Conn is one session's connection. Its methods may be called from anywhere, at
// any time, and none of them waits.
type Conn struct {
	ID          uint64 // never used twice in a process
	Agent       string // who the peer is; on an agent, who the agent says it is
	RemoteAddr  string
	Fingerprint string    // of the peer's certificate; empty where a mesh vouches for it
	NotAfter    time.Time // when that expires; zero likewise
	Since       time.Time
	Traffic     *Traffic

	// Steps are those in which the session comes about. Who knows of the next one
	// says so, and of the last; the end of the connection is theirs in any case.
	// Nil: it is not traced.
	Steps      *trace.Steps
	deliveries *deliveries

	total   *Traffic
	limit   int           // bytes in the queue
	grace   time.Duration // from Close to the end, at most
	abort   func()        // ends the transport at once: reads and writes fail
	closing chan struct{} // no more is sent or delivered
	dead    chan struct{} // not even what is queued is sent

	ctx    context.Context // of what depends on it; over as soon as it is closing
	cancel context.CancelCauseFunc

	asked   func(engine.Open) // on an agent: takes the hub's wishes for tunnels
	offer   string            // on an agent: which it serves, as its Hello says
	tunnels *tunnelPool       // on the hub

	established atomic.Bool
	welcomed    atomic.Uint64 // when a Welcome was sent, as a number that grows; 0: not yet

	mu         sync.Mutex
	source     string
	epoch      engine.Epoch
	seq        uint64
	queue      []outgoing
	queued     int    // bytes in the queue or being sent
	out        stream // nil before run
	sending    bool   // a goroutine sends what is queued: only then is there one
	sendClosed bool   // none shall begin any more
	senders    sync.WaitGroup
	atEnd      func() // once everything is sent and nothing more will come; may be nil
	cause      error  // why it ended; the first one counts
	closed     bool   // closing is closed
	ended      bool   // nobody reads or sends any more
	deadOnce   sync.Once
	timer      *time.Timer
	extended   int // how often a goodbye was given more time
	left       int // what was queued then
}

var lastID, lastWelcome atomic.Uint64

func newConn(source string, total *Traffic, limit int, grace time.Duration, abort func()) *Conn {
	life, die := context.WithCancelCause(context.Background())
	return &Conn{
		ID: lastID.Add(1), Since: time.Now(), Traffic: &Traffic{}, ctx: life, cancel: die,
		total: total, limit: limit, grace: grace, abort: abort, source: source,
		closing: make(chan struct{}), dead: make(chan struct{}),
	}
}

// Send queues a message. It never waits; a peer that leaves too much unread is
// cut (ErrSlowReader). An error of type *wire.Error says that this message can
// not travel; the connection is then as good as before.
func (c *Conn) Send(m engine.Message) error {
	if bye, ok := m.(engine.Bye); ok {
		c.CloseAfter(bye.Code, bye.Message, time.Duration(bye.RetryAfterMillis)*time.Millisecond)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("sending a %T to %s: %w", m, c.RemoteAddr, ErrClosed)
	}
	event, err := c.encode(m)
	if err != nil {
		return err
	}
	if c.queued+len(event) > c.limit {
		c.finish(fmt.Errorf("%w: it left more unread than the %d bytes that may wait for it", ErrSlowReader, c.limit))
		c.kill()
		return fmt.Errorf("sending a %T to %s: %w", m, c.RemoteAddr, ErrSlowReader)
	}
	c.push(event)
	c.deliveries.sent(m)
	return nil
}

// encode turns a message into the next event. Under mu: numbers have to be in
// the order of the queue.
func (c *Conn) encode(m engine.Message) (outgoing, error) {
	if hello, ok := m.(engine.Hello); ok {
		c.epoch = hello.Epoch
		m = withOffer(hello, c.offer)
	}
	event, err := wire.Encode(m, wire.Meta{Source: c.source, Session: c.epoch, Seq: c.seq + 1})
	if err == nil {
		c.seq++
		if _, ok := m.(engine.Welcome); ok {
			c.welcomed.Store(lastWelcome.Add(1))
		}
	}
	return event, err
}

// push queues an event. Under mu.
func (c *Conn) push(event outgoing) {
	c.queue = append(c.queue, event)
	c.queued += len(event)
	c.startSending()
}

func (c *Conn) sent(size int) {
	c.mu.Lock()
	c.queued -= size
	c.mu.Unlock()
	for _, t := range []*Traffic{c.Traffic, c.total} {
		t.MessagesOut.Add(1)
		t.BytesOut.Add(uint64(size))
	}
}

// Queued returns how many bytes wait to be sent.
func (c *Conn) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queued
}

// Close says why, if the peer still listens, and ends the connection: as soon
// as the peer has ended its side, or a moment later. Only the first call counts.
// What is still queued is dropped, but at a shutdown, which is nobody's fault.
func (c *Conn) Close(code engine.Code, message string) { c.CloseAfter(code, message, 0) }

// CloseAfter is Close with a word about when the agent may come back. On an
// agent it is the agent itself that then waits.
func (c *Conn) CloseAfter(code engine.Code, message string, retry time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	event, err := c.encode(engine.Bye{Code: code, Message: message, RetryAfterMillis: retry.Milliseconds()})
	c.finish(&ByeError{Code: code, Message: message, RetryAfter: retry, Local: true})
	if code != engine.ShuttingDown {
		for _, dropped := range c.queue {
			c.queued -= len(dropped)
		}
		c.queue, c.extended = nil, maxExtended
	}
	if err == nil {
		c.push(event)
	}
	c.left = c.queued
	c.timer = time.AfterFunc(c.grace, c.expire)
}

// maxExtended is how often the grace of a shutdown is renewed, as long as the
// peer takes something of what is queued.
const maxExtended = 4

// expire ends the transport when a goodbye has had its time.
func (c *Conn) expire() {
	c.mu.Lock()
	if c.queued < c.left && c.extended < maxExtended && !c.ended {
		c.left = c.queued
		c.extended++
		c.timer.Reset(c.grace)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.kill()
}

// finish notes the reason and stops Send. Under mu.
func (c *Conn) finish(cause error) {
	if c.closed {
		return
	}
	c.closed, c.cause = true, cause
	close(c.closing)
	c.cancel(cause)
	c.startSending()
}

// fail notes that the transport is at its end.
func (c *Conn) fail(cause error) {
	c.mu.Lock()
	c.finish(cause)
	c.mu.Unlock()
}

// failSoon is for those who learn that the transport is broken before the
// reader does. The reader may still have the peer's goodbye to read, or may wait
// in Received, which Done will end.
func (c *Conn) failSoon(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil && !c.ended {
		c.timer = time.AfterFunc(c.grace, func() {
			c.fail(cause)
			c.kill()
		})
	}
}

// kill ends the transport at once.
func (c *Conn) kill() {
	c.deadOnce.Do(func() { close(c.dead) })
	c.abort()
}

// Done is closed as soon as the connection is closing: nothing more is sent,
// and nothing more of what arrives is delivered.
func (c *Conn) Done() <-chan struct{} { return c.closing }

// Cause returns why the connection is closing; nil before that.
func (c *Conn) Cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// Established says that a session was really opened on this connection, by
// both ends. The next dial then starts with short pauses again.
func (c *Conn) Established() { c.established.Store(true) }
