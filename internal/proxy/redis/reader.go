package redis

import (
	"io"
)

// Buffers start small, because ten thousand clients do nothing most of the time, and grow with what arrives.
const (
	smallBuffer = 1 << 10
	bigBuffer   = 64 << 10
)

// buffer is a window of bytes that were read and not used.
type buffer struct {
	bytes    []byte
	r, w     int
	keep     int              // a size that is kept although everything was used; 0: bigBuffer
	borrowed *[bigBuffer]byte // what bytes are, if they are only lent; see socket
}

// fill reads once. want is how many unread bytes the caller would like to have: room is made as they arrive and not before.
func (b *buffer) fill(from io.Reader, want int) error {
	if s, ok := from.(*socket); ok && b.keep == 0 {
		return s.fill(b, want)
	}
	n, err := from.Read(b.room(want))
	b.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// room is where to read to.
func (b *buffer) room(want int) []byte {
	if b.r == b.w {
		b.r, b.w = 0, 0
		if len(b.bytes) > max(b.keep, bigBuffer) {
			b.bytes = nil // a giant passed; the next one is likely small
		}
	}
	if b.bytes == nil {
		b.bytes = make([]byte, max(b.keep, smallBuffer))
	}
	if free := len(b.bytes) - b.w; free == 0 || free < len(b.bytes)/4 && b.w-b.r < free {
		b.makeRoom(want)
	}
	return b.bytes[b.w:]
}

// makeRoom moves what is unread to the front, and doubles the buffer if it is full of that.
func (b *buffer) makeRoom(want int) {
	unread := b.bytes[b.r:b.w]
	if len(unread) <= len(b.bytes)/2 && want <= len(b.bytes) && len(b.bytes) >= bigBuffer {
		copy(b.bytes, unread)
	} else {
		size := 2 * len(b.bytes)
		if len(b.bytes) >= bigBuffer {
			size = min(max(want, size), 4*len(b.bytes))
		}
		grown := make([]byte, size)
		copy(grown, unread)
		b.bytes = grown
		b.giveBack()
	}
	b.r, b.w = 0, len(unread)
}

func (b *buffer) unread() []byte { return b.bytes[b.r:b.w] }

// reader cuts what a server sends into replies.
type reader struct {
	from io.Reader
	buf  buffer
	max  limits
	scan frame
}

func newReader(from io.Reader, bound limits) *reader {
	return &reader{from: from, max: bound}
}

// next returns one reply as it came. It is valid until the next call.
func (r *reader) next() ([]byte, error) {
	for {
		reply, err := r.buffered()
		if reply != nil || err != nil {
			return reply, err
		}
		if err := r.buf.fill(r.from, r.scan.need); err != nil {
			return nil, err
		}
	}
}

// buffered returns one reply if it has been read already.
func (r *reader) buffered() ([]byte, error) {
	unread := r.buf.unread()
	if len(unread) == 0 {
		return nil, nil
	}
	n, err := r.scan.end(unread, r.max)
	if n == 0 || err != nil {
		return nil, err
	}
	r.buf.r += n
	return unread[:n:n], nil
}
