package redis

import (
	"bytes"
	"strconv"
	"strings"
)

// appendCommand appends a request.
func appendCommand[T string | []byte](out []byte, args ...T) []byte {
	out = appendHeader(out, '*', len(args))
	for _, arg := range args {
		out = appendBulk(out, arg)
	}
	return out
}

func appendHeader(out []byte, kind byte, n int) []byte {
	out = append(out, kind)
	out = strconv.AppendInt(out, int64(n), 10)
	return append(out, '\r', '\n')
}

func appendBulk[T string | []byte](out []byte, s T) []byte {
	out = appendHeader(out, '$', len(s))
	out = append(out, s...)
	return append(out, '\r', '\n')
}

// appendNil appends the null value of a protocol version.
func appendNil(out []byte, proto int) []byte {
	if proto >= 3 {
		return append(out, "_\r\n"...)
	}
	return append(out, "$-1\r\n"...)
}

// errorReply returns an error reply. Control characters become spaces, so that the reply stays one line.
func errorReply(message string) []byte {
	return []byte("-" + strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, message) + "\r\n")
}

// messageReply returns a message as a subscriber receives it.
func messageReply(proto int, parts ...string) []byte {
	out := appendCommand(nil, parts...)
	if proto >= 3 {
		out[0] = '>'
	}
	return out
}

// replyError is an error reply of Redis or of a Relay.
type replyError string

func (e replyError) Error() string { return string(e) }

// decode returns the strings, numbers and nulls of a complete reply, those in nested arrays too. A null is nil.
func decode(reply []byte) (values [][]byte, err error) {
	err = walk(reply, func(_, value []byte) { values = append(values, value) })
	return values, err
}

// walk calls visit for each string, number and null of a complete reply, as encoded and decoded. An error reply is an
// error.
func walk(reply []byte, visit func(encoded, value []byte)) error {
	for len(reply) > 0 {
		line := bytes.IndexByte(reply, '\n') + 1
		if line < 3 {
			return protocolError("invalid reply")
		}
		value, length := reply[1:line-2], line
		switch reply[0] {
		case '*', '>', '%', '~':
			reply = reply[line:]
			continue
		case '-':
			return replyError(value)
		case '$':
			size, err := parseLength(reply[:line])
			if err != nil || size >= 0 && size > len(reply)-line-2 {
				return protocolError("invalid reply")
			}
			if value = nil; size >= 0 {
				length += size + 2
				value = reply[line : line+size]
			}
		case '_':
			value = nil
		case '+', ':':
		default:
			return protocolError("unexpected %q in a reply", reply[0])
		}
		visit(reply[:length], value)
		reply = reply[length:]
	}
	return nil
}
