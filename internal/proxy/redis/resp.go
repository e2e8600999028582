package redis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	maxLine      = 64 << 10 // simple string, error
	maxArguments = 1 << 20
	maxElements  = 1 << 31
	largeFrame   = 1 << 20  // frames of this size need a reservation, see limits.reserve
	bufferSize   = 8 << 10  // of a bufio.Reader or bufio.Writer
	keepBuffer   = 32 << 10 // larger buffers are released after use

	keepArguments = 64 // the same for the list of arguments
)

// errProtocol is wrapped by all errors about input that is not RESP.
var errProtocol = errors.New("Protocol error") // the text that Redis uses

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errProtocol}, args...)...)
}

// limits bound one request or reply. Lengths are checked before memory is allocated for them.
type limits struct {
	bulk     int // bytes of one string
	elements int // of all arrays together
	total    int // bytes of the frame

	// reserve is called before a frame grows to n bytes, if n is at least largeFrame. It can block. If nil, memory is
	// not reserved.
	reserve func(n int) error
}

// allow returns an error with a message if a frame would exceed the limits.
func (l *limits) allow(bulk, elements, total int, message string) error {
	if bulk > l.bulk || elements > l.elements || total > l.total {
		return protocolError(message)
	}
	if total >= largeFrame && l.reserve != nil {
		return l.reserve(total)
	}
	return nil
}

// readLine appends one line, with its end, to out.
func readLine(r *bufio.Reader, out []byte) ([]byte, error) {
	for start := len(out); ; {
		part, err := r.ReadSlice('\n')
		out = append(out, part...)
		switch {
		case len(out)-start >= maxLine:
			return out, protocolError("too big inline request")
		case err == nil:
			return out, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return out, err
		}
	}
}

// parseLength reads "<type><number>\r\n". It rejects the forms that Redis rejects, such as leading zeros.
func parseLength(line []byte) (int, error) {
	digits, ended := bytes.CutSuffix(line[1:], []byte("\r\n"))
	digits, negative := bytes.CutPrefix(digits, []byte("-"))
	if !ended || len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && (len(digits) > 1 || negative) {
		return 0, protocolError("invalid length")
	}
	value := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, protocolError("invalid length")
		}
		value = value*10 + int(c-'0')
	}
	if negative {
		value = -value
	}
	return value, nil
}

// readBulk appends a string of n bytes, with its end, to out. Memory grows with the bytes that arrive.
func readBulk(r *bufio.Reader, out []byte, n int) ([]byte, error) {
	for left := n + 2; left > 0; {
		chunk := min(left, max(keepBuffer, len(out)))
		out = slices.Grow(out, chunk)
		got, err := io.ReadFull(r, out[len(out):len(out)+chunk])
		out, left = out[:len(out)+got], left-got
		if err != nil {
			return out, err
		}
	}
	if !bytes.HasSuffix(out, []byte("\r\n")) {
		return out, protocolError("a string is longer than declared")
	}
	return out, nil
}

// commandReader reads requests. Each request is the name of a command and its arguments. Requests as plain text are not
// supported: no client library sends them, and a browser could.
type commandReader struct {
	r      *bufio.Reader
	limits limits

	// The last request, until the next one is read. raw is also the only encoding of args, because parseLength accepts
	// one form of each number. So Redis reads the same request from these bytes.
	raw  []byte
	args [][]byte
}

func newCommandReader(from io.Reader, bound limits) *commandReader {
	return &commandReader{r: bufio.NewReaderSize(from, bufferSize), limits: bound}
}

// next returns the next request, which is valid until the next call. It skips empty ones, as Redis does.
func (cr *commandReader) next() ([][]byte, error) {
	for {
		clear(cr.args)
		if cap(cr.raw) > keepBuffer || cap(cr.args) > keepArguments {
			cr.raw, cr.args = nil, nil
		}
		cr.raw, cr.args = cr.raw[:0], cr.args[:0]
		if err := cr.one(); err != nil || len(cr.args) > 0 {
			return cr.args, err
		}
	}
}

func (cr *commandReader) one() error {
	count, err := cr.length('*')
	if err == nil && count > maxArguments {
		err = protocolError("invalid multibulk length")
	}
	if err == nil {
		err = cr.limits.allow(0, count, 0, "invalid multibulk length")
	}
	if err != nil {
		return err
	}
	for range count {
		size, err := cr.length('$')
		if err == nil && size < 0 {
			err = protocolError("invalid bulk length")
		}
		if err == nil {
			err = cr.limits.allow(size, count, len(cr.raw)+size+2, "invalid bulk length")
		}
		if err != nil {
			return err
		}
		start := len(cr.raw)
		if cr.raw, err = readBulk(cr.r, cr.raw, size); err != nil {
			return err
		}
		cr.args = append(cr.args, cr.raw[start:start+size:start+size])
	}
	return nil
}

// length reads the length in a line of a type.
func (cr *commandReader) length(kind byte) (n int, err error) {
	start := len(cr.raw)
	if cr.raw, err = readLine(cr.r, cr.raw); err != nil {
		return 0, err
	}
	line := cr.raw[start:]
	if line[0] != kind {
		return 0, protocolError("expected %q, got %q", kind, line[0])
	}
	return parseLength(line)
}

// replyReader reads replies.
type replyReader struct {
	r      *bufio.Reader
	limits limits
	buf    []byte
}

func newReplyReader(from io.Reader, bound limits) *replyReader {
	return &replyReader{r: bufio.NewReaderSize(from, bufferSize), limits: bound}
}

// next returns one reply as it was received. It is valid until the next call.
func (rr *replyReader) next() ([]byte, error) {
	out, elements := rr.buf[:0], 0
	for left := 1; left > 0; left-- {
		start := len(out)
		var err error
		if out, err = readLine(rr.r, out); err != nil {
			return nil, err
		}
		kind, n := out[start], 0
		if strings.IndexByte("$=!*>~%|", kind) >= 0 {
			if n, err = parseLength(out[start:]); err == nil && n < -1 {
				err = protocolError("invalid length")
			}
			if err != nil {
				return nil, err
			}
		}
		switch kind {
		case '+', '-', ':', '_', '#', ',', '(':
		case '$', '=', '!':
			if err = rr.limits.allow(n, 0, len(out)+n+2, "invalid bulk length"); err == nil && n >= 0 {
				out, err = readBulk(rr.r, out, n)
			}
		case '*', '>', '~', '%', '|':
			n = max(n, 0)
			if kind == '%' || kind == '|' {
				n *= 2
			}
			if kind == '|' {
				n++ // an attribute precedes a value
			}
			elements += n
			left += n
			err = rr.limits.allow(0, elements, len(out), "invalid multibulk length")
		default:
			err = protocolError("unexpected %q", kind)
		}
		if err != nil {
			return nil, err
		}
	}
	if rr.buf = out; cap(out) > keepBuffer {
		rr.buf = nil
	}
	return out, nil
}
