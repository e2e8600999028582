package redis

import (
	"bytes"
	"os"
	"time"
)

// What here happens in the loop's turns must not wait for anything: whatever might is left to the client's goroutine.

// plain reports whether the loop can read for the client: its requests take a lane, and nothing is to be remembered.
func (s *session) plain() bool {
	return s.server.loop != nil && s.socket != nil && s.own == nil && !s.private && !s.multi && s.lane != nil && s.lane.loop != nil &&
		s.calm >= s.server.settled && len(s.in.unread()) == 0 && !s.output.heavy.Load()
}

// lend leaves the client to the loop until it asks for something that needs care, or goes.
func (s *session) lend() error {
	if s.back == nil {
		s.back = make(chan error, 1)
	}
	s.calm = 0
	s.in.settle()
	s.silence = 0 // the deadline is set again after this
	_ = s.conn.SetReadDeadline(time.Time{})
	s.active.Store(time.Now().UnixNano())
	loop, idle := s.server.loop, s.server.cfg.Idle
	timer := time.NewTimer(idle)
	defer timer.Stop()
	number, ok := loop.join(s.socket, s)
	if !ok {
		return nil
	}
	for {
		select {
		case err := <-s.back:
			return err
		case <-s.gone:
			loop.leave(s.socket, number)
			return errGone
		case now := <-timer.C:
			silent := now.Sub(time.Unix(0, s.active.Load()))
			if silent >= idle {
				loop.leave(s.socket, number)
				return os.ErrDeadlineExceeded
			}
			timer.Reset(idle - silent)
		}
	}
}

// readable implements member.
func (s *session) readable(l *loop) {
	n, err := s.socket.poll(&s.in, 1)
	if err == nil && n == 0 {
		return
	}
	s.active.Store(l.now.UnixNano())
	if err == nil && s.pass(l) {
		s.in.settle()
		return
	}
	l.expel(s.socket)
	s.back <- err
}

// pass sends requests on their way that need no care; false: there is one that does, or no room. What was found to need
// none before it, and is not sent, is noted as it is by toLane.
func (s *session) pass(l *loop) bool {
	bound := s.limits()
	for {
		c, need, err := readCommand(s.in.unread(), s.args[:0], bound)
		if err != nil || need > bigBuffer {
			return false
		}
		if c.length == 0 {
			return s.post(l)
		}
		s.args = c.args
		if !carefree(c) {
			return false
		}
		if s.running == longestRun && !s.post(l) {
			return false
		}
		if s.running == 0 {
			s.runFrom = s.in.r
		}
		s.running++
		s.in.r += c.length
		if cap(s.args) > 1024 {
			s.args = nil
		}
	}
}

// carefree reports whether a request takes a lane whoever sends it, and is none of an agent's.
func carefree(c command) bool {
	if len(c.args) == 0 || c.length != len(c.raw) {
		return false
	}
	var room [16]byte
	rule := rules[string(upper(c.args[0], &room))]
	if rule.class != shared {
		return false
	}
	if rule.access == none {
		return true
	}
	for _, arg := range c.args[1:] {
		if bytes.HasPrefix(arg, appPrefix) {
			return false
		}
	}
	return true
}

// post is sendRun, if that need not wait.
func (s *session) post(l *loop) bool {
	if s.running == 0 {
		return true
	}
	ok := s.lane.hasRoom() && !s.output.heavy.Load()
	var seq uint64
	if ok {
		seq, ok = s.output.tryOpen(s.running, min(s.server.cfg.MaxPipeline, longestRun))
	}
	if !ok { // as if they had not been looked at: they may have to take another lane, or the own connection
		s.in.r, s.running = s.runFrom, 0
		return false
	}
	if !s.lane.add(s, seq, s.running, s.in.bytes[s.runFrom:s.in.r]) {
		s.output.fail(errBackendLost)
		return false
	}
	s.running = 0
	if !s.lane.marked {
		s.lane.marked = true
		l.lanes = append(l.lanes, s.lane)
	}
	return true
}

// join makes the loop read the replies.
func (l *lane) join(by *loop) bool {
	if is, ok := l.conn.(*socket); ok && by != nil {
		l.socket, l.loop = is, by
		if l.number, ok = by.join(is, l); ok {
			return true
		}
		l.loop = nil
	}
	return false
}

// readable implements member.
func (l *lane) readable(by *loop) {
	n, err := l.socket.poll(&l.replies.buf, l.replies.scan.need)
	if n > 0 {
		l.heard.Add(1)
		err = l.deliver()
	}
	if err != nil {
		by.expel(l.socket)
		l.end(true)
	}
}

// hasRoom reports whether add can take requests.
func (l *lane) hasRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.dead && len(l.out) <= laneRoom
}

// add queues requests, which push will write.
func (l *lane) add(to *session, seq uint64, count int, raw []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false
	}
	l.queue = append(l.queue, due{to: to, seq: seq, count: count})
	l.out = append(l.out, raw...)
	return true
}

// push writes what the socket takes, and leaves the rest to write.
func (l *lane) push() {
	l.marked = false
	l.mu.Lock()
	if l.busy || l.dead || len(l.out) == 0 {
		l.mu.Unlock() // who is busy will have it written
		return
	}
	l.busy = true
	out := l.out
	l.out, l.spare = l.spare, nil
	l.mu.Unlock()
	n, err := l.socket.put(out)
	if err != nil {
		l.close()
	}
	if err != nil || n == len(out) {
		l.rested(out)
		return
	}
	l.mu.Lock()
	l.rest = out[n:]
	l.mu.Unlock()
	poke(l.wake)
}
