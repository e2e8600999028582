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

func TestMessageArrivesAsItWasSent(t *testing.T) {
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

func TestBytesAreThoseOfTheGeneratedCode(t *testing.T) {
	forEachMessage(t, func(t *rapid.T, m engine.Message, meta Meta) {
		data, err := anypb.New(generated(m))
		if err != nil {
			t.Fatal(err)
		}
		name := string(data.MessageName().Name())
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.CloudEvent{
			Id:          fmt.Sprintf("%d.%d.%d", meta.Session.Incarnation, meta.Session.Attempt, meta.Seq),
			Source:      meta.Source,
			SpecVersion: "1.0",
			Type:        "io.argocd-agent.sync.v1." + string(bytes.ToLower([]byte(name))),
			Data:        &pb.CloudEvent_ProtoData{ProtoData: data},
		})
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

func TestEstimateIsLargeEnough(t *testing.T) {
	forEachMessage(t, func(t *rapid.T, m engine.Message, meta Meta) {
		switch m.(type) {
		case engine.Hello, engine.Welcome, engine.Roots, engine.Same, engine.Held, engine.WriteOutage, engine.Bye, engine.Open, engine.Finished:
			return // seldom, or small: they may grow
		}
		size := sizeOf(m)
		w := newWriter(size)
		if _, err := w.message(m); err != nil {
			t.Fatal(err)
		}
		if w.len() > size {
			t.Fatalf("%d bytes were estimated, %d written", size, w.len())
		}
	})
}

// TestEveryFieldTravels fails when the engine gets a field that the generators,
// and so probably the rest of this package, do not know.
func TestEveryFieldTravels(t *testing.T) {
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

func TestEveryMessageHasAReaderAndAGenerator(t *testing.T) {
	services := pb.File_argocdagent_v1_sync_proto.Messages()
	for name, entry := range readers {
		if name != entry.name.event {
			t.Errorf("reader %q is for %q", name, entry.name.event)
		}
		if messages[name] == nil {
			t.Errorf("no generator for %q", name)
		}
		if services.ByName(protoreflect.Name(entry.name.proto)) == nil {
			t.Errorf("sync.proto has no message %s", entry.name.proto)
		}
	}
	if len(messages) != len(readers) {
		t.Errorf("%d generators for %d messages", len(messages), len(readers))
	}
}
