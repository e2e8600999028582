package wire

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func forEachMessage(t *testing.T, check func(t *rapid.T, m engine.Message, meta Meta)) {
	t.Helper()
	for name, message := range messages {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				check(t, message.Draw(t, "message"), anyMeta.Draw(t, "meta"))
			})
		})
	}
}

func TestRoundTrip_KeepsTheMessage(t *testing.T) {
	forEachMessage(t, func(t *rapid.T, m engine.Message, meta Meta) {
		event, err := Encode(m, meta)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		got, gotMeta, err := Decode(event)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Fatalf("sent     %#v\nreceived %#v", m, got)
		}
		if gotMeta != meta {
			t.Fatalf("sent     %#v\nreceived %#v", meta, gotMeta)
		}
	})
}

func TestEncode_HasTheBytesOfTheGeneratedTypes(t *testing.T) {
	forEachMessage(t, func(t *rapid.T, m engine.Message, meta Meta) {
		data, err := anypb.New(generated(m))
		if err != nil {
			t.Fatal(err)
		}
		name := string(data.MessageName().Name())
		event := &pb.CloudEvent{
			Id:          fmt.Sprintf("%d.%d.%d", meta.Session.Incarnation, meta.Session.Attempt, meta.Seq),
			Source:      meta.Source,
			SpecVersion: "1.0",
			Type:        "io.argocd-agent.sync.v1." + string(bytes.ToLower([]byte(name))),
			Data:        &pb.CloudEvent_ProtoData{ProtoData: data},
		}
		if name == "Equal" {
			event.Data = &pb.CloudEvent_BinaryData{BinaryData: data.GetValue()}
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Encode(m, meta)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("ours      %x\ngenerated %x", got, want)
		}
	})
}

// The test fails if the engine has a field that the generators, and probably the rest of this package, do not know.
func TestGenerators_SetEveryField(t *testing.T) {
	set := map[string]bool{}
	all := map[string]bool{}
	for _, message := range messages {
		for seed := range 300 {
			collectFields(reflect.ValueOf(message.Example(seed)), set, all)
		}
	}
	for field := range all {
		if !set[field] {
			t.Errorf("%s is never generated: is it encoded and decoded?", field)
		}
	}
}

func collectFields(v reflect.Value, set, all map[string]bool) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Name() + "." + v.Type().Field(i).Name
			all[name] = true
			if !v.Field(i).IsZero() {
				set[name] = true
			}
			collectFields(v.Field(i), set, all)
		}
	case reflect.Slice:
		for i := range v.Len() {
			collectFields(v.Index(i), set, all)
		}
	}
}

func TestKinds_HaveAGeneratorEach(t *testing.T) {
	for name := range kinds {
		if messages[name] == nil {
			t.Errorf("no generator for %q", name)
		}
	}
	if len(messages) != len(kinds) {
		t.Errorf("%d generators for %d messages", len(messages), len(kinds))
	}
}

func TestTable_CoversStringsBytesAndLists(t *testing.T) {
	used := map[protoreflect.FullName]bool{}
	var check func(m protoreflect.MessageDescriptor)
	check = func(m protoreflect.MessageDescriptor) {
		if int(m.Fields().Get(m.Fields().Len()-1).Number()) >= 32 {
			t.Errorf("%s has a field number that validate does not count", m.Name())
		}
		for i := range m.Fields().Len() {
			d := m.Fields().Get(i)
			name := d.FullName()[len(protoPrefix):]
			l := table[name]
			used[name] = true
			switch kind := d.Kind(); {
			case kind == protoreflect.StringKind && l.str == nil:
				t.Errorf("%s has no rule", name)
			case kind == protoreflect.BytesKind && l.size == 0 && !l.hash:
				t.Errorf("%s has no size", name)
			case d.IsList() && l.entries == 0:
				t.Errorf("%s has no number of entries", name)
			case !d.IsList() && l.entries != 0:
				t.Errorf("%s is not a list", name)
			}
		}
		for i := range m.Messages().Len() {
			check(m.Messages().Get(i))
		}
	}
	all := pb.File_argocdagent_v1_sync_proto.Messages()
	for i := range all.Len() {
		check(all.Get(i))
	}
	for name := range table {
		if !used[name] {
			t.Errorf("there is no field %s", name)
		}
	}
}
