package redis

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// lane is a connection to the hub's Redis that many clients share. Requests of all of them are written together and read
// by Redis together; replies come in the order of the requests, so a queue says whose each is.
type lane struct {
	conn    net.Conn
	refusal string // what Redis answers to this identity when it asks for a key of an Application; empty: it may
	wake    chan struct{}
	done    chan struct{}
	answer  time.Duration // a request without any answer for so long ends the lane
	heard   atomic.Uint64 // counts pieces of answers
	partly  atomic.Bool   // some of a client's answers have come, and more are due

	loop   *loop   // reads from it; nil: a goroutine does
	socket *socket // the same as conn, if there is a loop
	number uint64  // in the loop
	marked bool    // to be written at the end of the loop's round

	// Of who reads:
	replies *reader
	touched []*session
	now     due // whose replies are being read

	mu    sync.Mutex
	room  sync.Cond
	out   []byte // waits to be written
	spare []byte // takes its turn with out
	rest  []byte // of what the loop wrote as the one who is busy, for write
	queue []due
	first int  // of queue
	busy  bool // somebody writes
	dead  bool
}

// due are replies that a client waits for.
type due struct {
	to    *session
	seq   uint64
	count int
}

const (
	laneRoom   = 4 << 20   // bytes that may wait to be written
	laneBuffer = 256 << 10 // bytes of replies that are read at a time
)

// probe is a key like those of agents' Applications, which nobody has.
const probe = "app|resources-tree|argocd-agent_probe|0"

// openLane connects with a client's identity.
func openLane(ctx context.Context, all *identities, as state) (*lane, error) {
	conn, err := all.hub.connectAs(ctx, as)
	if err != nil {
		return nil, err
	}
	l := &lane{conn: quick(conn), answer: all.answer, wake: make(chan struct{}, 1), done: make(chan struct{})}
	l.room.L = &l.mu
	if err := l.ask(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	l.replies = newReader(counted{l.conn, &l.heard}, all.max)
	l.replies.buf.keep = laneBuffer
	if !l.join(all.loop) {
		all.tasks.Go(l.receive)
	}
	all.tasks.Go(l.write)
	return l, nil
}

// ask finds out whether this identity may read what agents have.
func (l *lane) ask() error {
	if err := l.conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if _, err := l.conn.Write(appendCommand(nil, "GET", probe)); err != nil {
		return err
	}
	reply, err := newReader(l.conn, limits{bulk: maxLine, elements: 16, total: maxLine}).next()
	if err != nil {
		return err
	}
	if reply[0] == '-' {
		l.refusal = strings.TrimSpace(string(reply[1:]))
	}
	return l.conn.SetDeadline(time.Time{})
}

// send queues requests; false: the lane is closed and they were not sent.
func (l *lane) send(to *session, seq uint64, count int, raw []byte) bool {
	l.mu.Lock()
	for !l.dead && (len(l.out) > laneRoom || l.busy && len(raw) >= bigBuffer) {
		l.room.Wait()
	}
	if l.dead {
		l.mu.Unlock()
		return false
	}
	alone := l.first == len(l.queue) // nobody to share a write with
	l.queue = append(l.queue, due{to: to, seq: seq, count: count})
	if !l.busy && (alone || len(raw) >= bigBuffer) {
		l.put(raw)
		return true
	}
	first := len(l.out) == 0
	l.out = append(l.out, raw...)
	l.mu.Unlock()
	if first {
		poke(l.wake)
	}
	return true
}

// put writes what waits, and then raw, from where it is: copying much would cost more than a write. l.mu is held, nobody is
// busy, and put gives up the lock.
func (l *lane) put(raw []byte) {
	l.busy = true
	out := l.out
	l.out, l.spare = l.spare, nil
	l.mu.Unlock()
	for _, b := range [][]byte{out, raw} {
		if len(b) == 0 {
			continue
		}
		if _, err := l.conn.Write(b); err != nil {
			l.close()
			break
		}
	}
	l.rested(out)
}

// rested says that nobody is busy any more.
func (l *lane) rested(out []byte) {
	if cap(out) > laneRoom {
		out = nil
	}
	l.mu.Lock()
	l.spare = out[:0]
	l.busy = false
	more := len(l.out) > 0
	l.room.Broadcast()
	l.mu.Unlock()
	if more {
		poke(l.wake)
	}
}

// write sends what several clients have put together, and looks whether Redis is still there.
func (l *lane) write() {
	watch := time.NewTicker(l.answer / 4)
	defer watch.Stop()
	var seen uint64
	since := time.Now()
	for {
		select {
		case <-l.wake:
		case now := <-watch.C:
			if heard := l.heard.Load(); heard != seen || !l.waits() {
				seen, since = heard, now
			} else if now.Sub(since) > l.answer {
				l.close()
			}
			continue
		case <-l.done:
			return
		}
		runtime.Gosched() // other clients whose requests have arrived put theirs in, and all leave in one write
		l.mu.Lock()
		switch rest := l.rest; {
		case rest != nil:
			l.rest = nil
			l.mu.Unlock()
			if _, err := l.conn.Write(rest); err != nil {
				l.close()
			}
			l.rested(rest)
		case l.busy || len(l.out) == 0:
			l.mu.Unlock() // who is busy wakes us
		default:
			l.put(nil)
		}
	}
}

// receive reads replies, where no loop does.
func (l *lane) receive() {
	for {
		if err := l.replies.buf.fill(l.replies.from, l.replies.scan.need); err != nil {
			break
		}
		if err := l.deliver(); err != nil {
			break
		}
	}
	l.close()
	l.lost()
}

// deliver passes on the replies that were read.
func (l *lane) deliver() error {
	buf := &l.replies.buf
	from, got := buf.r, 0
	pass := func() {
		if got == 0 {
			return
		}
		l.now.to.output.complete(l.now.seq, got, buf.bytes[from:buf.r])
		l.touched = append(l.touched, l.now.to)
		l.now.seq, l.now.count = l.now.seq+uint64(got), l.now.count-got
		from, got = buf.r, 0
	}
	reply, err := l.replies.buffered()
	for err == nil && reply != nil {
		if l.now.count == 0 {
			l.now = l.pop()
		}
		if l.now.count == 0 {
			err = protocolError("a reply to nothing")
			break
		}
		got++
		if got == l.now.count {
			pass()
		}
		reply, err = l.replies.buffered()
	}
	pass()
	l.partly.Store(l.now.count > 0)
	for i, s := range l.touched {
		s.output.flush()
		l.touched[i] = nil
	}
	l.touched = l.touched[:0]
	return err
}

// lost cuts the client some of whose replies have come. Who reads calls it when nothing is read any more.
func (l *lane) lost() {
	if l.now.count > 0 {
		l.now.to.output.fail(errBackendLost)
	}
}

// pop takes the oldest of those who wait.
func (l *lane) pop() due {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == len(l.queue) {
		return due{}
	}
	d := l.queue[l.first]
	l.queue[l.first] = due{}
	l.first++
	if l.first == len(l.queue) {
		l.queue, l.first = l.queue[:0], 0
	} else if l.first > 4096 {
		l.queue = append(l.queue[:0], l.queue[l.first:]...)
		l.first = 0
	}
	return d
}

var errBackendLost = errors.New("the connection to Redis was lost")

// close ends the lane. Clients that wait for a reply are cut, as they would be by Redis itself.
func (l *lane) close() { l.end(false) }

// end is close, in the lane's turn in the loop, or not.
func (l *lane) end(inTurn bool) {
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return
	}
	l.dead = true
	lost := l.queue[l.first:]
	l.queue, l.first = nil, 0
	l.room.Broadcast()
	l.mu.Unlock()
	close(l.done)
	if l.loop != nil {
		if !inTurn {
			l.loop.leave(l.socket, l.number)
		}
		l.lost()
	}
	_ = l.conn.Close()
	for _, d := range lost {
		d.to.output.fail(errBackendLost)
	}
}

// waits reports whether Redis owes an answer.
func (l *lane) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first < len(l.queue) || l.partly.Load()
}

// counted counts what is read from it.
type counted struct {
	net.Conn
	reads *atomic.Uint64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.reads.Add(1)
	return n, err
}

func (l *lane) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.dead
}
