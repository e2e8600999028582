package transport

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// chunk is how much of a tunnel's data goes into one frame. It is the largest
	// buffer that gRPC's pool has in a fitting size.
	chunk = 32 << 10

	// maxFrame is the size of a frame that is taken from a peer.
	maxFrame = 64 << 10

	maxToken  = 256
	maxReason = 1024
	maxTarget = 64
)

// The fields of api.Frame.
const (
	frameToken = 1
	frameData  = 2
	frameEnd   = 3
	frameError = 4

	frameTarget = 5
)

// outFrame is a frame, encoded. SendMsg takes it over.
type outFrame mem.BufferSlice

func (f outFrame) free() { mem.BufferSlice(f).Free() }

// dataFrame makes a frame of at most chunk bytes. It copies them, once: who
// writes may use them again, while gRPC sends them later.
func dataFrame(p []byte) outFrame {
	var head [8]byte
	prefix := protowire.AppendTag(head[:0], frameData, protowire.BytesType)
	prefix = protowire.AppendVarint(prefix, uint64(len(p)))
	switch n := len(prefix) + len(p); {
	case mem.IsBelowBufferPoolingThreshold(n): // not worth a place in the pool
		return outFrame{mem.SliceBuffer(append(append(make([]byte, 0, n), prefix...), p...))}
	case n <= chunk:
		buf := mem.DefaultBufferPool().Get(n)
		copy((*buf)[copy(*buf, prefix):], p)
		return outFrame{mem.NewBuffer(buf, mem.DefaultBufferPool())}
	default:
		return outFrame{mem.SliceBuffer(bytes.Clone(prefix)), mem.Copy(p, mem.DefaultBufferPool())}
	}
}

// startFrame says that a tunnel is in use, and may ask for another.
func startFrame(next string) outFrame {
	if next == "" {
		return outFrame{}
	}
	return firstFrame(next, "")
}

// endFrame says that no more data follows.
func endFrame() outFrame {
	b := protowire.AppendTag(nil, frameEnd, protowire.VarintType)
	return outFrame{mem.SliceBuffer(protowire.AppendVarint(b, 1))}
}

// firstFrame is the agent's, with a reason if there can be no tunnel.
func firstFrame(token, reason string) outFrame {
	b := protowire.AppendTag(nil, frameToken, protowire.BytesType)
	b = protowire.AppendString(b, token)
	return outFrame{mem.SliceBuffer(appendReason(b, reason))}
}

// targetFrame is the first of an agent that wants to connect to the hub.
func targetFrame(target string) outFrame {
	b := protowire.AppendTag(nil, frameTarget, protowire.BytesType)
	return outFrame{mem.SliceBuffer(protowire.AppendString(b, target))}
}

// errorFrame says why a tunnel broke.
func errorFrame(reason string) outFrame { return outFrame{mem.SliceBuffer(appendReason(nil, reason))} }

func appendReason(b []byte, reason string) []byte {
	if reason == "" {
		return b
	}
	b = protowire.AppendTag(b, frameError, protowire.BytesType)
	return protowire.AppendString(b, readable(reason, maxReason))
}

// frame is a frame, decoded. Its data has to be closed. A broken one is no error
// of the stream, which gRPC would end without our words.
type frame struct {
	token  string
	target string
	data   *mem.Reader // nil: none
	end    bool
	reason string
	err    error
}

func (f *frame) free() {
	if f.data != nil {
		_ = f.data.Close()
	}
}

// decode reads a frame. One that has nothing but data, as nearly all have, is
// not copied.
func (f *frame) decode(b mem.BufferSlice) error {
	size := b.Len()
	if size > maxFrame {
		return fmt.Errorf("a frame of %d bytes exceeds the limit of %d", size, maxFrame)
	}
	var head [8]byte
	start := head[:b.CopyTo(head[:])]
	if number, kind, n := protowire.ConsumeTag(start); n > 0 && number == frameData && kind == protowire.BytesType {
		if length, m := protowire.ConsumeVarint(start[n:]); m > 0 && length == uint64(size-n-m) {
			if length > 0 {
				f.data = b.Reader()
				_, _ = f.data.Discard(n + m) // as many as there are
			}
			return nil
		}
	}
	return f.parse(b.Materialize())
}

// parse reads a frame of any form.
func (f *frame) parse(b []byte) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("a broken frame: %w", protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return fmt.Errorf("a broken frame: field %d: %w", number, protowire.ParseError(size))
		}
		if err := f.field(number, kind, b[n:n+size]); err != nil {
			return err
		}
		b = b[n+size:]
	}
	return nil
}

func (f *frame) field(number protowire.Number, kind protowire.Type, b []byte) error {
	switch {
	case number == frameEnd && kind == protowire.VarintType:
		v, _ := protowire.ConsumeVarint(b)
		f.end = v != 0
	case kind != protowire.BytesType: // a newer peer's
	case number == frameToken:
		v, _ := protowire.ConsumeBytes(b)
		if len(v) > maxToken {
			return fmt.Errorf("a frame with a token of %d bytes", len(v))
		}
		f.token = string(v)
	case number == frameData:
		v, _ := protowire.ConsumeBytes(b)
		f.data = nil // the last one counts
		if len(v) > 0 {
			f.data = mem.BufferSlice{mem.SliceBuffer(v)}.Reader()
		}
	case number == frameTarget:
		v, _ := protowire.ConsumeBytes(b)
		if len(v) > maxTarget {
			return fmt.Errorf("a frame with a target of %d bytes", len(v))
		}
		f.target = string(v)
	case number == frameError:
		v, _ := protowire.ConsumeBytes(b)
		f.reason = readable(string(v), maxReason)
	}
	return nil
}

// readable makes a text of a peer fit for logs and messages.
func readable(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
