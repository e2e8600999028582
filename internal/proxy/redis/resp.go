package redis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	maxLine       = 64 << 10 // inline command, simple string, error
	maxArguments  = 1 << 20
	maxElements   = 1 << 31
	firstBulk     = 16 << 10 // for a client that has not authenticated, as in Redis
	firstElements = 16
	largeFrame    = 1 << 20  // frames of this size need a reservation, see limits.reserve
	bufferSize    = 16 << 10 // of a bufio.Reader or bufio.Writer
	keepBuffer    = 32 << 10 // larger buffers are released after use
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

	// widen returns other limits for a frame that exceeds these. If nil, such a frame is an error.
	widen func() (limits, bool)
	// reserve is called before a frame grows to n bytes, if n is at least largeFrame. It can block. If nil, memory is
	// not reserved.
	reserve func(n int) error
}

func (l *limits) allow(bulk, elements, total int) bool {
	within := func() bool { return bulk <= l.bulk && elements <= l.elements && total <= l.total }
	if !within() && l.widen != nil {
		if wider, ok := l.widen(); ok {
			*l = wider
		}
	}
	return within()
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
func readBulk(r *bufio.Reader, out []byte, n int, bound *limits) ([]byte, error) {
	if total := len(out) + n + 2; total >= largeFrame && bound.reserve != nil {
		if err := bound.reserve(total); err != nil {
			return out, err
		}
	}
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

// command is one request of a client. It is valid until the next one is read.
type command struct {
	raw    []byte   // in the form that Redis receives
	args   [][]byte // the name first
	inline bool     // was received as text
}

// commandReader reads requests.
type commandReader struct {
	r      *bufio.Reader
	limits limits

	raw  []byte
	ends [][2]int // of the arguments in raw
	args [][]byte
}

func newCommandReader(from io.Reader, bound limits) *commandReader {
	return &commandReader{r: bufio.NewReaderSize(from, bufferSize), limits: bound}
}

// next returns the next request. It skips empty ones, as Redis does.
func (cr *commandReader) next() (command, error) {
	for {
		c, err := cr.one()
		if err != nil || len(c.args) > 0 {
			return c, err
		}
	}
}

func (cr *commandReader) one() (command, error) {
	if cap(cr.raw) > keepBuffer || cap(cr.args) > 1024 {
		cr.raw, cr.ends, cr.args = nil, nil, nil
	}
	raw, err := readLine(cr.r, cr.raw[:0])
	if err != nil {
		return command{}, err
	}
	if raw[0] != '*' {
		return cr.inline(raw)
	}
	bound := cr.limits
	count, err := parseLength(raw)
	if err != nil {
		return command{}, err
	}
	if count > maxArguments || !bound.allow(0, count, 0) {
		return command{}, protocolError("invalid multibulk length")
	}
	cr.ends, cr.args = cr.ends[:0], cr.args[:0]
	for range count {
		start := len(raw)
		if raw, err = readLine(cr.r, raw); err != nil {
			return command{}, err
		}
		if raw[start] != '$' {
			return command{}, protocolError("expected '$', got %q", raw[start])
		}
		size, err := parseLength(raw[start:])
		if err != nil {
			return command{}, err
		}
		if size < 0 || !bound.allow(size, count, len(raw)+size+2) {
			return command{}, protocolError("invalid bulk length")
		}
		start = len(raw)
		if raw, err = readBulk(cr.r, raw, size, &bound); err != nil {
			return command{}, err
		}
		cr.ends = append(cr.ends, [2]int{start, start + size})
	}
	for _, at := range cr.ends {
		cr.args = append(cr.args, raw[at[0]:at[1]:at[1]])
	}
	cr.raw = raw
	return command{raw: raw, args: cr.args}, nil
}

// inline reads a request that a user typed. Quotes are not supported.
func (cr *commandReader) inline(line []byte) (command, error) {
	bound := cr.limits
	if !bound.allow(len(line), 0, len(line)) {
		return command{}, protocolError("too big inline request")
	}
	if bytes.ContainsAny(line, "\"'\\\x00") {
		return command{}, protocolError("quotes in an inline request")
	}
	args := bytes.Fields(line)
	return command{raw: appendCommand(nil, args...), args: args, inline: true}, nil
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
	out, bound, elements := rr.buf[:0], rr.limits, 0
	for left := 1; left > 0; left-- {
		start := len(out)
		var err error
		if out, err = readLine(rr.r, out); err != nil {
			return nil, err
		}
		switch kind := out[start]; kind {
		case '+', '-', ':', '_', '#', ',', '(':
		case '$', '=', '!':
			size, err := parseLength(out[start:])
			if err != nil {
				return nil, err
			}
			if size < -1 || !bound.allow(size, 0, len(out)+size) {
				return nil, protocolError("invalid bulk length")
			}
			if size >= 0 {
				if out, err = readBulk(rr.r, out, size, &bound); err != nil {
					return nil, err
				}
			}
		case '*', '>', '~', '%', '|':
			count, err := parseLength(out[start:])
			if err != nil {
				return nil, err
			}
			if count < -1 {
				return nil, protocolError("invalid multibulk length")
			}
			count = max(count, 0)
			if kind == '%' || kind == '|' {
				count *= 2
			}
			if kind == '|' {
				count++ // an attribute precedes a value
			}
			if elements += count; !bound.allow(0, elements, len(out)) {
				return nil, protocolError("invalid multibulk length")
			}
			left += count
		default:
			return nil, protocolError("unexpected %q", kind)
		}
	}
	if rr.buf = out; cap(out) > keepBuffer {
		rr.buf = nil
	}
	return out, nil
}
