package transport

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// stream is either end of a gRPC stream.
type stream interface {
	SendMsg(any) error
	RecvMsg(any) error
}

// run is the life of a connection at either end. The caller's goroutine reads;
// none sends any more when run returns. halfClose, if there is one, tells the
// peer that nothing more will come.
func (c *Conn) run(s stream, events Events, halfClose func()) {
	c.mu.Lock()
	c.out, c.atEnd = s, halfClose
	if len(c.queue) > 0 || c.closed {
		c.startSending()
	}
	c.mu.Unlock()
	events.Connected(c)
	c.fail(c.readAll(s, events))
	c.deadOnce.Do(func() { close(c.dead) })
	stuck := time.AfterFunc(c.grace, c.abort) // in a message that the peer does not take
	c.senders.Wait()                          // after fail none begins
	stuck.Stop()
	c.deliveries.end()
	c.mu.Lock()
	cause := c.cause
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	events.Disconnected(c, cause)
}

// startSending makes sure that somebody sends what is queued. At rest nobody
// does: a goroutine that waits costs as much memory as much else of a session,
// and thousands of sessions are at rest. Under mu.
func (c *Conn) startSending() {
	if c.out == nil || c.sending || c.sendClosed {
		return
	}
	c.sending = true
	c.senders.Go(c.sendQueued)
}

// sendQueued sends until the queue is empty. It fails only when the transport
// does.
func (c *Conn) sendQueued() {
	for {
		batch, last := c.take()
		if len(batch) == 0 {
			if last && c.atEnd != nil {
				c.atEnd()
			}
			return
		}
		if err := c.sendBatch(batch); err != nil {
			c.mu.Lock()
			c.sendClosed = true
			c.mu.Unlock()
			if !errors.Is(err, io.EOF) { // else it has ended, and the reader learns why
				c.failSoon(fmt.Errorf("sending to %s: %w", c.RemoteAddr, explainStatus(err)))
			} else if c.atEnd != nil {
				c.atEnd()
			}
			return
		}
	}
}

// take returns what is queued. If that is nothing, the one who sends is done;
// last: nothing will come after it.
func (c *Conn) take() (batch []outgoing, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, c.queue = c.queue, nil
	if len(batch) == 0 {
		c.sending = false
	}
	return batch, c.closed
}

// sendBatch sends some events. A connection that is dead counts as ended.
//
// A peer that takes nothing for a long time is cut, however little waits for it:
// it may answer pings forever.
func (c *Conn) sendBatch(batch []outgoing) error {
	stalled := time.AfterFunc(writeStallTimeout, c.cutStalled)
	defer stalled.Stop()
	for _, event := range batch {
		select {
		case <-c.dead:
			return io.EOF
		default:
		}
		stalled.Reset(writeStallTimeout)
		if err := c.out.SendMsg(event); err != nil {
			return err
		}
		c.sent(len(event))
	}
	return nil
}

// writeStallTimeout is how long a message may wait for the peer to take what was sent before
// it. A quarter of a megabyte gets through the slowest of links in that time.
const writeStallTimeout = 3 * time.Minute

// cutStalled cuts a peer that reads nothing.
func (c *Conn) cutStalled() {
	c.fail(fmt.Errorf("%w: it has taken nothing for %v", ErrSlowReader, writeStallTimeout))
	c.kill()
}

// readAll delivers what arrives until the stream ends, and returns why it did.
func (c *Conn) readAll(s stream, events Events) error {
	for {
		var in incoming
		if err := s.RecvMsg(&in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("receiving from %s: %w", c.RemoteAddr, explainStatus(err))
		}
		c.count(in)
		select {
		case <-c.closing:
			continue // until the peer has seen our goodbye
		default:
		}
		if in.err != nil {
			c.refuse(in.err)
			continue
		}
		c.learn(in.message)
		c.deliveries.received(in.message)
		switch m := in.message.(type) {
		case wire.Unknown: // a newer peer's; ours to ignore
		case engine.Open:
			if c.asked != nil {
				c.asked(m)
			} else {
				events.Received(c, m)
			}
		case engine.Bye:
			events.Received(c, m)
			return &ByeError{Code: m.Code, Message: m.Message, RetryAfter: time.Duration(m.RetryAfterMillis) * time.Millisecond}
		default:
			events.Received(c, m)
		}
	}
}

func (c *Conn) count(in incoming) {
	_, unknown := in.message.(wire.Unknown)
	for _, t := range []*Traffic{c.Traffic, c.total} {
		t.MessagesIn.Add(1)
		t.BytesIn.Add(uint64(in.size))
		if unknown {
			t.UnknownIn.Add(1)
		}
	}
}

// refuse ends the connection for a message that breaks the protocol.
func (c *Conn) refuse(err error) {
	code := engine.BadMessage
	if broken, ok := errors.AsType[*wire.Error](err); ok {
		code = broken.Code
	}
	c.Close(code, err.Error())
}

// learn picks up what the envelope of our own events has to say.
func (c *Conn) learn(m engine.Message) {
	switch m := m.(type) {
	case engine.Hello:
		c.mu.Lock()
		c.epoch = m.Epoch
		c.mu.Unlock()
		if c.tunnels != nil {
			c.tunnels.recordOffer(m)
		}
	case engine.Welcome:
		if m.Agent != "" {
			c.mu.Lock()
			c.source = agentSource(m.Agent)
			c.mu.Unlock()
		}
	}
}

func agentSource(name string) string {
	if name == "" {
		return "agent"
	}
	return "agent/" + name
}

// explainStatus takes gRPC's decoration off an error and says what it means.
func explainStatus(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch st.Code() {
	case codes.ResourceExhausted:
		if strings.Contains(st.Message(), "larger than max") {
			return fmt.Errorf("a message exceeds the limit of %d bytes: %s", wire.MaxEvent, st.Message())
		}
	case codes.Canceled:
		return fmt.Errorf("the stream was cancelled: %s", st.Message())
	case codes.Unavailable:
		if strings.Contains(st.Message(), "too_many_pings") {
			return errors.New("the principal finds that this agent asks too often whether it is alive: raise --keep-alive-ping-interval here, or lower --keepalive-min-interval there")
		}
		return fmt.Errorf("the connection broke: %s", st.Message())
	}
	return fmt.Errorf("%s: %s", st.Code(), st.Message())
}
