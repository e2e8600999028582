package wire

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestDecode_RejectsInvalidNames(t *testing.T) {
	for _, key := range []engine.Key{
		{},
		{Namespace: "a"},
		{Name: "Upper"},
		{Name: "a_b"},
		{Name: "-a"},
		{Name: "a-"},
		{Name: "a..b"},
		{Name: ".a"},
		{Name: "a."},
		{Name: "a/b"},
		{Name: "../a"},
		{Name: "a\x00"},
		{Name: "ä"},
		{Name: "a", Namespace: "a.b"},
		{Name: "a", Namespace: "A"},
		{Name: "a", Namespace: "a/b"},
	} {
		m := engine.Finished{Scope: "s", Key: key}
		if _, err := Encode(m, someMeta); codeOf(err) != engine.BadMessage {
			t.Errorf("encode %q: %v", key, err)
		}
		if _, _, err := Decode(foreign(t, m)); codeOf(err) != engine.BadMessage {
			t.Errorf("decode %q: %v", key, err)
		}
	}
}

func TestDecode_RejectsInconsistentMessages(t *testing.T) {
	sum := make([]byte, 16)
	for name, m := range map[string]proto.Message{
		"no scope":              &pb.Ask{},
		"scope with a space":    &pb.Ask{Scope: "a b"},
		"root without scope":    &pb.Roots{Items: []*pb.Root{{}}},
		"short sum":             &pb.Roots{Items: []*pb.Root{{Scope: "s", Sum: sum[:15]}}},
		"long sum":              &pb.Roots{Items: []*pb.Root{{Scope: "s", Sum: append(sum, 0)}}},
		"short version":         &pb.Ack{Scope: "s", Items: []*pb.Ack_Item{{Key: pbKey(someKey), Version: sum[1:]}}},
		"long prefix":           &pb.Ask{Scope: "s", Prefixes: [][]byte{make([]byte, 9)}},
		"sum without child":     branchOf(&pb.Branch{Split: true, Sums: sum}),
		"child without sum":     branchOf(&pb.Branch{Split: true, Children: []byte{1}}),
		"child twice":           branchOf(&pb.Branch{Split: true, Children: []byte{1, 1}, Sums: append(sum, sum...)}),
		"children out of order": branchOf(&pb.Branch{Split: true, Children: []byte{2, 1}, Sums: append(sum, sum...)}),
		"children of a hash":    branchOf(&pb.Branch{Split: true, Prefix: sum[:8], Children: []byte{1}, Sums: sum}),
		"both ways":             branchOf(&pb.Branch{Split: true, Hashes: []uint64{1}, Versions: sum}),
		"children but no split": branchOf(&pb.Branch{Children: []byte{1}, Sums: sum}),
		"hash without version":  branchOf(&pb.Branch{Hashes: []uint64{1}}),
		"version without hash":  branchOf(&pb.Branch{Versions: sum}),
		"gone with content":     &pb.Delta{Scope: "s", Items: []*pb.Delta_Item{{Key: pbKey(someKey), Gone: true, Content: sum}}},
		"item without key":      &pb.Delta{Scope: "s", Items: []*pb.Delta_Item{{Seq: 1}}},
		"fact without key":      &pb.Hello{Facts: []*pb.Fact{{Value: "v"}}},
		"seen without scope":    &pb.Hello{Seen: []*pb.Seen{{Revision: 1}}},
		"empty capability":      &pb.Hello{Capabilities: []string{""}},
		"negative pause":        &pb.Bye{RetryAfterMillis: -1},
	} {
		if _, _, err := Decode(marshal(t, foreignEvent(t, m))); codeOf(err) != engine.BadMessage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func branchOf(b *pb.Branch) *pb.Answer {
	return &pb.Answer{Scope: "s", Branches: []*pb.Branch{b}}
}

func TestDecode_RejectsOtherEvents(t *testing.T) {
	for name, change := range map[string]func(*pb.CloudEvent){
		"no id":               func(e *pb.CloudEvent) { e.Id = "" },
		"id of another form":  func(e *pb.CloudEvent) { e.Id = "17.3" },
		"id with letters":     func(e *pb.CloudEvent) { e.Id = "17.3.x" },
		"id beyond 64 bits":   func(e *pb.CloudEvent) { e.Id = "17.3.18446744073709551616" },
		"no source":           func(e *pb.CloudEvent) { e.Source = "" },
		"other specification": func(e *pb.CloudEvent) { e.SpecVersion = "0.3" },
		"no type":             func(e *pb.CloudEvent) { e.Type = "" },
		"another type":        func(e *pb.CloudEvent) { e.Type = "com.example.thing" },
		"no data":             func(e *pb.CloudEvent) { e.Data = nil },
		"binary data":         func(e *pb.CloudEvent) { e.Data = &pb.CloudEvent_BinaryData{} },
		"another message":     func(e *pb.CloudEvent) { e.Type = "io.argocd-agent.sync.v1.hello" },
		"no type URL": func(e *pb.CloudEvent) {
			e.Data = &pb.CloudEvent_ProtoData{ProtoData: &anypb.Any{}}
		},
	} {
		event := foreignEvent(t, &pb.Bye{})
		change(event)
		if _, _, err := Decode(marshal(t, event)); codeOf(err) != engine.BadMessage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecode_RejectsTruncatedEvents(t *testing.T) {
	forEachMessage(t, func(t *rapid.T, m engine.Message, meta Meta) {
		event, err := Encode(m, meta)
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(0, len(event)-1).Draw(t, "length")
		if _, _, err := Decode(event[:n]); codeOf(err) != engine.BadMessage {
			t.Fatalf("the first %d of %d bytes: %v", n, len(event), err)
		}
	})
}

// Decode allocates at most this much memory for each byte of any input, and this much in addition: a list of empty
// branches, at most MaxPrefixes, costs most.
const (
	memoryPerByte = 64
	memoryAtLeast = 32 << 10
)

func TestDecode_BoundsMemoryOfHostileInput(t *testing.T) {
	// Lists of the smallest entries, with two bytes each, use the most memory in relation to their size.
	for name, list := range map[string]protoreflect.Name{
		"Delta": "items", "Ack": "items", "Answer": "branches", "Ask": "prefixes", "Roots": "items",
		"Held": "sample", "Hello": "capabilities", "Welcome": "seen", "Want": "hashes",
	} {
		for _, n := range []int{1, 32, 256, MaxItems, MaxItems + 1, 1 << 20} {
			entry := append(tagOf(name, list, protowire.BytesType), 0)
			if name == "Want" {
				entry = append(tagOf(name, list, protowire.Fixed64Type), make([]byte, 8)...)
			}
			scope := append(tagOf("Delta", "scope", protowire.BytesType), 1, 's')
			event := raw(name, append(scope, bytes.Repeat(entry, min(n, MaxEvent/len(entry)-100))...))
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) { checkMemory(t, event) })
		}
	}
	t.Run("claimed length", func(t *testing.T) {
		checkMemory(t, raw("Delta", append(tagOf("Delta", "items", protowire.BytesType), 0xff, 0xff, 0xff, 0xff, 0x07)))
	})
	t.Run("groups in groups", func(t *testing.T) {
		checkMemory(t, raw("Delta", bytes.Repeat([]byte{15<<3 | 3}, 1<<20)))
	})
	t.Run("packed hashes", func(t *testing.T) {
		checkMemory(t, raw("Want", protowire.AppendBytes(tagOf("Want", "hashes", protowire.BytesType), make([]byte, 3<<20))))
	})
}

func TestDecode_BoundsMemoryOfValidMessages(t *testing.T) {
	forEachMessage(t, func(t *rapid.T, m engine.Message, meta Meta) {
		event, err := Encode(m, meta)
		if err != nil {
			t.Fatal(err)
		}
		checkMemory(t, event)
	})
}

// tagOf returns the tag of a field.
func tagOf(message string, field protoreflect.Name, typ protowire.Type) []byte {
	return protowire.AppendTag(nil, pb.File_argocdagent_v1_sync_proto.Messages().ByName(protoreflect.Name(message)).Fields().ByName(field).Number(), typ)
}

// raw is an event with these bytes as its message.
func raw(name string, message []byte) []byte {
	event, err := newEvent(&messageKind{name: name, event: strings.ToLower(name)}, someMeta, message)
	if err != nil {
		panic(err)
	}
	out, failed := proto.Marshal(event)
	if failed != nil {
		panic(failed)
	}
	return out
}

func checkMemory(t interface {
	Helper()
	Fatalf(string, ...any)
}, event []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := Decode(event)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(memoryPerByte*len(event)+memoryAtLeast) {
		t.Fatalf("%d bytes took %d bytes of memory (%v)", len(event), took, err)
	}
}
