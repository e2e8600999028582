package redis

import (
	"bytes"
	"context"
	"strconv"
)

// resolve finds the agent to which a key belongs; false: it is the hub's.
func (srv *Server) resolve(name []byte) (appKey, Target, bool) {
	key, ok := parseKey(name)
	if !ok {
		return appKey{}, Target{}, false
	}
	target, ok := srv.cfg.Agents.Resolve(key.names())
	return key, target, ok && target.Agent != ""
}

// frozen says why there is no tree of an agent under a key, see Target.Frozen; empty: there may be.
func (srv *Server) frozen(name []byte) string {
	key, ok := parseKey(name)
	if !ok {
		return ""
	}
	target, _ := srv.cfg.Agents.Resolve(key.names())
	return target.Frozen
}

// ofHub answers GET for the key of a frozen Application: with what the hub's Redis has or, if that is nothing, with an
// error.
func (s *session) ofHub(ctx context.Context, c command, why string) error {
	whole := command{raw: appendCommand(nil, c.args...)}
	reply, err := s.exchange(func() error {
		if s.private {
			return s.toOwn(ctx, whole, 0)
		}
		return s.toLane(ctx, whole)
	})
	if err != nil {
		return err
	}
	if text := string(reply); text == "$-1\r\n" || text == "_\r\n" {
		reply = errorReply("ERR argocd-agent: " + why)
	}
	s.answer(reply)
	return nil
}

// forAgents answers a request for keys of agents. false: none of its keys is an agent's.
func (s *session) forAgents(ctx context.Context, c command, does access) (bool, error) {
	keys := c.args[1:]
	switch does {
	case get, strlen, ttl:
		if len(keys) != 1 {
			return false, nil // Redis says what is wrong
		}
	case write:
		keys = keys[:1]
	case none, mget, exists, writes:
	}
	var asked []question
	for i, name := range keys {
		if !bytes.HasPrefix(name, appPrefix) {
			continue
		}
		if key, target, ok := s.server.resolve(name); ok {
			if asked == nil {
				asked = make([]question, len(keys))
			}
			asked[i] = question{target: target, key: key}
		}
	}
	if asked == nil {
		if does == get {
			if why := s.server.frozen(keys[0]); why != "" {
				return true, s.ofHub(ctx, c, why)
			}
		}
		return false, nil
	}
	l, err := s.sharedLane(ctx)
	if err != nil {
		return true, s.unreachable(err)
	}
	if l.refusal != "" {
		s.fails(l.refusal)
		return true, nil
	}
	s.trusted = true
	switch does {
	case get, strlen:
		return true, s.one(asked[0], does)
	case ttl:
		return true, s.ttl(asked[0], isWord(c.args[0], "PTTL"))
	case mget, exists:
		return true, s.several(ctx, c.args, asked, does)
	case none, write, writes:
	}
	for _, q := range asked {
		if q.target.Agent != "" {
			s.fails("ERR this key is kept by agent " + q.target.Agent + " and can only be read here")
			return true, nil
		}
	}
	return true, nil
}

// one answers GET or STRLEN, later if need be; requests behind it go on.
func (s *session) one(q question, does access) error {
	seq, ok := s.place()
	if !ok {
		return errGone
	}
	s.server.agents.get(q, func(is answer) {
		var out []byte
		switch {
		case is.err != nil:
			out = errorReply("ERR " + is.err.Error())
		case does == strlen:
			out = appendHeader(nil, ':', len(is.value))
		default:
			out = appendValue(nil, is, s.is.proto)
		}
		s.output.complete(seq, 1, out)
		s.output.flush()
	})
	return nil
}

func appendValue(out []byte, is answer, proto int) []byte {
	if !is.found {
		return appendNil(out, proto)
	}
	return appendBulk(out, is.value)
}

func (s *session) ttl(q question, milliseconds bool) error {
	seq, ok := s.place()
	if !ok {
		return errGone
	}
	s.server.tasks.Go(func() {
		seconds, err := s.server.agents.ttl(q)
		if milliseconds && seconds > 0 {
			seconds *= 1000
		}
		out := appendHeader(nil, ':', int(seconds))
		if err != nil {
			out = errorReply("ERR " + err.Error())
		}
		s.output.complete(seq, 1, out)
		s.output.flush()
	})
	return nil
}

// several answers MGET or EXISTS, whose keys may be of many agents and of the hub.
func (s *session) several(ctx context.Context, args [][]byte, asked []question, does access) error {
	answers := make([]chan answer, len(asked))
	rest := [][]byte{args[0]}
	for i, q := range asked {
		if q.target.Agent == "" {
			rest = append(rest, args[i+1])
			continue
		}
		answers[i] = make(chan answer, 1)
		s.server.agents.get(q, func(is answer) { answers[i] <- is })
	}
	var ofHub [][]byte
	if len(rest) > 1 {
		c := command{raw: appendCommand(nil, rest...)}
		reply, err := s.exchange(func() error {
			if s.private {
				return s.toOwn(ctx, c, 0)
			}
			return s.toLane(ctx, c)
		})
		if err != nil {
			return err
		}
		if ofHub, err = bulks(reply); err != nil {
			s.fails(err.Error())
			return nil
		}
	}
	s.answer(s.join(answers, ofHub, does))
	return nil
}

// join makes one reply of the answers of agents and of the hub.
func (s *session) join(answers []chan answer, ofHub [][]byte, does access) []byte {
	count := 0
	out := appendHeader(nil, '*', len(answers))
	if does == exists && len(ofHub) == 1 {
		count, _ = strconv.Atoi(string(ofHub[0]))
	}
	for _, later := range answers {
		var is answer
		switch {
		case later != nil:
			is = <-later
		case does == mget && len(ofHub) > 0:
			is = answer{value: ofHub[0], found: ofHub[0] != nil}
			ofHub = ofHub[1:]
		}
		if is.err != nil {
			return errorReply("ERR " + is.err.Error())
		}
		if is.found {
			count++
		}
		out = appendValue(out, is, s.is.proto)
	}
	if does == exists {
		return appendHeader(nil, ':', count)
	}
	return out
}
