package redis

import (
	"bytes"
	"errors"
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

// decode returns the elements of a reply that is a string, null, a number or an array of these. A null element is nil.
func decode(reply []byte) ([][]byte, error) {
	if len(reply) == 0 {
		return nil, errors.New("empty reply")
	}
	if reply[0] != '*' && reply[0] != '>' {
		one, _, err := decodeOne(reply)
		return [][]byte{one}, err
	}
	count, at, err := decodeLength(reply)
	if err != nil {
		return nil, err
	}
	list := make([][]byte, 0, min(max(count, 0), 1024))
	for range count {
		one, n, err := decodeOne(reply[at:])
		if err != nil {
			return nil, err
		}
		list = append(list, one)
		at += n
	}
	return list, nil
}

// decodeLength reads the first line of a reply as a length, and returns the length of the line.
func decodeLength(reply []byte) (value, line int, err error) {
	if line = bytes.IndexByte(reply, '\n') + 1; line < 3 {
		return 0, 0, protocolError("invalid reply")
	}
	value, err = parseLength(reply[:line])
	return value, line, err
}

// decodeOne reads a string, a number or null, and returns its encoded length.
func decodeOne(b []byte) (value []byte, length int, err error) {
	line := bytes.IndexByte(b, '\n') + 1
	if line < 3 {
		return nil, 0, protocolError("invalid reply")
	}
	switch b[0] {
	case '$':
		size, err := parseLength(b[:line])
		if err == nil && size < 0 {
			return nil, line, nil
		}
		if err != nil || size > len(b)-line-2 {
			return nil, 0, protocolError("invalid reply")
		}
		return b[line : line+size], line + size + 2, nil
	case '+', ':':
		return b[1 : line-2], line, nil
	case '-':
		return nil, 0, replyError(b[1 : line-2])
	case '_':
		return nil, line, nil
	}
	return nil, 0, protocolError("unexpected %q in a reply", b[0])
}
