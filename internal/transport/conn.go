package transport

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// Conn is the connection of one session. Its methods may be called concurrently, and none of them blocks.
type Conn struct {
	ID          uint64 // unique in the process
	Agent       string // on an agent: its configured name
	Address     string // on an agent: of the hub, as configured
	RemoteAddr  string
	Fingerprint string    // of the peer's certificate; empty if a service mesh authenticates it
	NotAfter    time.Time // expiry of the certificate; zero if there is none
	Since       time.Time
	Traffic     *Traffic

	// Steps trace how the session begins. The component that knows the next or last step adds it. They end with the
	// connection at the latest. If nil, nothing is traced.
	Steps      *trace.Steps
	deliveries *deliveries

	session Session
	total   *Traffic
	limit   int           // bytes in the queue
	grace   time.Duration // from Close to the end, at most
	aborted chan struct{} // closed when not even the queue is sent

	ctx    context.Context // ends when the connection is closing
	cancel context.CancelCauseFunc

	handleOpen func(engine.Open) // on an agent: handles the hub's requests for tunnels
	offer      string            // on an agent: capability of the Hello that lists its targets
	tunnels    *tunnel.Pool      // on the hub

	established  atomic.Bool
	greeted      atomic.Bool   // on the hub: a Hello was received
	welcomeOrder atomic.Uint64 // grows with each Welcome that is sent; 0 before it

	mu          sync.Mutex
	source      string
	epoch       engine.Epoch
	seq         uint64
	queue       [][]byte
	queued      int  // bytes in the queue or being sent
	running     bool // run has begun
	sending     bool // a goroutine sends the queue
	sendStopped bool // no goroutine may begin to send
	senders     sync.WaitGroup
	cause       error // why it ended; the first one counts
	closed      bool  // no more is sent or delivered
	ended       bool  // no goroutine reads or sends any longer
	abortOnce   sync.Once
	timer       *time.Timer
	extensions  int // of the grace period
	queuedThen  int // when the grace period was last extended
}

var lastID, lastWelcome atomic.Uint64

func newConn(s Session, source string, total *Traffic, limit int, now time.Time) *Conn {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Conn{
		ID: lastID.Add(1), RemoteAddr: s.RemoteAddr(), Since: now, Traffic: s.Traffic(), session: s, ctx: ctx, cancel: cancel,
		total: total, limit: limit, grace: closeGrace, source: source, aborted: make(chan struct{}),
	}
}

// Send queues a message. If the peer leaves too much unread, Send ends the connection and returns ErrSlowReader. If the
// message cannot be sent, Send returns a *wire.Error and the connection stays open.
func (c *Conn) Send(m engine.Message) error {
	if bye, ok := m.(engine.Bye); ok {
		c.closeWith(bye)
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
		c.finish(fmt.Errorf("%w: more than %d bytes wait for it", ErrSlowReader, c.limit))
		c.abort()
		return fmt.Errorf("sending a %T to %s: %w", m, c.RemoteAddr, ErrSlowReader)
	}
	c.push(event)
	c.deliveries.sent(m)
	return nil
}

// encode returns the next event. The caller must hold mu, so that sequence numbers have the order of the queue.
func (c *Conn) encode(m engine.Message) ([]byte, error) {
	if hello, ok := m.(engine.Hello); ok {
		c.epoch = hello.Epoch
		if c.offer != "" {
			hello.Capabilities = append(slices.Clip(hello.Capabilities), c.offer)
		}
		m = hello
	}
	event, err := wire.Encode(m, wire.Meta{Source: c.source, Session: c.epoch, Seq: c.seq + 1})
	if err == nil {
		c.seq++
		if _, ok := m.(engine.Welcome); ok {
			c.welcomeOrder.Store(lastWelcome.Add(1))
		}
	}
	return event, err
}

// push queues an event. The caller must hold mu.
func (c *Conn) push(event []byte) {
	c.queue = append(c.queue, event)
	c.queued += len(event)
	c.startSending()
}

func (c *Conn) sent(size int) {
	for _, t := range []*Traffic{c.Traffic, c.total} {
		t.MessagesOut.Add(1)
		t.BytesOut.Add(uint64(size))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued -= size
}

// Queued returns the number of bytes that wait to be sent.
func (c *Conn) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queued
}

// Close sends the reason to the peer and ends the connection when the peer has ended its side, or after a grace period.
// Only the first call counts. Queued messages are dropped, except at a shutdown or if the agent moves.
func (c *Conn) Close(code engine.Code, message string) { c.CloseAfter(code, message, 0) }

// CloseAfter is Close with a pause after which the agent may return. On an agent, the agent itself waits.
func (c *Conn) CloseAfter(code engine.Code, message string, retry time.Duration) {
	c.closeWith(engine.Bye{Code: code, Message: message, RetryAfterMillis: retry.Milliseconds()})
}

func (c *Conn) closeWith(bye engine.Bye) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	event, err := c.encode(bye)
	c.finish(&ByeError{Code: bye.Code, Message: bye.Message, RetryAfter: time.Duration(bye.RetryAfterMillis) * time.Millisecond, Local: true})
	if bye.Code != engine.ShuttingDown && bye.Code != engine.Reconnect {
		for _, dropped := range c.queue {
			c.queued -= len(dropped)
		}
		c.queue, c.extensions = nil, maxExtensions
	}
	if err == nil {
		c.push(event)
	}
	c.queuedThen = c.queued
	c.timer = time.AfterFunc(c.grace, c.expire)
}

const (
	// closeGrace is the time for the peer to receive a Bye.
	closeGrace = time.Second

	// maxExtensions is how often the grace period of a shutdown is extended while the peer receives queued messages.
	maxExtensions = 4
)

// expire ends the session after the grace period.
func (c *Conn) expire() {
	c.mu.Lock()
	if c.queued < c.queuedThen && c.extensions < maxExtensions && !c.ended {
		c.queuedThen = c.queued
		c.extensions++
		c.timer.Reset(c.grace)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.abort()
}

// finish records the reason and stops Send. The caller must hold mu.
func (c *Conn) finish(cause error) {
	if c.closed {
		return
	}
	c.closed, c.cause = true, cause
	c.cancel(cause)
	c.startSending()
}

// fail records that the session has ended.
func (c *Conn) fail(cause error) {
	c.mu.Lock()
	c.finish(cause)
	c.mu.Unlock()
}

// failSoon ends the session after the grace period, because the connection broke. Until then, the reader may receive
// the peer's Bye. It may also block in Received, which Done ends.
func (c *Conn) failSoon(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil && !c.ended {
		c.timer = time.AfterFunc(c.grace, func() {
			c.fail(cause)
			c.abort()
		})
	}
}

// abort ends the session at once.
func (c *Conn) abort() {
	c.abortOnce.Do(func() { close(c.aborted) })
	c.session.Abort()
}

// Done is closed when the connection is closing. Nothing more is sent or delivered.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Context ends when the connection is closing.
func (c *Conn) Context() context.Context { return c.ctx }

// Cause returns why the connection is closing, or nil before that.
func (c *Conn) Cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// Established records that both sides have begun the session. The next dial then starts with short pauses.
func (c *Conn) Established() { c.established.Store(true) }

// stepsEnd ends the trace with the connection, unless it has ended before.
func (c *Conn) stepsEnd() {
	if c.Steps == nil {
		return
	}
	why := "the connection ended before the session began"
	if err := c.Cause(); err != nil {
		why = err.Error()
	}
	c.Steps.Fail(why)
}
