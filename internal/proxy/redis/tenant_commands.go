package redis

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

const (
	maxName     = 4 << 10 // bytes of a key
	maxChannels = 10_000  // subscriptions of one connection
	maxReads    = 16      // small values that an agent can request before it has received them
	maxPending  = 10_000  // requests of one connection without a reply
	maxLife     = 7 * 24 * time.Hour
	tenantIdle  = 15 * time.Minute // a silent connection without subscription is closed
)

// take forwards a request to Redis or answers it. An error ends the connection.
func (s *tenantConn) take(name string, args [][]byte) error {
	if s.tenants.Allowed != nil {
		if err := s.tenants.Allowed(s.agent); err != nil {
			return s.refuse("%v", err)
		}
	}
	switch {
	case name == "AUTH" || name == "SELECT": // the agent's identity is known, and its keys are separate
		return s.answer([]byte("+OK\r\n"))
	case name == "CLIENT" && len(args) > 1 && (isWord(args[1], "SETINFO") || isWord(args[1], "SETNAME")):
		return s.answer([]byte("+OK\r\n"))
	case name == "QUIT":
		_ = s.answer([]byte("+OK\r\n"))
		return errQuit
	case name == "HELLO" && len(args) > 1: // the agent has checked the password already
		if version := string(args[1]); version != "2" && version != "3" {
			return s.answer(errorReply("NOPROTO unsupported protocol version"))
		}
		s.replies.send(args[:2], "", 0, expected{})
	case name == "HELLO":
		s.replies.send(args, "", 0, expected{})
	case name == "PING":
		if len(args) > 1 && len(args[1]) > maxName { // Redis would buffer the reply
			return s.refuse("PING with %d bytes exceeds the limit of %d", len(args[1]), maxName)
		}
		s.replies.send(args, "", 0, expected{})
	case classes[name] == subscribe:
		return s.subscribe(name, args)
	default:
		return s.forwardKeys(name, args)
	}
	return nil
}

// answer replies to a request without Redis. It waits for earlier replies, which can need the memory of the request.
func (s *tenantConn) answer(reply []byte) error {
	s.request.release()
	return s.replies.answer(reply)
}

func (s *tenantConn) refuse(format string, more ...any) error {
	return s.answer(errorReply("NOPERM " + fmt.Sprintf(format, more...)))
}

func (s *tenantConn) subscribe(name string, args [][]byte) error {
	if why := s.chargeChannels(name, args[1:]); why != "" {
		return s.refuse("%s", why)
	}
	s.request.release()
	return s.replies.subscribe(args, s.prefix)
}

// chargeChannels records the channels of a command, or returns the reason why they exceed a limit.
func (s *tenantConn) chargeChannels(command string, names [][]byte) (refused string) {
	for _, name := range names {
		if len(name) > maxName {
			return fmt.Sprintf("a channel of %d bytes exceeds the limit of %d", len(name), maxName)
		}
	}
	command, off := strings.ReplaceAll(command, "UNSUB", "SUB"), strings.Contains(command, "UNSUB")
	before := len(s.channels)
	if off && len(names) == 0 {
		maps.DeleteFunc(s.channels, func(_ keyHash, by string) bool { return by == command })
	}
	var added []keyHash
	for _, name := range names {
		key := hashKey([]byte(command + " " + string(name))) // a pattern is another subscription than a channel
		switch _, known := s.channels[key]; {
		case off:
			delete(s.channels, key)
		case !known:
			s.channels[key] = command
			added = append(added, key)
		}
	}
	count := int64(len(s.channels) - before)
	if count <= 0 {
		s.releaseChannels(int(-count))
		return ""
	}
	own, total := s.quota.channels.Add(count), s.tenants.channels.Add(count)
	switch {
	case len(s.channels) > maxChannels:
		refused = fmt.Sprintf("a connection is limited to %d channels", maxChannels)
	case own > s.limits.Channels:
		refused = fmt.Sprintf("an agent is limited to %d channels", s.limits.Channels)
	case total > tenantShares*s.limits.Channels:
		refused = fmt.Sprintf("all agents together are limited to %d channels", tenantShares*s.limits.Channels)
	default:
		return ""
	}
	for _, key := range added { // the caller does not send the command
		delete(s.channels, key)
	}
	s.releaseChannels(len(added))
	return refused
}

// releaseChannels records that channels are no longer subscribed.
func (s *tenantConn) releaseChannels(n int) {
	s.quota.channels.Add(-int64(n))
	s.tenants.channels.Add(-int64(n))
}

// forwardKeys forwards a command whose first arguments are keys. Commands that are not listed are refused. It charges the
// agent's quota.
func (s *tenantConn) forwardKeys(name string, args [][]byte) error {
	given, least, most, names := len(args)-1, 1, 1, 1
	switch name {
	case "GET", "TTL", "PTTL", "STRLEN":
	case "MGET", "EXISTS", "DEL", "UNLINK":
		most, names = given, given
	case "PUBLISH":
		least, most = 2, 2
	case "RENAME":
		least, most, names = 2, 2, 2
	case "SET":
		if given < 3 {
			return s.refuse("%s requires a time to live", name)
		}
		most = given
	default:
		return s.refuse("%s is not allowed for agents that use the hub's Redis", name)
	}
	if given < least || given > most {
		return s.refuse("%s with %d arguments is not allowed", name, given)
	}
	for _, arg := range args[1 : 1+names] {
		if len(arg) > maxName {
			return s.refuse("%s of a name with %d bytes exceeds the limit of %d", name, len(arg), maxName)
		}
	}
	var reads int64
	switch name {
	case "GET", "MGET":
		if reads = s.quota.weigh(args[1:], s.limits); reads > s.limits.Waiting {
			return s.refuse("%s of %d keys can return too many bytes: request fewer keys", name, given)
		}
		if err := s.reserveReads(reads); err != nil {
			return err
		}
	case "DEL", "UNLINK":
		s.quota.remove(args[1:]...)
	case "RENAME":
		s.quota.rename(args[1], args[2])
	case "SET":
		life, conditional, why := timeToLive(args[3:])
		if why == "" && (life <= 0 || life > maxLife) {
			why = fmt.Sprintf("%s requires a time to live of at most %s", name, maxLife)
		}
		if why == "" {
			if s.tenants.stored.Load()+int64(len(args[2])) > s.limits.Total {
				s.tenants.dropExpired()
			}
			why = s.quota.charge(s.agent, args[1], len(args[1])+len(args[2]), life, conditional, s.limits)
		}
		if why != "" {
			return s.refuse("%s", why)
		}
	}
	s.replies.send(args, s.prefix, names, expected{weight: reads})
	return nil
}

// timeToLive reads the options of SET. If conditional, Redis can keep the old value instead.
func timeToLive(options [][]byte) (life time.Duration, conditional bool, refused string) {
	for ; len(options) > 0; options = options[1:] {
		unit := time.Duration(0)
		switch {
		case isWord(options[0], "NX"), isWord(options[0], "XX"):
			conditional = true
			continue
		case isWord(options[0], "EX"):
			unit = time.Second
		case isWord(options[0], "PX"):
			unit = time.Millisecond
		}
		if unit == 0 || len(options) < 2 || life != 0 {
			return 0, false, "SET is allowed only with EX or PX, and NX or XX"
		}
		options = options[1:]
		n, err := strconv.ParseInt(string(options[0]), 10, 64)
		if err != nil || n < 0 || n > int64(1000*24*time.Hour/time.Millisecond) {
			n = -1
		}
		life = time.Duration(n) * unit
	}
	return life, conditional, ""
}

// withoutPrefix returns a message of Redis with the names that the agent used.
func (s *tenantConn) withoutPrefix(message []byte) (out []byte, err error) {
	out = bytes.Clone(message[:bytes.IndexByte(message, '\n')+1])
	i, names := 0, 0
	err = walk(message, func(encoded, value []byte) {
		if i == 0 {
			names = namesInMessage[string(value)]
		}
		if name, found := bytes.CutPrefix(value, []byte(s.prefix)); found && i > 0 && i <= names {
			encoded = appendBulk(nil, name)
		}
		out = append(out, encoded...)
		i++
	})
	return out, err
}

// namesInMessage is the number of names that follow the kind of a message.
var namesInMessage = map[string]int{
	"pmessage": 2, "message": 1, "subscribe": 1, "unsubscribe": 1, "psubscribe": 1, "punsubscribe": 1,
}
