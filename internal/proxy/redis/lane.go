package redis

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"
)

// lane is a connection to the hub's Redis that many clients share. Requests of all of them are written together and read
// by Redis together; replies come in the order of the requests, so a queue says whose each is.
type lane struct {
	conn    net.Conn
	refusal string // what Redis answers to this identity when it asks for a key of an Application; empty: it may
	wake    chan struct{}
	done    chan struct{}

	mu    sync.Mutex
	room  sync.Cond
	out   []byte
	queue []due
	first int // of queue
	dead  bool
}

// due is a reply that a client waits for.
type due struct {
	to  *session
	seq uint64
}

const laneRoom = 4 << 20 // bytes that may wait to be written

// probe is a key like those of agents' Applications, which nobody has.
const probe = "app|resources-tree|argocd-agent_probe|0"

// openLane connects with a client's identity.
func openLane(ctx context.Context, hub *Endpoint, as state, max limits, tasks *sync.WaitGroup) (*lane, error) {
	conn, err := hub.connectAs(ctx, as)
	if err != nil {
		return nil, err
	}
	l := &lane{conn: conn, wake: make(chan struct{}, 1), done: make(chan struct{})}
	l.room.L = &l.mu
	if err := l.ask(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	tasks.Go(l.write)
	tasks.Go(func() { l.read(max) })
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

// send queues a request; false: the lane is closed and the request was not sent.
func (l *lane) send(to *session, seq uint64, raw []byte) bool {
	l.mu.Lock()
	for len(l.out) > laneRoom && !l.dead {
		l.room.Wait()
	}
	if l.dead {
		l.mu.Unlock()
		return false
	}
	idle := len(l.out) == 0
	l.out = append(l.out, raw...)
	l.queue = append(l.queue, due{to: to, seq: seq})
	l.mu.Unlock()
	if idle {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return true
}

func (l *lane) write() {
	var out []byte
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		runtime.Gosched() // other clients whose requests have arrived put theirs in, and all leave in one write
		l.mu.Lock()
		out, l.out = l.out, out[:0]
		l.room.Broadcast()
		l.mu.Unlock()
		if len(out) == 0 {
			continue
		}
		if _, err := l.conn.Write(out); err != nil {
			_ = l.conn.Close() // the reader tells everybody
			return
		}
		if cap(out) > laneRoom {
			out = nil
		}
	}
}

func (l *lane) read(max limits) {
	replies := newReader(l.conn, max)
	var touched []*session
	for {
		reply, err := replies.next()
		for err == nil && reply != nil {
			d, ok := l.pop()
			if !ok {
				err = protocolError("a reply to nothing")
				break
			}
			d.to.output.complete(d.seq, reply)
			if last := len(touched) - 1; last < 0 || touched[last] != d.to {
				touched = append(touched, d.to)
			}
			reply, err = replies.buffered()
		}
		for i, s := range touched {
			s.output.flush()
			touched[i] = nil
		}
		touched = touched[:0]
		if err != nil {
			l.close()
			return
		}
	}
}

func (l *lane) pop() (due, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == len(l.queue) {
		return due{}, false
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
	return d, true
}

var errBackendLost = errors.New("the connection to Redis was lost")

// close ends the lane. Clients that wait for a reply are cut, as they would be by Redis itself.
func (l *lane) close() {
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
	_ = l.conn.Close()
	for _, d := range lost {
		d.to.output.fail(errBackendLost)
	}
}

func (l *lane) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.dead
}
