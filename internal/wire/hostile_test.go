package wire

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestBadNamesAreRefused(t *testing.T) {
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

func TestMessagesThatMakeNoSenseAreRefused(t *testing.T) {
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

func TestEventsThatAreNotOursAreRefused(t *testing.T) {
	for name, change := range map[string]func(*pb.CloudEvent){
		"no id":               func(e *pb.CloudEvent) { e.Id = "" },
		"id of another form":  func(e *pb.CloudEvent) { e.Id = "17.3" },
		"id with letters":     func(e *pb.CloudEvent) { e.Id = "17.3.x" },
		"id beyond 64 bits":   func(e *pb.CloudEvent) { e.Id = "17.3.18446744073709551616" },
		"no source":           func(e *pb.CloudEvent) { e.Source = "" },
		"other specification": func(e *pb.CloudEvent) { e.SpecVersion = "0.3" },
		"no type":             func(e *pb.CloudEvent) { e.Type = "" },
		"somebody's type":     func(e *pb.CloudEvent) { e.Type = "com.example.thing" },
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

func TestTruncatedEventsAreRefusedOrComplete(t *testing.T) {
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

// Whatever it is sent, Decode takes at most this much memory for each byte of
// it, and a little for the error.
const (
	memoryPerByte = 64
	memoryAtLeast = 8 << 10
)

func TestMemoryIsTakenForWhatIsThere(t *testing.T) {
	// The smallest entries of each list, as many as fit, and no more than two
	// bytes each: what grows most when it becomes a Go value.
	for name, list := range map[string]tag{
		"Delta": deltaItems, "Ack": ackItems, "Answer": answerBranches, "Ask": askPrefixes, "Roots": rootsItems,
		"Held": heldSample, "Hello": helloCapabilities, "Welcome": welcomeSeen, "Want": wantHashesPlain,
	} {
		for _, n := range []int{1, 32, 256, MaxItems, MaxItems + 1, 1 << 20} {
			entry := protowire.AppendVarint(nil, uint64(list))
			if list == wantHashesPlain {
				entry = append(entry, make([]byte, 8)...)
			} else {
				entry = append(entry, 0)
			}
			scope := []byte{1<<3 | block, 1, 's'}
			event := raw(name, append(scope, bytes.Repeat(entry, min(n, MaxEvent/len(entry)-100))...))
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) { checkMemory(t, event) })
		}
	}
	t.Run("claimed length", func(t *testing.T) {
		checkMemory(t, raw("Delta", []byte{byte(deltaItems), 0xff, 0xff, 0xff, 0xff, 0x07}))
	})
	t.Run("groups in groups", func(t *testing.T) {
		checkMemory(t, raw("Delta", bytes.Repeat([]byte{15<<3 | 3}, 1<<20)))
	})
	t.Run("packed hashes", func(t *testing.T) {
		checkMemory(t, raw("Want", protowire.AppendBytes([]byte{byte(wantHashes)}, make([]byte, 3<<20))))
	})
}

func TestMemoryOfValidMessagesIsBounded(t *testing.T) {
	forEachMessage(t, func(t *rapid.T, m engine.Message, meta Meta) {
		event, err := Encode(m, meta)
		if err != nil {
			t.Fatal(err)
		}
		checkMemory(t, event)
	})
}

// raw is an event with this message in it, whatever its bytes.
func raw(proto string, message []byte) []byte {
	name := messageName{string(bytes.ToLower([]byte(proto))), proto}
	w := newWriter(len(message) + envelopeSize)
	copy(w.take(len(message)), message)
	w.event(name, someMeta)
	return w.buf[w.at:]
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
