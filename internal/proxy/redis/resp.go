package redis

import (
	"bytes"
	"errors"
	"fmt"
)

// Limits of what is read. A length is compared with them before anything is allocated for it.
const (
	maxLine       = 64 << 10 // an inline command, a simple string, an error
	maxArguments  = 1 << 20
	maxElements   = 1 << 31
	firstBulk     = 16 << 10 // of a client that has not authenticated, as in Redis
	firstElements = 16
)

// errProtocol is wrapped by all complaints about bytes that are not RESP.
var errProtocol = errors.New("Protocol error") //nolint:staticcheck // as Redis words it: clients see it

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errProtocol}, args...)...)
}

// limits bound one frame.
type limits struct {
	bulk     int // bytes of one string
	elements int // of all arrays of the frame together
	total    int // bytes of the frame
}

// header reads "<type><number>\r\n" at the start of b. n is the length of the line, 0 if it is not complete.
func header(b []byte) (value int64, n int, err error) {
	i, negative := 1, false
	if len(b) > 1 && b[1] == '-' {
		i, negative = 2, true
	}
	start := i
	for ; i < len(b); i++ {
		c := b[i]
		if c == '\r' {
			break
		}
		if c < '0' || c > '9' || i-start > 18 {
			return 0, 0, protocolError("invalid length")
		}
		value = value*10 + int64(c-'0')
	}
	if i+1 >= len(b) {
		return 0, 0, nil
	}
	if b[i+1] != '\n' || i == start || b[start] == '0' && (i > start+1 || negative) {
		return 0, 0, protocolError("invalid length") // Redis would end a connection that others share, for zeros in front too
	}
	if negative {
		value = -value
	}
	return value, i + 2, nil
}

// line returns the length of the line at the start of b with its end; 0 if it is not complete.
func line(b []byte) (int, error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		if len(b) > maxLine {
			return 0, protocolError("too big inline request")
		}
		return 0, nil
	}
	if end > maxLine {
		return 0, protocolError("too big inline request")
	}
	return end + 1, nil
}

// frame finds the end of the value that b starts with, without looking into strings. It can be called again with more
// bytes and goes on where it stopped, so that a long value that arrives in pieces is passed over once.
type frame struct {
	started bool
	left    int64 // values still to come
	at      int   // everything before is complete
	need    int   // so many bytes are needed before there is more to see; for the reader's buffer
}

// end returns the length of the first value in b, 0 if it is not complete. After it the frame is ready for the next.
func (f *frame) end(b []byte, bound limits) (int, error) {
	if !f.started {
		*f = frame{started: true, left: 1}
	}
	for f.left > 0 {
		if f.at >= len(b) {
			return 0, nil
		}
		n, err := f.one(b[f.at:], bound)
		if err != nil {
			return 0, err
		}
		if f.need > bound.total {
			return 0, protocolError("a value of more than %d bytes", bound.total)
		}
		if n == 0 {
			return 0, nil
		}
	}
	n := f.at
	*f = frame{}
	return n, nil
}

// one passes over one header, with the string that follows it. It returns 0 if that is not complete.
func (f *frame) one(b []byte, bound limits) (int, error) {
	var n int
	var more int64
	switch b[0] {
	case '+', '-', ':', '_', '#', ',', '(':
		end, err := line(b)
		if err != nil || end == 0 {
			return 0, err
		}
		n = end
	case '$', '=', '!':
		size, head, err := header(b)
		if err != nil || head == 0 {
			return 0, err
		}
		if size > int64(bound.bulk) || size < -1 {
			return 0, protocolError("invalid bulk length")
		}
		n = head
		if size >= 0 {
			n += int(size) + 2
		}
		f.need = f.at + n
		if len(b) < n {
			return 0, nil
		}
		if size >= 0 && (b[n-2] != '\r' || b[n-1] != '\n') {
			return 0, protocolError("a string that is longer than it says")
		}
	case '*', '>', '~', '%', '|':
		count, head, err := header(b)
		if err != nil || head == 0 {
			return 0, err
		}
		if count > int64(bound.elements) || count < -1 {
			return 0, protocolError("invalid multibulk length")
		}
		n, more = head, count
		if b[0] == '%' || b[0] == '|' {
			more *= 2
		}
		if b[0] == '|' {
			more++ // an attribute stands before a value and is none itself
		}
		more = max(more, 0)
	default:
		return 0, protocolError("unexpected %q", b[0])
	}
	f.left += more - 1
	f.at += n
	if f.left > int64(bound.elements) {
		return 0, protocolError("invalid multibulk length")
	}
	return n, nil
}

// command is one request of a client. Its parts belong to the buffer from which it was read.
type command struct {
	raw    []byte   // as Redis shall see it
	args   [][]byte // with the name first; empty: an empty line, which means nothing
	length int      // of what was read
}

// readCommand reads the request that b starts with. A length of 0 says that it is not complete; need then says how many
// bytes it has at least.
func readCommand(b []byte, args [][]byte, bound limits) (c command, need int, err error) {
	if len(b) == 0 {
		return command{}, 1, nil
	}
	if b[0] != '*' {
		return readInline(b, args, bound)
	}
	count, at, err := header(b)
	if err != nil || at == 0 {
		return command{}, len(b) + 1, err
	}
	if count > int64(bound.elements) || count > maxArguments {
		return command{}, 0, protocolError("invalid multibulk length")
	}
	for range count {
		if at >= len(b) {
			return command{}, at + 1, nil
		}
		if b[at] != '$' {
			return command{}, 0, protocolError("expected '$', got %q", b[at])
		}
		size, head, err := header(b[at:])
		if err != nil {
			return command{}, 0, err
		}
		if head == 0 {
			return command{}, len(b) + 1, nil
		}
		if size < 0 || size > int64(bound.bulk) {
			return command{}, 0, protocolError("invalid bulk length")
		}
		start := at + head
		at = start + int(size) + 2
		if at > bound.total {
			return command{}, 0, protocolError("a request of more than %d bytes", bound.total)
		}
		if at > len(b) {
			return command{}, at, nil
		}
		if b[at-2] != '\r' || b[at-1] != '\n' {
			return command{}, 0, protocolError("a string that is longer than it says")
		}
		args = append(args, b[start:at-2:at-2])
	}
	return command{raw: b[:at:at], args: args, length: at}, 0, nil
}

// readInline reads a request typed by a person. Redis gets it in the other form; quotes are not worth the effort.
func readInline(b []byte, args [][]byte, bound limits) (command, int, error) {
	n, err := line(b)
	if err != nil || n == 0 {
		return command{}, len(b) + 1, err
	}
	if n > bound.bulk {
		return command{}, 0, protocolError("too big inline request")
	}
	if bytes.ContainsAny(b[:n], "\"'\\\x00") {
		return command{}, 0, protocolError("quotes in an inline request")
	}
	args = append(args, bytes.Fields(b[:n])...)
	c := command{args: args, length: n}
	if len(args) > 0 {
		c.raw = appendCommand(nil, args...)
	}
	return c, 0, nil
}
