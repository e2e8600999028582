package grpc

import (
	"bytes"
	"io"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

func TestDataFrame_HasTheFormOfTheGeneratedType(t *testing.T) {
	for _, size := range []int{1, 127, 128, 1020, 1024, 1025, 16 << 10, tunnel.MaxData - 5, tunnel.MaxData - 4, tunnel.MaxData - 3, tunnel.MaxData} {
		data := bytes.Repeat([]byte{'x'}, size)
		frame := mem.BufferSlice(newDataFrame(data))
		want, err := proto.Marshal(&api.Frame{Data: data})
		must(t, err)
		if got := frame.Materialize(); !bytes.Equal(got, want) {
			t.Errorf("%d bytes became %d instead of %d", size, len(got), len(want))
		}
		frame.Free()
	}
}

func TestDecodeFrame_SanitizesTheReason(t *testing.T) {
	b, err := proto.Marshal(&api.Frame{Error: "a\nb"})
	must(t, err)
	var f tunnel.Frame
	must(t, decodeFrame(mem.BufferSlice{mem.SliceBuffer(b)}, &f))
	if f.Reason != "a b" {
		t.Errorf("reason %q", f.Reason)
	}
}

func TestDecodeFrame_RejectsFramesBeyondTheLimits(t *testing.T) {
	for name, frame := range map[string]*api.Frame{
		"frame":  {Data: make([]byte, maxFrame)},
		"token":  {Token: string(bytes.Repeat([]byte{'x'}, tunnel.MaxToken+1))},
		"target": {Target: string(bytes.Repeat([]byte{'x'}, tunnel.MaxTarget+1))},
	} {
		b, err := proto.Marshal(frame)
		must(t, err)
		if err := decodeFrame(mem.BufferSlice{mem.SliceBuffer(b)}, &tunnel.Frame{}); err == nil {
			t.Errorf("a %s that is too long was accepted", name)
		}
	}
}

// FuzzFrame compares our frames with the generated type, for all ways to cut the bytes into buffers.
func FuzzFrame(f *testing.F) {
	for _, frame := range []*api.Frame{{}, {Data: []byte("data")}, {Token: "t", Data: []byte("d"), End: true, Error: "e"}, {Data: make([]byte, 300)}} {
		b, err := proto.Marshal(frame)
		must(f, err)
		f.Add(b, 1)
		f.Add(b, 100)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		pieces := mem.BufferSlice{mem.SliceBuffer(b)}
		if cut > 0 && cut < len(b) {
			pieces = mem.BufferSlice{mem.SliceBuffer(b[:cut]), mem.SliceBuffer(b[cut:])}
		}
		var got tunnel.Frame
		if err := decodeFrame(pieces, &got); err != nil {
			return // our limits are narrower
		}
		want := &api.Frame{}
		if err := proto.Unmarshal(b, want); err != nil {
			t.Fatalf("the generated type rejects the frame: %v", err)
		}
		var data []byte
		if got.Data != nil {
			data, _ = io.ReadAll(got.Data)
			_ = got.Data.Close()
		}
		if !bytes.Equal(data, want.Data) || got.Token != want.Token || got.Target != want.Target || got.End != want.End {
			t.Errorf("%+v with %q instead of %v", got, data, want)
		}
	})
}
