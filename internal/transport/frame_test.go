package transport

import (
	"bytes"
	"io"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
)

func TestFramesAreThoseOfTheContract(t *testing.T) {
	for _, size := range []int{1, 127, 128, 1020, 1024, 1025, 16 << 10, chunk - 5, chunk - 4, chunk - 3, chunk} {
		data := bytes.Repeat([]byte{'x'}, size)
		got := &api.Frame{}
		f := dataFrame(data)
		must(t, proto.Unmarshal(mem.BufferSlice(f).Materialize(), got))
		if !bytes.Equal(got.Data, data) || got.Token != "" || got.End || got.Error != "" {
			t.Errorf("%d bytes became %d", size, len(got.Data))
		}
		f.free()
	}
	for _, c := range []struct {
		frame outFrame
		want  *api.Frame
	}{
		{startFrame(""), &api.Frame{}},
		{startFrame("next"), &api.Frame{Token: "next"}},
		{firstFrame("token", "no"), &api.Frame{Token: "token", Error: "no"}},
		{endFrame(), &api.Frame{End: true}},
		{errorFrame("a\nb\xff"), &api.Frame{Error: "a b"}},
	} {
		got := &api.Frame{}
		must(t, proto.Unmarshal(mem.BufferSlice(c.frame).Materialize(), got))
		if !proto.Equal(got, c.want) {
			t.Errorf("%v instead of %v", got, c.want)
		}
	}
}

// FuzzFrame compares what we read with what the generated types read, however
// the bytes are cut into buffers.
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
		var got frame
		if err := got.decode(pieces); err != nil {
			return // what is wrong for us need not be for others
		}
		defer got.free()
		want := &api.Frame{}
		if proto.Unmarshal(b, want) != nil {
			return
		}
		var data []byte
		if got.data != nil {
			data, _ = io.ReadAll(got.data)
		}
		if !bytes.Equal(data, want.Data) || got.token != want.Token || got.end != want.End {
			t.Errorf("%+v with %q instead of %v", got, data, want)
		}
	})
}
