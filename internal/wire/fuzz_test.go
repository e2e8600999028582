package wire

import (
	"bytes"
	"path/filepath"
	"reflect"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
)

// FuzzDecode decodes arbitrary bytes, without a panic. The generated types and Encode must accept what Decode accepts,
// with the same result.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		f.Add(readDump(f, file))
	}
	f.Fuzz(checkDecode)
}

// FuzzMessage does the same inside a valid envelope.
func FuzzMessage(f *testing.F) {
	for name, kind := range kinds {
		env, err := readEvent(readDump(f, filepath.Join("testdata", name+".golden")))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kind.name, env.data)
	}
	f.Fuzz(func(t *testing.T, name string, message []byte) {
		if !utf8.ValidString(name) {
			t.Skip("protobuf cannot encode the name")
		}
		checkDecode(t, raw(name, message))
	})
}

func checkDecode(t *testing.T, event []byte) {
	t.Helper()
	before := bytes.Clone(event)
	m, meta, err := Decode(event)
	if !bytes.Equal(event, before) {
		t.Fatal("the input was changed")
	}
	if err != nil {
		if codeOf(err) == "" || err.Error() == "" {
			t.Fatalf("error without code or text: %#v", err)
		}
		return
	}
	if _, unknown := m.(Unknown); unknown {
		return
	}
	envelope := &pb.CloudEvent{}
	if err := proto.Unmarshal(event, envelope); err != nil {
		t.Fatalf("the generated code refuses the event: %v", err)
	}
	data := envelope.GetProtoData()
	if _, ok := envelope.GetData().(*pb.CloudEvent_BinaryData); ok {
		data = &anypb.Any{TypeUrl: urlPrefix + protoPrefix + "Equal", Value: envelope.GetBinaryData()}
	}
	message, err := anypb.UnmarshalNew(data, proto.UnmarshalOptions{})
	if err != nil {
		t.Fatalf("the generated code refuses the message: %v", err)
	}
	if want := generated(m); !proto.Equal(normal(message), normal(want)) {
		t.Fatalf("the generated code reads\n%v\nwhere we read\n%v", message, want)
	}
	again, err := Encode(m, meta)
	if err != nil {
		t.Fatalf("what was decoded cannot be encoded: %v", err)
	}
	m2, meta2, err := Decode(again)
	if err != nil || !reflect.DeepEqual(m, m2) || meta != meta2 {
		t.Fatalf("%#v became %#v (%v)", m, m2, err)
	}
}
