package redis

import (
	"errors"
	"strconv"
	"strings"
)

// appendCommand writes a request.
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

// appendNil writes that there is no value.
func appendNil(out []byte, proto int) []byte {
	if proto >= 3 {
		return append(out, "_\r\n"...)
	}
	return append(out, "$-1\r\n"...)
}

// errorReply is an error. Whatever would end the line early becomes a space.
func errorReply(message string) []byte {
	out := []byte{'-'}
	out = append(out, strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, message)...)
	return append(out, '\r', '\n')
}

// messageReply is what a subscriber gets when something was published.
func messageReply(proto int, parts ...string) []byte {
	kind := byte('*')
	if proto >= 3 {
		kind = '>'
	}
	out := appendHeader(nil, kind, len(parts))
	for _, part := range parts {
		out = appendBulk(out, part)
	}
	return out
}

// replyError is an error that Redis or a relay answered.
type replyError string

func (e replyError) Error() string { return string(e) }

// bulks reads a reply that is a string, nil, a number or an array of those. nil elements are nil slices.
func bulks(reply []byte) ([][]byte, error) {
	if len(reply) == 0 {
		return nil, errors.New("empty reply")
	}
	kind := reply[0]
	if kind != '*' && kind != '>' {
		one, _, err := bulk(reply)
		return [][]byte{one}, err
	}
	count, at, err := header(reply)
	if err != nil || at == 0 {
		return nil, protocolError("invalid reply")
	}
	list := make([][]byte, 0, min(max(count, 0), 1024))
	for range count {
		one, n, err := bulk(reply[at:])
		if err != nil {
			return nil, err
		}
		list = append(list, one)
		at += n
	}
	return list, nil
}

// bulk reads one string, number or nil, and tells its length on the wire.
func bulk(b []byte) ([]byte, int, error) {
	if len(b) == 0 {
		return nil, 0, protocolError("invalid reply")
	}
	switch b[0] {
	case '$':
		size, head, err := header(b)
		if err == nil && head > 0 && size < 0 {
			return nil, head, nil
		}
		if err != nil || head == 0 || size > int64(len(b)-head-2) {
			return nil, 0, protocolError("invalid reply")
		}
		return b[head : head+int(size)], head + int(size) + 2, nil
	case '+', ':', '-':
		n, err := line(b)
		if err != nil || n < 3 {
			return nil, 0, protocolError("invalid reply")
		}
		if b[0] == '-' {
			return nil, 0, replyError(b[1 : n-2])
		}
		return b[1 : n-2], n, nil
	case '_':
		n, err := line(b)
		return nil, n, err
	}
	return nil, 0, protocolError("unexpected %q in a reply", b[0])
}
