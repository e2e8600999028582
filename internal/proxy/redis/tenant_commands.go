package redis

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxName     = 4 << 10 // bytes of a key
	maxChannels = 10_000  // subscriptions of one connection
	maxReads    = 16      // small values that an agent can request before it has received them
)

// take forwards a request to Redis or answers it. It returns true for QUIT.
func (s *tenantConn) take(args [][]byte) (quit bool) {
	var room [16]byte
	name := string(upper(args[0], &room))
	s.mu.Lock()
	subscribed := s.subscribed
	s.mu.Unlock()
	if s.tenants.Allowed != nil {
		if err := s.tenants.Allowed(s.agent); err != nil {
			s.refuse("%v", err)
			return false
		}
	}
	switch {
	case subscribed && !strings.HasSuffix(name, "SUBSCRIBE") && name != "PING" && name != "QUIT":
		s.refuse("%s cannot follow SUBSCRIBE on this connection", name)
	case name == "AUTH" || name == "SELECT" || name == "QUIT": // the agent's identity is known, and its keys are separate
		s.out.local([]byte("+OK\r\n"))
	case name == "CLIENT" && len(args) > 1 && (isWord(args[1], "SETINFO") || isWord(args[1], "SETNAME")):
		s.out.local([]byte("+OK\r\n"))
	case name == "HELLO":
		s.hello(args)
	case name == "PING":
		if len(args) > 1 && len(args[1]) > maxName { // Redis would buffer the reply
			s.refuse("PING with %d bytes exceeds the limit of %d", len(args[1]), maxName)
			return false
		}
		if !subscribed {
			s.out.expect(0)
		}
		s.send(args, 0)
	case name == "SUBSCRIBE" || name == "UNSUBSCRIBE" || name == "PSUBSCRIBE" || name == "PUNSUBSCRIBE":
		s.subscribe(name, args)
	default:
		keys, why := s.keys(name, args)
		if why != "" {
			s.refuse("%s", why)
			return false
		}
		s.out.expect(s.reading)
		s.reading = 0
		s.send(args, keys)
	}
	return name == "QUIT"
}

func (s *tenantConn) refuse(format string, more ...any) {
	s.out.local(errorReply("NOPERM " + fmt.Sprintf(format, more...)))
}

// send sends a request to Redis, with the agent's prefix before the first arguments after its name.
func (s *tenantConn) send(args [][]byte, names int) {
	head := appendHeader(nil, '*', len(args))
	for i, arg := range args {
		prefix := ""
		if i > 0 && i <= names {
			prefix = s.prefix
		}
		head = append(appendHeader(head, '$', len(prefix)+len(arg)), prefix...)
		_, _ = s.upstream.Write(head) // flush returns the error
		_, _ = s.upstream.Write(arg)
		head = append(head[:0], '\r', '\n')
	}
	_, _ = s.upstream.Write(head)
}

// hello changes the protocol. The agent has checked the password already.
func (s *tenantConn) hello(args [][]byte) {
	if len(args) > 1 {
		version, err := strconv.Atoi(string(args[1]))
		if err != nil || version != 2 && version != 3 {
			s.out.local(errorReply("NOPROTO unsupported protocol version"))
			return
		}
		s.mu.Lock()
		s.proto = version
		s.mu.Unlock()
		args = [][]byte{args[0], strconv.AppendInt(nil, int64(version), 10)}
	}
	s.out.expect(0)
	s.send(args, 0)
}

func (s *tenantConn) subscribe(name string, args [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch count := len(args) - 1; {
	case strings.Contains(name, "UNSUB"):
		if s.channels = max(0, s.channels-count); count == 0 {
			s.channels = 0
		}
	case count == 0:
		s.out.local(errorReply("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command"))
		return
	case s.channels+count > maxChannels:
		s.refuse("a connection is limited to %d channels", maxChannels)
		return
	default:
		s.channels += count
	}
	s.subscribed = s.subscribed || s.proto != 3
	s.send(args, len(args)-1)
}

// keys returns the number of arguments after a command's name that are keys, or the reason why the command is refused.
// Commands that are not listed are refused. It charges the agent's quota.
func (s *tenantConn) keys(name string, args [][]byte) (count int, refused string) {
	names := min(len(args), 2)
	if name == "MGET" {
		names = len(args)
	}
	for _, arg := range args[1:names] {
		if len(arg) > maxName {
			return 0, fmt.Sprintf("%s of a name with %d bytes exceeds the limit of %d", name, len(arg), maxName)
		}
	}
	given := len(args) - 1
	var wrong bool
	switch name {
	case "GET", "TTL", "PTTL", "STRLEN":
		count, wrong = 1, given != 1
	case "MGET":
		count, wrong = given, given == 0
		if given > 0 && s.reading == 0 {
			return 0, fmt.Sprintf("MGET of %d keys can return too many bytes: request fewer keys", given)
		}
	case "EXISTS":
		count, wrong = given, given == 0
	case "DEL", "UNLINK":
		count, wrong = given, given == 0
		s.quota.remove(args[1:]...)
	case "PUBLISH":
		count, wrong = 1, given != 2
	case "RENAME":
		if count, wrong = 2, given != 2; !wrong {
			s.quota.rename(args[1], args[2])
		}
	case "SET", "SETEX", "PSETEX":
		if given < 3 {
			return 0, name + " requires a time to live"
		}
		value, life, why := stored(name, args)
		if why == "" && (life <= 0 || life > s.limits.Life) {
			why = fmt.Sprintf("%s requires a time to live of at most %s", name, s.limits.Life)
		}
		if why == "" {
			why = s.quota.charge(s.agent, args[1], len(args[1])+len(value), life, conditional(name, args), s.limits)
		}
		return 1, why
	default:
		return 0, name + " is not allowed for agents that use the hub's Redis"
	}
	if wrong {
		return 0, fmt.Sprintf("%s with %d arguments is not allowed", name, given)
	}
	return count, ""
}

// conditional reports whether Redis can keep the old value instead.
func conditional(name string, args [][]byte) bool {
	return name == "SET" && slices.ContainsFunc(args[3:], func(arg []byte) bool { return isWord(arg, "NX") || isWord(arg, "XX") })
}

// stored returns the value and the time to live that a command sets.
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
		return nil, 0, name + " requires a key, a time and a value"
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
			return nil, 0, "SET is allowed only with EX or PX, and NX or XX"
		}
		life, options = number(options[1], unit), options[1:]
	}
	return args[2], life, ""
}

// withoutPrefix returns a message of Redis with the names that the agent used.
func (s *tenantConn) withoutPrefix(message []byte) ([]byte, error) {
	count, at, err := decodeLength(message)
	if err != nil {
		return nil, err
	}
	out, names := bytes.Clone(message[:at]), 0
	for i := range count {
		part, n, err := decodeOne(message[at:])
		if err != nil {
			return nil, err
		}
		if i == 0 {
			names = namesInMessage[string(part)]
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

// namesInMessage is the number of names that follow the kind of a message.
var namesInMessage = map[string]int{
	"pmessage": 2, "message": 1, "subscribe": 1, "unsubscribe": 1, "psubscribe": 1, "punsubscribe": 1,
}
