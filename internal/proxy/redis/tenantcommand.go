package redis

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// take turns a request of an agent into what Redis shall see, or answers it. What Redis shall see is added to send.
func (s *tenant) take(send []byte, args [][]byte) (_ []byte, quit bool) {
	refuse := func(format string, more ...any) ([]byte, bool) {
		s.out.local(errorReply("NOPERM " + fmt.Sprintf(format, more...)))
		return send, false
	}
	if s.all.Allowed != nil {
		if err := s.all.Allowed(s.agent); err != nil {
			return refuse("%v", err)
		}
	}
	var room [16]byte
	name := string(upper(args[0], &room))
	s.mu.Lock()
	subscribed := s.subscribed
	s.mu.Unlock()
	if subscribed && !strings.HasSuffix(name, "SUBSCRIBE") && name != "PING" && name != "QUIT" {
		return refuse("%s cannot follow SUBSCRIBE on this connection", name)
	}
	switch name {
	case "AUTH", "SELECT": // the agent has been recognised already, and its keys are apart from all others
		s.out.local([]byte("+OK\r\n"))
	case "CLIENT":
		if len(args) < 2 || !isWord(args[1], "SETINFO") && !isWord(args[1], "SETNAME") {
			return refuse("of CLIENT, only SETINFO and SETNAME can be used on the hub's Redis")
		}
		s.out.local([]byte("+OK\r\n"))
	case "QUIT":
		s.out.local([]byte("+OK\r\n"))
		return send, true
	case "HELLO":
		return s.hello(send, args)
	case "PING":
		if len(args) > 1 && len(args[1]) > maxName { // Redis would keep it until the agent takes it back
			return refuse("PING with %d bytes; it may have %d", len(args[1]), maxName)
		}
		if !subscribed {
			s.out.expect(0)
		}
		return appendCommand(send, args...), false
	case "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE":
		return s.subscribe(send, name, args)
	default:
		keys, why := s.keys(name, args)
		if why != "" {
			return refuse("%s", why)
		}
		s.out.expect(s.reading)
		s.reading = 0
		return s.appendPrefixed(send, args, keys), false
	}
	return send, false
}

// appendPrefixed writes a request, the first arguments after its name with the agent's prefix.
func (s *tenant) appendPrefixed(out []byte, args [][]byte, names int) []byte {
	out = appendHeader(out, '*', len(args))
	for i, arg := range args {
		if i == 0 || i > names {
			out = appendBulk(out, arg)
			continue
		}
		out = appendHeader(out, '$', len(s.prefix)+len(arg))
		out = append(out, s.prefix...)
		out = append(out, arg...)
		out = append(out, '\r', '\n')
	}
	return out
}

// hello settles the protocol. What it says of passwords was for the agent.
func (s *tenant) hello(send []byte, args [][]byte) ([]byte, bool) {
	if len(args) == 1 {
		s.out.expect(0)
		return appendCommand(send, "HELLO"), false
	}
	version, err := strconv.Atoi(string(args[1]))
	if err != nil || version != 2 && version != 3 {
		s.out.local(errorReply("NOPROTO unsupported protocol version"))
		return send, false
	}
	s.mu.Lock()
	s.proto = version
	s.mu.Unlock()
	s.out.expect(0)
	return appendCommand(send, "HELLO", strconv.Itoa(version)), false
}

// maxName is how long the name of a key may be.
const maxName = 4 << 10

// maxChannels is how many channels one connection may be subscribed to.
const maxChannels = 10_000

func (s *tenant) subscribe(send []byte, name string, args [][]byte) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(name, "UNSUB") {
		s.channels = max(0, s.channels-len(args)+1)
		if len(args) == 1 {
			s.channels = 0
		}
	} else {
		if len(args) < 2 {
			s.out.local(errorReply("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command"))
			return send, false
		}
		if s.channels+len(args)-1 > maxChannels {
			s.out.local(errorReply(fmt.Sprintf("NOPERM no more than %d channels on one connection", maxChannels)))
			return send, false
		}
		s.channels += len(args) - 1
	}
	s.subscribed = s.subscribed || s.proto != 3
	return s.appendPrefixed(send, args, len(args)-1), false
}

// maxReads is how many values an agent may have asked for that Redis has not answered with, if they are small.
const maxReads = 16

// weigh tells how many bytes of values a request asks for, at most. Redis keeps answers that are not taken, without a
// limit, so an agent cannot have asked for much. A value that is not in the account, because another principal has
// passed it on, may be as large as any.
func (s *share) weigh(args [][]byte, limits TenantLimits) (bytes int64) {
	if !isWord(args[0], "GET") && !isWord(args[0], "MGET") {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range args[1:] {
		size := limits.Value
		if k, known := s.keys[hashKey(name)]; known {
			size = k.size
		}
		bytes += max(int64(size), limits.Waiting/maxReads)
	}
	return bytes
}

// keys tells how many arguments after a command's name are keys, or why the command cannot be used. Whatever is not
// listed cannot. What is kept or removed goes into the agent's account.
func (s *tenant) keys(name string, args [][]byte) (count int, refused string) {
	names := min(len(args), 2)
	if name == "MGET" {
		names = len(args)
	}
	for _, arg := range args[1:names] {
		if len(arg) > maxName {
			return 0, fmt.Sprintf("%s of a name of %d bytes; they may have %d", name, len(arg), maxName)
		}
	}
	few := fmt.Sprintf("a request %s with %d arguments is not one that Argo CD makes", name, len(args)-1)
	switch name {
	case "GET", "TTL", "PTTL", "STRLEN":
		if len(args) != 2 {
			return 0, few
		}
		return 1, ""
	case "MGET":
		if len(args) > 1 && s.reading == 0 {
			return 0, fmt.Sprintf("MGET of %d keys whose values may be too large together; ask for fewer at once", len(args)-1)
		}
		fallthrough
	case "EXISTS":
		if len(args) < 2 {
			return 0, few
		}
		return len(args) - 1, ""
	case "DEL", "UNLINK":
		if len(args) < 2 {
			return 0, few
		}
		s.share.remove(args[1:]...)
		return len(args) - 1, ""
	case "PUBLISH":
		if len(args) != 3 {
			return 0, few
		}
		return 1, ""
	case "RENAME":
		if len(args) != 3 {
			return 0, few
		}
		s.share.rename(args[1], args[2])
		return 2, ""
	case "SET", "SETEX", "PSETEX":
		if len(args) < 4 {
			return 0, name + " of something that shall be kept forever is refused: give it a time to live"
		}
		value, life, why := stored(name, args)
		if why == "" && (life <= 0 || life > s.limits.Life) {
			why = fmt.Sprintf("%s: what is kept on the hub has to expire within %s", name, s.limits.Life)
		}
		if why == "" {
			why = s.share.keep(s.agent, args[1], len(args[1])+len(value), life, conditional(name, args), s.limits)
		}
		return 1, why
	}
	return 0, name + " is not among the commands that a cluster without a Redis of its own can use on the hub's"
}

// conditional reports whether Redis may keep what it has instead.
func conditional(name string, args [][]byte) bool {
	return name == "SET" && slices.ContainsFunc(args[3:], func(arg []byte) bool { return isWord(arg, "NX") || isWord(arg, "XX") })
}

// stored reads what a command wants to be kept, and for how long.
func stored(name string, args [][]byte) (value []byte, life time.Duration, refused string) {
	number := func(b []byte, unit time.Duration) time.Duration {
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil || n < 0 || n > int64(1000*24*time.Hour/time.Millisecond) {
			return -1
		}
		return time.Duration(n) * unit
	}
	switch {
	case name != "SET" && len(args) != 4:
		return nil, 0, name + " with more than a key, a time and a value"
	case name == "SETEX":
		return args[3], number(args[2], time.Second), ""
	case name == "PSETEX":
		return args[3], number(args[2], time.Millisecond), ""
	}
	for options := args[3:]; len(options) > 0; options = options[1:] {
		unit := time.Duration(0)
		switch {
		case isWord(options[0], "NX"), isWord(options[0], "XX"):
			continue
		case isWord(options[0], "EX"):
			unit = time.Second
		case isWord(options[0], "PX"):
			unit = time.Millisecond
		}
		if unit == 0 || len(options) < 2 || life != 0 {
			return nil, 0, "SET can be used with EX or PX, and NX or XX; nothing else"
		}
		life, options = number(options[1], unit), options[1:]
	}
	return args[2], life, ""
}

// unprefixed is a message of Redis as the agent shall see it: with the names that it has given.
func (s *tenant) unprefixed(message []byte) ([]byte, error) {
	count, at, err := header(message)
	if err != nil || at == 0 {
		return nil, protocolError("invalid message")
	}
	out := append([]byte(nil), message[:at]...)
	names := int64(0)
	for i := range count {
		part, n, err := bulk(message[at:])
		if err != nil {
			return nil, err
		}
		if i == 0 {
			switch string(part) {
			case "pmessage":
				names = 2
			case "message", "subscribe", "unsubscribe", "psubscribe", "punsubscribe":
				names = 1
			}
		}
		if name, found := bytes.CutPrefix(part, []byte(s.prefix)); found && i > 0 && i <= names {
			out = appendBulk(out, name)
		} else {
			out = append(out, message[at:at+n]...)
		}
		at += n
	}
	return out, nil
}
