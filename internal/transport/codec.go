package transport

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// codec moves events between gRPC and package wire, and frames of tunnels,
// without the generated types in between. On the wire it is what those would write, so peers built in any
// other way fit. Other messages it leaves to gRPC's own codec.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// outgoing is an event, encoded.
type outgoing []byte

// incoming is an event, decoded. A broken one is no error of the stream: the
// reader has to say goodbye properly.
type incoming struct {
	message engine.Message
	meta    wire.Meta
	size    int
	err     error
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case outgoing:
		return mem.BufferSlice{mem.SliceBuffer(v)}, nil
	case outFrame:
		return mem.BufferSlice(v), nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	var in *incoming
	switch v := v.(type) {
	case *incoming:
		in = v
	case *frame:
		v.err = v.decode(data)
		return nil
	default:
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	in.size = buf.Len()
	in.message, in.meta, in.err = wire.Decode(buf.ReadOnlyData()) // keeps nothing of it
	return nil
}
