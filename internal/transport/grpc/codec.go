package grpc

import (
	"bytes"
	"fmt"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// codec passes encoded events and data frames through gRPC. The bytes are those of the generated types. It leaves all
// other messages to gRPC's codec.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// outgoing is an encoded event.
type outgoing []byte

// incoming reads an encoded event, which it must not keep.
type incoming func(event []byte)

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case outgoing:
		return mem.BufferSlice{mem.SliceBuffer(v)}, nil
	case dataFrame:
		return mem.BufferSlice(v), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. An invalid frame is no error here, because gRPC would then end the stream
// without our reason.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case incoming:
		buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buf.Free()
		v(buf.ReadOnlyData())
		return nil
	case *tunnel.Frame:
		v.Err = decodeFrame(data, v)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// maxFrame is the maximum size of a frame.
const maxFrame = 64 << 10

// dataField is the tag of api.Frame.data.
var dataField = protowire.AppendTag(nil, (&api.Frame{}).ProtoReflect().Descriptor().Fields().ByName("data").Number(), protowire.BytesType)

// dataFrame is an encoded frame with data.
type dataFrame mem.BufferSlice

// newDataFrame encodes a frame with a copy of data. gRPC sends it later, when the caller may use data again.
func newDataFrame(data []byte) dataFrame {
	var head [8]byte
	prefix := protowire.AppendVarint(append(head[:0], dataField...), uint64(len(data)))
	switch n := len(prefix) + len(data); {
	case mem.IsBelowBufferPoolingThreshold(n):
		return dataFrame{mem.SliceBuffer(append(append(make([]byte, 0, n), prefix...), data...))}
	case n <= tunnel.MaxData: // the largest buffer of the pool that fits
		buf := mem.DefaultBufferPool().Get(n)
		copy((*buf)[copy(*buf, prefix):], data)
		return dataFrame{mem.NewBuffer(buf, mem.DefaultBufferPool())}
	default:
		return dataFrame{mem.SliceBuffer(bytes.Clone(prefix)), mem.Copy(data, mem.DefaultBufferPool())}
	}
}

// decodeFrame decodes a frame. If it only has data, as nearly all frames, the data is not copied.
func decodeFrame(b mem.BufferSlice, f *tunnel.Frame) error {
	size := b.Len()
	if size > maxFrame {
		return fmt.Errorf("a frame of %d bytes, at most %d are allowed", size, maxFrame)
	}
	var head [8]byte
	start := head[:b.CopyTo(head[:])]
	if rest, ok := bytes.CutPrefix(start, dataField); ok {
		if length, n := protowire.ConsumeVarint(rest); n > 0 && length == uint64(size-len(dataField)-n) {
			if length > 0 {
				data := b.Reader()
				_, _ = data.Discard(len(dataField) + n)
				f.Data = data
			}
			return nil
		}
	}
	var m api.Frame
	if err := proto.Unmarshal(b.Materialize(), &m); err != nil {
		return fmt.Errorf("an invalid frame: %w", err)
	}
	if len(m.GetToken()) > tunnel.MaxToken {
		return fmt.Errorf("a frame with a token of %d bytes", len(m.GetToken()))
	}
	if len(m.GetTarget()) > tunnel.MaxTarget {
		return fmt.Errorf("a frame with a target of %d bytes", len(m.GetTarget()))
	}
	f.Token, f.Target, f.End = m.GetToken(), m.GetTarget(), m.GetEnd()
	f.Reason = tunnel.SanitizeText(m.GetError(), tunnel.MaxReason)
	if len(m.GetData()) > 0 {
		f.Data = mem.BufferSlice{mem.SliceBuffer(m.GetData())}.Reader()
	}
	return nil
}
