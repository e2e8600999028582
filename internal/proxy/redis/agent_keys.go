package redis

import (
	"bytes"
	"strconv"
)

// resolve returns the agent to which a key belongs. It returns false for a key of the hub.
func (srv *Server) resolve(name []byte) (appKey, Target, bool) {
	key, ok := parseKey(name)
	if !ok {
		return appKey{}, Target{}, false
	}
	target, ok := srv.cfg.Agents.Resolve(key.names())
	return key, target, ok && target.Agent != ""
}

// serveAgentKeys answers a request for keys of agents. It returns false if all keys belong to the hub.
func (c *clientConn) serveAgentKeys(cmd command, does access) (handled bool, err error) {
	keys := cmd.args[1:]
	switch does {
	case get, strlen, ttl:
		if len(keys) != 1 {
			return false, nil // Redis replies with an error
		}
	case write:
		keys = keys[:1]
	case none, mget, exists, writes:
	}
	lookups, agent := make([]agentLookup, len(keys)), ""
	for i, name := range keys {
		if !bytes.HasPrefix(name, appPrefix) {
			continue
		}
		key, target, ok := c.server.resolve(name)
		switch {
		case ok:
			lookups[i], agent = agentLookup{target: target, key: key}, target.Agent
		case does == get && target.Frozen != "":
			return true, c.forward(cmd.raw, expectedReply{prompt: true, edit: frozenReply(target.Frozen)})
		}
	}
	if agent == "" {
		return false, nil
	}
	refusal, err := c.checkAgentAccess()
	switch {
	case err != nil:
		return true, err
	case refusal != "":
		c.answer([]byte(refusal))
		return true, nil
	case does == write || does == writes:
		c.answer(errorReply("ERR this key belongs to agent " + agent + " and is read-only"))
		return true, nil
	}
	if !c.trusted {
		c.trust()
	}
	return true, c.readAgentKeys(cmd, lookups, does)
}

// frozenReply returns a function that replaces a missing value by an error, see Target.Frozen.
func frozenReply(why string) func([]byte) []byte {
	return func(reply []byte) []byte {
		if text := string(reply); text == "$-1\r\n" || text == "_\r\n" {
			return errorReply("ERR argocd-agent: " + why)
		}
		return reply
	}
}

// probeKey is like a key of an agent's Application. It does not exist.
const probeKey = "app|resources-tree|argocd-agent_probe|0"

// checkAgentAccess returns the error with which Redis refuses the client keys like those of agents. It is empty if Redis
// allows them.
func (c *clientConn) checkAgentAccess() (refusal string, err error) {
	if c.agentAccess == nil {
		reply, err := c.exchange(appendCommand(nil, "GET", probeKey))
		if err != nil {
			return "", err
		}
		if reply[0] == '-' {
			refusal = string(reply)
		}
		c.agentAccess = &refusal
	}
	return *c.agentAccess, nil
}

// readAgentKeys starts to read values. Later requests do not wait for them. The lookup of a hub's key is the zero value.
func (c *clientConn) readAgentKeys(cmd command, lookups []agentLookup, does access) error {
	agents, proto := &c.server.agents, int(c.proto.Load())
	hubKeys := [][]byte{cmd.args[0]}
	reads, ready := make([]pendingRead, len(lookups)), true
	for i, l := range lookups {
		switch {
		case l.target.Agent == "":
			hubKeys = append(hubKeys, cmd.args[i+1])
		case does != ttl:
			reads[i] = agents.read(l)
			ready = ready && reads[i].inflight == nil
		}
	}
	var hubReply chan []byte
	if len(hubKeys) > 1 {
		d, err := c.connected()
		if err != nil {
			return err
		}
		hubReply = make(chan []byte, 1)
		d.send(appendCommand(nil, hubKeys...), expectedReply{prompt: true, to: hubReply})
	}
	slot, ok := c.replies.reserve(c.flush)
	if !ok {
		return errGone
	}
	milliseconds := isWord(cmd.args[0], "PTTL")
	finish := func() {
		var reply []byte
		if does == ttl {
			reply = agents.ttlReply(lookups[0], milliseconds)
		} else {
			reply = c.joinReplies(lookups, reads, hubReply, does, proto)
		}
		c.replies.complete(slot, reply)
		c.replies.flush()
	}
	if ready && hubReply == nil && does != ttl {
		finish()
	} else {
		c.server.tasks.Go(finish)
	}
	return nil
}

// joinReplies waits for the values of agents and of the hub, and returns the client's reply.
func (c *clientConn) joinReplies(lookups []agentLookup, reads []pendingRead, hubReply chan []byte, does access, proto int) []byte {
	var hub [][]byte
	if hubReply != nil {
		select {
		case reply := <-hubReply:
			var err error
			if hub, err = decode(reply); err != nil {
				return errorReply(err.Error())
			}
		case <-c.ctx.Done():
			return nil
		}
	}
	count := 0
	if does == exists && len(hub) == 1 {
		count, _ = strconv.Atoi(string(hub[0]))
	}
	out := appendHeader(nil, '*', len(reads))
	for i, read := range reads {
		var is agentValue
		switch {
		case lookups[i].target.Agent != "":
			is = c.server.agents.wait(lookups[i].target.Agent, read)
		case does == mget && len(hub) > 0:
			is, hub = agentValue{value: hub[0], found: hub[0] != nil}, hub[1:]
		}
		switch {
		case is.err != nil:
			return errorReply("ERR " + is.err.Error())
		case does == strlen:
			return appendHeader(nil, ':', len(is.value))
		case is.found:
			count++
			out = appendBulk(out, is.value)
		default:
			out = appendNil(out, proto)
		}
	}
	switch does {
	case exists:
		return appendHeader(nil, ':', count)
	case get:
		return out[len("*1\r\n"):]
	}
	return out
}
