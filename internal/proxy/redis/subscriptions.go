package redis

import (
	"path"
	"strings"
	"sync"
)

// clientSubscriptions are the subscriptions of a client that Redis has confirmed.
type clientSubscriptions struct {
	c *clientConn

	mu       sync.Mutex
	closed   bool
	channels map[string]*subscriber // nil value: a channel of the hub
	patterns map[string]bool
	shards   map[string]bool
}

// subscriber receives the changes of one Application for one client.
type subscriber struct {
	c       *clientConn
	channel string // the client's name for it
	agent   string
	local   string // the agent's name for it
}

// send delivers a message of an agent to the client. It does not wait for the client.
func (s *subscriber) send(payload string) {
	s.c.replies.push(messageReply(int(s.c.proto.Load()), "message", s.channel, payload))
	s.c.replies.flush()
}

// confirmed applies a confirmation of Redis. From then on, or no longer, the client receives messages of agents.
func (cs *clientSubscriptions) confirmed(kind string, name []byte) {
	if name == nil {
		return // UNSUBSCRIBE without a subscription
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return
	}
	if cs.channels == nil {
		cs.channels, cs.patterns, cs.shards = map[string]*subscriber{}, map[string]bool{}, map[string]bool{}
	}
	channel := string(name)
	switch kind {
	case "subscribe":
		if _, twice := cs.channels[channel]; !twice {
			cs.channels[channel] = cs.subscribe(channel)
		}
	case "unsubscribe":
		cs.unsubscribe(cs.channels[channel])
		delete(cs.channels, channel)
	case "psubscribe":
		cs.patterns[channel] = true
		cs.c.server.patterns.set(cs.c, true)
	case "punsubscribe":
		delete(cs.patterns, channel)
		cs.c.server.patterns.set(cs.c, len(cs.patterns) > 0)
	case "ssubscribe":
		cs.shards[channel] = true
	case "sunsubscribe":
		delete(cs.shards, channel)
	}
}

// subscribe registers for the changes of an agent's Application. It returns nil for a channel of the hub.
func (cs *clientSubscriptions) subscribe(channel string) *subscriber {
	key, target, ok := cs.c.server.resolve([]byte(channel))
	if !ok || !key.isChannel() {
		return nil
	}
	s := &subscriber{c: cs.c, channel: channel, agent: target.Agent, local: key.channel(target.Local)}
	cs.c.server.agents.subscribe(s)
	return s
}

func (cs *clientSubscriptions) unsubscribe(s *subscriber) {
	if s != nil {
		cs.c.server.agents.unsubscribe(s)
	}
}

// rebind follows Applications that now belong to another agent, or to an agent for the first time.
func (cs *clientSubscriptions) rebind() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for channel, s := range cs.channels {
		key, target, ok := cs.c.server.resolve([]byte(channel))
		ok = ok && key.isChannel()
		if !ok && s == nil || ok && s != nil && s.agent == target.Agent && s.local == key.channel(target.Local) {
			continue
		}
		cs.unsubscribe(s)
		cs.channels[channel] = cs.subscribe(channel)
	}
}

// count returns the number of confirmations that an UNSUBSCRIBE from all channels gets.
func (cs *clientSubscriptions) count(kind string) int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch kind {
	case "unsubscribe":
		return len(cs.channels)
	case "punsubscribe":
		return len(cs.patterns)
	}
	return len(cs.shards)
}

// active reports whether the client has subscriptions.
func (cs *clientSubscriptions) active() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.channels)+len(cs.patterns)+len(cs.shards) > 0
}

// close releases all subscriptions. If final, later confirmations are ignored.
func (cs *clientSubscriptions) close(final bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = final
	for _, s := range cs.channels {
		cs.unsubscribe(s)
	}
	if len(cs.patterns) > 0 {
		cs.c.server.patterns.set(cs.c, false)
	}
	cs.channels, cs.patterns, cs.shards = nil, nil, nil
}

// patternClients are the clients with pattern subscriptions. They receive messages about Applications to which another
// client is subscribed. No agent is contacted for them, because a pattern names no agent.
type patternClients struct {
	mu      sync.Mutex
	clients map[*clientConn]bool
}

func (p *patternClients) set(c *clientConn, subscribed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !subscribed {
		delete(p.clients, c)
		return
	}
	if p.clients == nil {
		p.clients = map[*clientConn]bool{}
	}
	p.clients[c] = true
}

// send delivers a message to every client with a matching pattern.
func (p *patternClients) send(channel, payload string) {
	p.mu.Lock()
	clients := make([]*clientConn, 0, len(p.clients))
	for c := range p.clients {
		clients = append(clients, c)
	}
	p.mu.Unlock()
	for _, c := range clients {
		c.subscriptions.sendMatching(channel, payload)
	}
}

func (cs *clientSubscriptions) sendMatching(channel, payload string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for pattern := range cs.patterns {
		// '/' is special in path.Match and not in Redis. No channel of an Application contains it.
		if match, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), channel); err == nil && match {
			cs.c.replies.push(messageReply(int(cs.c.proto.Load()), "pmessage", pattern, channel, payload))
		}
	}
	cs.c.replies.flush()
}
