package engine

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
)

// byteSource hands out values that a fuzzer chose. When it runs dry, all is zero.
type byteSource struct{ data []byte }

func (s *byteSource) byte() byte {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

func (s *byteSource) uint64() uint64 {
	var b [8]byte
	n := copy(b[:], s.data)
	s.data = s.data[n:]
	return binary.LittleEndian.Uint64(b[:])
}

// number is small, huge or anything.
func (s *byteSource) number() uint64 {
	switch b := s.byte(); {
	case b < 200:
		return uint64(b % 8)
	case b < 220:
		return ^uint64(0) - uint64(b%4)
	}
	return s.uint64()
}

func (s *byteSource) pick(words ...string) string { return words[int(s.byte())%len(words)] }

func (s *byteSource) scope() string {
	return s.pick("project", "application", "status", "command", "", "nonsense", strings.Repeat("x", 300))
}

func (s *byteSource) key() Key {
	return Key{s.pick("", "", "team", "\x00"), s.pick("a", "b", "c", "", "a\x00b", strings.Repeat("k", 1000))}
}

func (s *byteSource) version() Version {
	if b := s.byte(); b < 128 {
		return VersionOf([]byte(s.pick("v1", "v2", "v3")))
	}
	return Version{s.number(), s.number()}
}

func (s *byteSource) code() Code {
	return Code(s.pick("", "", "Invalid", "Held", "Unavailable", "Superseded", "never heard of"))
}

func (s *byteSource) hash() KeyHash {
	if s.byte() < 128 {
		return s.key().Hash()
	}
	return KeyHash(s.number())
}

func (s *byteSource) store() Store {
	return Store{UID: s.pick("store-1", "store-2", ""), Revision: s.number()}
}

func (s *byteSource) root() Root {
	return Root{s.scope(), s.number(), Sum{s.number(), s.number()}, s.number()}
}

// many makes up to seven of something.
func many[T any](s *byteSource, one func() T) []T {
	var out []T
	for range s.byte() % 8 {
		out = append(out, one())
	}
	return out
}

func (s *byteSource) prefix() Prefix {
	if s.byte() < 180 {
		return Prefix{}
	}
	return Prefix{s.number(), s.byte() % 12}
}

func (s *byteSource) branch() Branch {
	return Branch{Prefix: s.prefix(), Split: s.byte()%2 == 0,
		Sums:  many(s, func() ChildSum { return ChildSum{s.byte(), Sum{s.number(), s.number()}} }),
		Items: many(s, func() Listed { return Listed{s.hash(), s.version()} })}
}

func (s *byteSource) item() DeltaItem {
	it := DeltaItem{Seq: s.number(), Key: s.key(), Version: s.version(), Gone: s.byte()%4 == 0,
		Content: []byte(s.pick("v1", "v2", "v3", "")), Extra: []byte(s.pick("", "t"))}
	if s.byte() < 200 {
		it.Version = VersionOf(it.Content)
	}
	return it
}

// message makes any message with any values.
func (s *byteSource) message() Message {
	switch s.byte() % 17 {
	case 0:
		return Hello{Epoch: Epoch{s.number(), s.number()}, ClusterUID: s.pick("cluster-1", "cluster-2", ""), Mode: s.pick("managed", "managed", "other"),
			Mapping: s.pick("namespace", ""), Protocol: Range{int(s.byte()) % 3, int(s.byte())}, Projection: Range{1, int(s.byte())}, Store: s.store()}
	case 1:
		return Welcome{Epoch: Epoch{s.number(), s.number()}, Mode: s.pick("managed", "other"), Mapping: s.pick("namespace", ""),
			Protocol: int(s.byte()) % 3, Projection: int(s.byte()) % 3, Store: s.store()}
	case 2:
		return Roots{Items: many(s, s.root), Same: many(s, s.root), Mark: s.number()}
	case 3:
		return Same{many(s, s.root)}
	case 4:
		return Ask{s.scope(), s.number(), many(s, s.prefix)}
	case 5:
		return Answer{s.scope(), s.number(), many(s, s.branch), s.number()}
	case 6:
		return Want{s.scope(), many(s, s.hash)}
	case 7, 8:
		return Delta{s.scope(), many(s, s.item), s.number(), s.number()}
	case 9:
		return Ack{s.scope(), many(s, func() AckItem {
			return AckItem{s.number(), s.key(), s.version(), s.code(), "said so", int64(s.number()), 0}
		})}
	case 10:
		return Finished{s.scope(), s.key(), s.version()}
	case 11:
		return Held{s.scope(), s.pick("", "id"), s.number(), s.number(), "because", many(s, s.key), Cause(s.pick("", "fleet", "half"))}
	case 12:
		return Confirm{s.scope(), s.pick("", "id")}
	case 13:
		return WriteOutage{s.pick("", "full")}
	case 14:
		return Bye{s.code(), "bye", int64(s.number())}
	case 15:
		return Equal{Sum{s.number(), s.number()}, many(s, func() Seen { return Seen{s.scope(), s.number()} }), s.number()}
	}
	return Open{s.pick("token"), s.pick("target")}
}

// FuzzStep sends messages with arbitrary values to both kinds of Peer, in every phase, between ordinary inputs. Nothing
// may panic, every invariant holds, and the scope "victim", which no message names, keeps its objects.
func FuzzStep(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for start := range byte(8) { // either side in each of four phases
		for kind := range byte(16) {
			for range 4 {
				seed := []byte{start}
				for range 40 {
					if r.IntN(2) == 0 { // in between, something ordinary
						seed = append(seed, byte(40+r.IntN(50)), byte(r.UintN(256)), 0, byte(r.UintN(256)), 0)
					}
					seed = append(seed, 200, kind)
					for range r.IntN(60) {
						seed = append(seed, byte(r.UintN(256)))
					}
				}
				f.Add(seed)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &byteSource{data}
		w := newWorld(t, Tuning{MaxItems: 20, Window: 500})
		start := s.byte()
		side := []*side{w.hub, w.agent}[start%2]
		side.cfg.Scopes = append(side.cfg.Scopes, ScopeConfig{Name: "victim", Role: Replica})
		bystander := Key{Name: "bystander"}
		side.store.of("victim")[bystander] = &object{content: "v1", owned: true}
		side.store.of("project")[Key{Name: "a"}] = &object{content: "v1", owned: true}
		side.boot()
		side.do(Tick{})
		session := uint64(1)
		for phase := range start / 2 % 4 {
			side.slow = start/2%4 < 3 // Begin comes later, if at all
			[]func(){func() { dial(side, session) }, func() { sendHello(side, session, 5) }, func() {}}[phase]()
		}
		for len(s.data) > 0 {
			hostileStep(w, side, s, &session)
		}
		if o := side.store.of("victim")[bystander]; o == nil {
			t.Error("an object was removed although its owner never said a word about it")
		}
		for _, cfg := range side.cfg.Scopes {
			if r := side.peer.replicas[cfg.Name]; r != nil && len(r.items) > 20+len(side.store.of(cfg.Name)) {
				t.Errorf("%s: %d items", cfg.Name, len(r.items))
			}
		}
	})
}

func dial(s *side, session uint64) {
	s.live[session] = true
	s.do(Connected{Session: session, Epoch: Epoch{1, session}, Store: Store{UID: s.name, Revision: 5}})
}

// sendHello completes the handshake, so that what follows is handled.
func sendHello(s *side, session, revision uint64) {
	if s.hub {
		s.do(Received{session, Hello{Epoch: Epoch{1, session}, ClusterUID: "cluster-1", Mode: "managed", Mapping: "namespace",
			Protocol: Range{1, 1}, Projection: Range{1, 1}, Store: Store{UID: "store-1", Revision: revision}}})
		return
	}
	s.do(Received{session, Welcome{Epoch: Epoch{1, session}, Mode: "managed", Mapping: "namespace", Protocol: 1, Projection: 1,
		Store: Store{UID: "store-1", Revision: revision}}})
}

// hostileStep does one thing: mostly to the scopes that are spoken of.
func hostileStep(w *world, side *side, s *byteSource, session *uint64) {
	switch b := s.byte(); {
	case b < 10:
		*session++
		dial(side, *session)
	case b < 20:
		sendHello(side, *session, s.number())
	case b < 24:
		side.do(Disconnected{*session - uint64(s.byte()%2)})
	case b < 40:
		w.now += Time(s.number() % 100_000)
		side.do(Tick{})
	case b < 60:
		side.store.put(s.pick("project", "application", "status"), s.key(), func(o *object) { o.content = s.pick("v1", "v2") })
	case b < 70:
		side.store.delete(s.pick("project", "application", "status"), s.key())
	case b < 74:
		side.store.slow = !side.store.slow
		side.store.drain()
	case b < 78:
		side.do(Begin{})
	case b < 90: // an answer that fits, with any outcome
		if o := side.peer.owners[s.pick("project", "application", "status")]; o != nil && o.lists[inFlight].head != nil {
			it := o.lists[inFlight].head
			side.do(Received{*session, Ack{o.cfg.Name, []AckItem{{it.seq, it.key, it.version, s.code(), "said so", int64(s.number()), 0}}}})
		}
	case b < 92:
		side.do(Applied{Scope: s.scope(), Key: s.key(), Ticket: s.number(), Code: s.code(), Stored: s.version(), Replaced: s.version(), Written: s.byte()%2 == 0, Lost: many(s, func() string { return "f" })})
		side.do(Recheck{s.scope(), s.key()})
	default:
		side.do(Received{*session, s.message()})
	}
	side.pipe = nil
}
