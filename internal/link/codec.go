package link

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// codec moves events between gRPC and package wire without the generated types
// in between. On the wire it is what those would write, so peers built in any
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
	if event, ok := v.(outgoing); ok {
		return mem.BufferSlice{mem.SliceBuffer(event)}, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	in.size = buf.Len()
	in.message, in.meta, in.err = wire.Decode(buf.ReadOnlyData()) // keeps nothing of it
	return nil
}
