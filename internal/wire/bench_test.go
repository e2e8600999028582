package wire

import (
	"fmt"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// benchMessages are messages of a busy hub: the digests of an idle agent, a round through 10,000 items, normal and large
// Deltas, and an Ack.
func benchMessages() []struct {
	name string
	m    engine.Message
} {
	var sums []engine.ChildSum
	for i := range 256 {
		sums = append(sums, engine.ChildSum{Child: uint8(i), Sum: engine.Sum{Hi: uint64(i), Lo: 1}})
	}
	var acks []engine.AckItem
	var small []engine.DeltaItem
	for i := range 128 {
		key := engine.Key{Namespace: "team-a", Name: fmt.Sprintf("application-%d", i)}
		version := engine.Version{Hi: uint64(i), Lo: 1}
		acks = append(acks, engine.AckItem{Seq: uint64(i), Key: key, Version: version})
		small = append(small, engine.DeltaItem{Seq: uint64(i), Key: key, Version: version, Content: make([]byte, 2<<10)})
	}
	large := engine.DeltaItem{Seq: 1, Key: someKey, Version: engine.Version{Hi: 1}, Content: make([]byte, 1<<20)}
	listed := make([]engine.Listed, 64)
	for i := range listed {
		listed[i] = engine.Listed{Hash: engine.KeyHash(i), Version: engine.Version{Hi: uint64(i), Lo: 1}}
	}
	return []struct {
		name string
		m    engine.Message
	}{
		{"Roots", engine.Roots{Items: repeat(5, engine.Root{Scope: "application", Count: 1 << 10, Sum: engine.Sum{Hi: 1}})}},
		{"AnswerSums", engine.Answer{Scope: "application", Branches: []engine.Branch{{Split: true, Sums: sums}}}},
		{"AnswerItems", engine.Answer{Scope: "application", Branches: repeat(32, engine.Branch{Items: listed})}},
		{"Delta1x1M", delta(large)},
		{"Delta128x2K", delta(small...)},
		{"Ack128", engine.Ack{Scope: "application", Items: acks}},
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, c := range benchMessages() {
		b.Run(c.name, func(b *testing.B) {
			event, err := Encode(c.m, someMeta)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(event)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Encode(c.m, someMeta); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range benchMessages() {
		b.Run(c.name, func(b *testing.B) {
			event, err := Encode(c.m, someMeta)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(event)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Decode(event); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
