package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// run runs a connection on either side until its session ends. It reads in the caller's goroutine. When it returns, no
// goroutine sends.
func (c *Conn) run(events Events) {
	stop := context.AfterFunc(c.session.Context(), c.connectionBroke)
	defer stop()
	c.mu.Lock()
	c.running = true
	if len(c.queue) > 0 || c.closed {
		c.startSending()
	}
	c.mu.Unlock()
	events.Connected(c)
	c.fail(c.readAll(events))
	c.abortOnce.Do(func() { close(c.aborted) })
	stuck := time.AfterFunc(c.grace, c.session.Abort) // while a message is sent that the peer does not read
	c.senders.Wait()                                  // after fail none begins
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

func (c *Conn) connectionBroke() {
	err := fmt.Errorf("the connection to %s broke", c.RemoteAddr)
	if cause := context.Cause(c.session.Context()); !errors.Is(cause, context.Canceled) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	c.failSoon(err)
}

// startSending starts a goroutine that sends the queue, unless there is one. An idle session has none, because
// thousands of sessions are idle and a goroutine costs memory. The caller must hold mu.
func (c *Conn) startSending() {
	if !c.running || c.sending || c.sendStopped {
		return
	}
	c.sending = true
	c.senders.Go(c.sendQueued)
}

// sendQueued sends until the queue is empty, or the session ends.
func (c *Conn) sendQueued() {
	for {
		batch, last := c.take()
		if len(batch) == 0 {
			if last {
				c.session.CloseSend()
			}
			return
		}
		if err := c.sendBatch(batch); err != nil {
			c.mu.Lock()
			c.sendStopped = true
			c.mu.Unlock()
			if errors.Is(err, io.EOF) { // the reader gets the reason
				c.session.CloseSend()
			} else {
				c.failSoon(fmt.Errorf("sending to %s: %w", c.RemoteAddr, err))
			}
			return
		}
	}
}

// take returns the queue. If it is empty, the goroutine that sends must return. last reports that nothing follows.
func (c *Conn) take() (batch [][]byte, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, c.queue = c.queue, nil
	if len(batch) == 0 {
		c.sending = false
	}
	return batch, c.closed
}

// sendBatch sends events. It returns io.EOF if the connection was aborted. A peer that reads nothing for a long time is
// disconnected, even if it answers pings.
func (c *Conn) sendBatch(batch [][]byte) error {
	stalled := time.AfterFunc(writeStallTimeout, c.cutStalled)
	defer stalled.Stop()
	for _, event := range batch {
		select {
		case <-c.aborted:
			return io.EOF
		default:
		}
		stalled.Reset(writeStallTimeout)
		if err := c.session.Send(event); err != nil {
			return err
		}
		c.sent(len(event))
	}
	return nil
}

// writeStallTimeout is the time for a peer to read enough that the next message can be sent: 256 KiB on the slowest
// networks.
const writeStallTimeout = 3 * time.Minute

// cutStalled disconnects a peer that reads nothing.
func (c *Conn) cutStalled() {
	c.fail(fmt.Errorf("%w: it has read nothing for %v", ErrSlowReader, writeStallTimeout))
	c.abort()
}

// incoming is a decoded event. An invalid one does not end the session, so that the reader can send a Bye.
type incoming struct {
	message engine.Message
	size    int
	err     error
}

func (in *incoming) decode(event []byte) {
	in.size = len(event)
	in.message, _, in.err = wire.Decode(event)
}

// readAll delivers messages until the session ends, and returns why it did.
func (c *Conn) readAll(events Events) error {
	for {
		var in incoming
		if err := c.session.Receive(in.decode); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("receiving from %s: %w", c.RemoteAddr, err)
		}
		c.count(in)
		select {
		case <-c.ctx.Done():
			continue // until the peer has received our Bye
		default:
		}
		if in.err != nil {
			c.refuse(in.err)
			continue
		}
		c.recordSession(in.message)
		c.deliveries.received(in.message)
		switch m := in.message.(type) {
		case wire.Unknown: // from a newer peer
		case engine.Open:
			if c.handleOpen != nil {
				c.handleOpen(m)
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

// refuse ends the connection because of an invalid message.
func (c *Conn) refuse(err error) {
	code := engine.BadMessage
	if broken, ok := errors.AsType[*wire.Error](err); ok {
		code = broken.Code
	}
	c.Close(code, err.Error())
}

// recordSession records what the envelopes of our own events need, and the targets of an agent.
func (c *Conn) recordSession(m engine.Message) {
	switch m := m.(type) {
	case engine.Hello:
		c.greeted.Store(true)
		c.mu.Lock()
		c.epoch = m.Epoch
		c.mu.Unlock()
		if c.tunnels != nil {
			c.tunnels.RecordOffer(m.Capabilities)
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
