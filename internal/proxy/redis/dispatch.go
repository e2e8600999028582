package redis

import (
	"context"
	"strconv"
)

// dispatch sends one request on its way. An error ends the session.
func (s *session) dispatch(ctx context.Context, c command) error {
	var room [16]byte
	name := upper(c.args[0], &room)
	rule := rules[string(name)]
	if s.multi {
		if string(name) == "EXEC" || string(name) == "DISCARD" {
			s.multi = false
		}
		if rule.class != reset && rule.class != quit && rule.class != refused {
			return s.toOwn(ctx, c, 0)
		}
	}
	if rule.access != none && len(c.args) > 1 {
		if handled, err := s.forAgents(ctx, c, rule.access); handled || err != nil {
			return err
		}
	}
	switch rule.class {
	case shared:
		s.private = s.private || s.output.heavy.Load()
		if !s.private {
			return s.toLane(ctx, c)
		}
		return s.toOwn(ctx, c, 0)
	case handshake:
		return s.handshake(ctx, c, string(name))
	case cosmetic:
		return s.client(ctx, c)
	case subscribe:
		return s.subscribe(ctx, c, string(name))
	case reset:
		return s.reset(ctx, c)
	case quit:
		s.drain()
		s.answer([]byte("+OK\r\n"))
		return errQuit
	case refused:
		s.fails("ERR " + string(name) + " is not possible through the proxy of argocd-agent")
		return errQuit
	case private:
	}
	if string(name) == "MULTI" {
		s.multi = true
	}
	s.private = true
	return s.toOwn(ctx, c, 0)
}

// toLane sends a request over a connection that is shared.
func (s *session) toLane(ctx context.Context, c command) error {
	if s.own != nil { // what was said on it is known and can be repeated: nothing is lost with it
		if !s.drain() {
			return errGone
		}
		s.own.close()
		s.own = nil
	}
	if c.length == len(c.raw) && s.running > 0 && s.running < longestRun {
		s.running++
		return nil
	}
	if !s.sendRun() {
		return errBackendLost
	}
	l, err := s.sharedLane(ctx)
	if err != nil {
		return s.unreachable(err)
	}
	if c.length == len(c.raw) { // as it came, so what follows it in the buffer can go along
		s.running, s.runFrom = 1, s.in.r
		return nil
	}
	seq, ok := s.place()
	if !ok {
		return errGone
	}
	if !l.send(s, seq, 1, c.raw) {
		return errBackendLost
	}
	return nil
}

// longestRun is how many requests of a client are on a lane at a time: enough that none is slower for it, and few enough
// that others do not wait long if their replies turn out to be large.
const longestRun = 64

// sendRun sends the requests that lie in the buffer before the one at hand.
func (s *session) sendRun() bool {
	if s.running == 0 {
		return true
	}
	count := s.running
	s.running = 0
	seq, ok := s.output.open(count, min(s.server.cfg.MaxPipeline, longestRun))
	return ok && s.lane.send(s, seq, count, s.in.bytes[s.runFrom:s.in.r])
}

// toOwn sends a request over the client's own connection. It is written by flush.
func (s *session) toOwn(ctx context.Context, c command, messages int) error {
	if s.own == nil {
		if !s.drain() {
			return errGone
		}
		o, err := openOwn(ctx, s)
		if err != nil {
			return s.unreachable(err)
		}
		s.own = o
		s.backend.Store(o)
		if s.output.failure() != nil {
			return errGone
		}
	}
	seq, ok := s.place()
	if !ok {
		return errGone
	}
	s.own.send(seq, messages, c.raw)
	return nil
}

// exchange sends a request after everything before it is answered, and returns the reply instead of passing it on.
func (s *session) exchange(send func() error) ([]byte, error) {
	if !s.drain() {
		return nil, errGone
	}
	s.output.hide(s.output.tail)
	if err := send(); err != nil {
		return nil, err
	}
	if !s.drainSoon() {
		return nil, errGone
	}
	return s.output.kept, nil
}

// unreachable tells the client, and ends with it: its connection is as good as Redis's.
func (s *session) unreachable(err error) error {
	s.output.drain()
	s.output.show()
	s.fails("ERR argocd-agent: " + err.Error())
	s.server.cfg.Log.Warn("The hub's Redis does not take a connection", "error", err)
	return errQuit
}

// handshake lets Redis decide about HELLO, AUTH and SELECT, and follows what it decided.
func (s *session) handshake(ctx context.Context, c command, name string) error {
	reply, err := s.exchange(func() error { return s.toOwn(ctx, c, 0) })
	if err != nil {
		return err
	}
	if len(reply) > 0 && reply[0] != '-' {
		s.become(after(s.is, name, c.args))
	}
	s.answer(reply)
	return nil
}

// after is the state that an accepted request leads to.
func after(is state, name string, args [][]byte) state {
	if len(args) < 2 {
		return is
	}
	switch name {
	case "SELECT":
		if db, err := strconv.Atoi(string(args[1])); err == nil {
			is.db = db
		}
	case "AUTH":
		is.as, is.known = Credentials{Password: string(args[1])}, true
		if len(args) > 2 {
			is.as = Credentials{Username: string(args[1]), Password: string(args[2])}
		}
	case "HELLO":
		if proto, err := strconv.Atoi(string(args[1])); err == nil {
			is.proto = proto
		}
		for i := 2; i+2 < len(args); i++ {
			if isWord(args[i], "AUTH") {
				is.as, is.known = Credentials{Username: string(args[i+1]), Password: string(args[i+2])}, true
			}
			if isWord(args[i], "AUTH") || isWord(args[i], "SETNAME") {
				i++
			}
		}
	}
	return is
}

// client handles CLIENT, of which some parts are for show, and one would leave requests without replies.
func (s *session) client(ctx context.Context, c command) error {
	if len(c.args) > 1 {
		switch {
		case isWord(c.args[1], "REPLY"):
			s.fails("ERR CLIENT REPLY is not possible through the proxy of argocd-agent")
			return nil
		case isWord(c.args[1], "SETINFO"), isWord(c.args[1], "SETNAME"), isWord(c.args[1], "MAINT_NOTIFICATIONS"):
			return s.toOwn(ctx, c, 0)
		}
	}
	s.private = true
	return s.toOwn(ctx, c, 0)
}

// reset brings the connection back to its beginning, without identity.
func (s *session) reset(ctx context.Context, c command) error {
	reply, err := s.exchange(func() error { return s.toOwn(ctx, c, 0) })
	if err != nil {
		return err
	}
	if len(reply) > 0 && reply[0] != '-' {
		s.multi, s.trusted = false, false
		s.listening.end(s)
		s.become(state{proto: 2})
	}
	s.answer(reply)
	return nil
}

// subscribe passes on. Redis confirms name by name, which is where we take note; see own.
func (s *session) subscribe(ctx context.Context, c command, name string) error {
	if !s.drain() {
		return errGone
	}
	s.private = true
	s.subscribing.Store(true)
	messages := len(c.args) - 1
	if messages == 0 {
		messages = max(1, s.listening.count(name))
	}
	if err := s.toOwn(ctx, c, messages); err != nil {
		return err
	}
	if !s.drainSoon() {
		return errGone
	}
	return nil
}
