package redis

import (
	"path"
	"strings"
	"sync"
)

// listening is what a client has subscribed to, as Redis has confirmed it.
type listening struct {
	mu       sync.Mutex
	ended    bool
	channels map[string]*listener // nil: the hub's own
	patterns map[string]bool
	shards   map[string]bool
}

// listener gets the changes of one Application for one client.
type listener struct {
	s       *session
	channel string // as the client knows it
	agent   string
	local   string // as the agent knows it
}

// subscribed takes note of a confirmation. Messages of agents start, or stop, to come.
func (s *session) subscribed(kind string, name []byte) {
	if name == nil {
		return // an UNSUBSCRIBE from nothing
	}
	l := &s.listening
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	channel := string(name)
	switch kind {
	case "subscribe":
		if _, twice := l.channels[channel]; !twice {
			setIn(&l.channels, channel, s.listen(channel))
		}
	case "unsubscribe":
		if heard := l.channels[channel]; heard != nil {
			s.server.agents.unlisten(heard)
		}
		delete(l.channels, channel)
	case "psubscribe":
		setIn(&l.patterns, channel, true)
		s.server.patterns.set(s, true)
	case "punsubscribe":
		delete(l.patterns, channel)
		s.server.patterns.set(s, len(l.patterns) > 0)
	case "ssubscribe":
		setIn(&l.shards, channel, true)
	case "sunsubscribe":
		delete(l.shards, channel)
	}
}

func setIn[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// listen asks for the changes of an agent's Application; nil: the channel is the hub's.
func (s *session) listen(channel string) *listener {
	key, target, ok := s.server.resolve([]byte(channel))
	if !ok || !key.isChannel() {
		return nil
	}
	heard := &listener{s: s, channel: channel, agent: target.Agent, local: key.channel(target.Local)}
	s.server.agents.listen(heard)
	return heard
}

// rebind looks again whose the Applications are that a client listens to: one may have come to another agent since, or
// to one at all.
func (s *session) rebind() {
	l := &s.listening
	l.mu.Lock()
	defer l.mu.Unlock()
	for channel, heard := range l.channels {
		key, target, ok := s.server.resolve([]byte(channel))
		ok = ok && key.isChannel()
		switch {
		case !ok && heard == nil, ok && heard != nil && heard.agent == target.Agent && heard.local == key.channel(target.Local):
			continue
		case heard != nil:
			s.server.agents.unlisten(heard)
		}
		l.channels[channel] = s.listen(channel) // and hears at once, if there is a tree
	}
}

// count tells how many confirmations an UNSUBSCRIBE from everything gets.
func (l *listening) count(command string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch command {
	case "UNSUBSCRIBE":
		return len(l.channels)
	case "PUNSUBSCRIBE":
		return len(l.patterns)
	case "SUNSUBSCRIBE":
		return len(l.shards)
	}
	return 0
}

// end releases everything, when the client goes.
func (l *listening) end(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = s.output.failure() != nil
	for _, heard := range l.channels {
		if heard != nil {
			s.server.agents.unlisten(heard)
		}
	}
	if len(l.patterns) > 0 {
		s.server.patterns.set(s, false)
	}
	l.channels, l.patterns, l.shards = nil, nil, nil
}

// tell delivers a message of an agent to a client.
func (l *listener) tell(payload string) {
	l.s.output.push(messageReply(int(l.s.protocol.Load()), "message", l.channel, payload))
	l.s.output.flush()
}

// patterns are the clients that subscribed by pattern. They hear of agents' Applications that somebody else listens to;
// no agent is asked for their sake, because a pattern names nobody.
type patterns struct {
	mu sync.Mutex
	by map[*session]bool
}

func (p *patterns) set(s *session, listens bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !listens {
		delete(p.by, s)
		return
	}
	if p.by == nil {
		p.by = map[*session]bool{}
	}
	p.by[s] = true
}

// tell delivers a message to every client with a pattern that matches.
func (p *patterns) tell(channel, payload string) {
	p.mu.Lock()
	sessions := make([]*session, 0, len(p.by))
	for s := range p.by {
		sessions = append(sessions, s)
	}
	p.mu.Unlock()
	for _, s := range sessions {
		s.tellPatterns(channel, payload)
	}
}

func (s *session) tellPatterns(channel, payload string) {
	s.listening.mu.Lock()
	defer s.listening.mu.Unlock()
	for pattern := range s.listening.patterns {
		// Redis has no special meaning for '/', which is in no name of ours but may be in a pattern.
		if match, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), channel); err != nil || !match {
			continue
		}
		s.output.push(messageReply(int(s.protocol.Load()), "pmessage", pattern, channel, payload))
	}
	s.output.flush()
}
