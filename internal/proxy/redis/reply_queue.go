package redis

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// replyQueue writes the replies to one client in the order of its requests. Callers that complete a reply do not wait for
// a slow client: a goroutine writes, and exists only while there is something to write.
type replyQueue struct {
	conn   net.Conn
	cfg    *Config
	tasks  *sync.WaitGroup
	cancel context.CancelCauseFunc // called when the client's connection ends

	mu       sync.Mutex
	changed  sync.Cond
	slots    fifo[slot] // of requests without a written reply, oldest first
	first    uint64     // number of the oldest slot
	held     int        // bytes of complete replies behind an incomplete one
	out      []byte     // to be written
	spare    []byte     // used alternately with out
	inFlight int        // bytes that the writing goroutine has taken from out
	writing  bool
	err      error // set once, when the connection ends
}

// slot holds the reply to one request until the replies before it are complete.
type slot struct {
	reply []byte
	done  bool
}

func (q *replyQueue) init(conn net.Conn, cfg *Config, tasks *sync.WaitGroup, cancel context.CancelCauseFunc) {
	q.conn, q.cfg, q.tasks, q.cancel = conn, cfg, tasks, cancel
	q.changed.L = &q.mu
}

// waitFor waits until a condition is true, and reports whether the client is still connected. The caller must hold q.mu.
func (q *replyQueue) waitFor(condition func() bool) bool {
	for q.err == nil && !condition() {
		q.changed.Wait()
	}
	return q.err == nil
}

// unread returns the number of bytes that the client has not taken yet. The caller must hold q.mu.
func (q *replyQueue) unread() int { return len(q.out) + q.inFlight + q.held }

func (q *replyQueue) hasRoom() bool {
	return q.slots.len() < q.cfg.MaxPipeline && q.unread() <= q.cfg.MaxOutput
}

// reserve takes the next place in the order of replies. If there is no room, it calls flush and waits. It returns false if
// the client is gone.
func (q *replyQueue) reserve(flush func()) (number uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil && !q.hasRoom() {
		q.mu.Unlock()
		flush()
		q.mu.Lock()
		q.waitFor(q.hasRoom)
	}
	q.slots.push(slot{})
	return q.first + uint64(q.slots.len()) - 1, q.err == nil
}

// complete sets the reply to a request. It copies the reply.
func (q *replyQueue) complete(number uint64, reply []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return
	}
	if number != q.first {
		*q.slots.at(int(number - q.first)) = slot{reply: bytes.Clone(reply), done: true}
		q.held += len(reply)
		return
	}
	q.out = append(q.out, reply...)
	q.slots.pop()
	for q.first++; q.slots.len() > 0 && q.slots.at(0).done; q.first++ {
		held := q.slots.pop().reply
		q.out = append(q.out, held...)
		q.held -= len(held)
	}
	q.changed.Broadcast()
}

// push adds a published message. A client that does not read its messages is disconnected.
func (q *replyQueue) push(message []byte) {
	q.mu.Lock()
	slow := q.err == nil && q.unread()+len(message) > 2*q.cfg.MaxOutput
	if q.err == nil && !slow {
		q.out = append(q.out, message...)
	}
	q.mu.Unlock()
	if slow {
		q.fail(errSlowSubscriber)
	}
}

// flush starts to write.
func (q *replyQueue) flush() {
	if q.startWriting() {
		q.tasks.Go(func() { q.write(q.cfg.WriteTimeout) })
	}
}

// slowClient is how long flushHere waits for the client.
const slowClient = 10 * time.Millisecond

// flushHere writes on the goroutine of the caller. It saves starting a goroutine, unless the client is slow.
func (q *replyQueue) flushHere() {
	if q.startWriting() && !q.write(slowClient) {
		q.tasks.Go(func() { q.write(q.cfg.WriteTimeout) })
	}
}

func (q *replyQueue) startWriting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.writing || len(q.out) == 0 || q.err != nil {
		return false
	}
	q.writing = true
	return true
}

// write writes until there is nothing to write. It returns false if the client took no bytes for slowClient.
func (q *replyQueue) write(timeout time.Duration) bool {
	to := timeoutWriter{q.conn, timeout}
	for {
		q.mu.Lock()
		b := q.out
		q.out, q.spare, q.inFlight = q.spare[:0], nil, len(b)
		q.writing = len(b) > 0 && q.err == nil
		writing := q.writing
		q.changed.Broadcast()
		q.mu.Unlock()
		if !writing {
			return true
		}
		n, err := to.Write(b)
		if timeout == slowClient && errors.Is(err, os.ErrDeadlineExceeded) {
			q.mu.Lock()
			q.out, q.inFlight = append(b[n:], q.out...), 0
			q.mu.Unlock()
			return false
		}
		if err != nil {
			q.fail(errGone)
		}
		if cap(b) <= keepBuffer {
			q.mu.Lock()
			q.spare = b
			q.mu.Unlock()
		}
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

// waitRoom waits while the client leaves too many bytes unread. Held replies do not count if the next reply is for the
// oldest slot, because they wait for it.
func (q *replyQueue) waitRoom(next uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waitFor(func() bool {
		return q.unread() <= q.cfg.MaxOutput || next <= q.first && q.unread()-q.held <= q.cfg.MaxOutput
	})
}

// waitComplete waits until every request has its reply, and reports whether the client is still connected.
func (q *replyQueue) waitComplete() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waitFor(func() bool { return q.slots.len() == 0 })
}

// waitWritten waits until all complete replies are written.
func (q *replyQueue) waitWritten() {
	q.flush()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waitFor(func() bool { return !q.writing && len(q.out) == 0 })
}

// fail ends the client's connection. The first error is kept.
func (q *replyQueue) fail(err error) {
	q.mu.Lock()
	if q.err == nil {
		q.err = err
		_ = q.conn.Close()
	}
	q.changed.Broadcast()
	q.mu.Unlock()
	q.cancel(err)
}
