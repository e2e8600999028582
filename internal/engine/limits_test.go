package engine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestSession_ResumeCostIsBounded holds the cost of a new session against what the design promises for a scope of
// 10,000 items.
func TestSession_ResumeCostIsBounded(t *testing.T) {
	for _, c := range []struct{ changed, down, up int }{
		{0, 200, 200},
		{1, 8 << 10, 8 << 10},
		{1000, 600 * 1000, 300 * 1000},
	} {
		w := benchWorld(t)
		w.cut(false)
		for i := range c.changed {
			w.hub.store.put("application", benchKey(i*7), func(o *object) { o.content = "changed" })
		}
		w.hub.bytes, w.agent.bytes = 0, 0
		w.connect()
		w.deliver()
		down, up := w.hub.bytes-estimate(Welcome{}), w.agent.bytes-estimate(Hello{})
		t.Logf("%d changed: %d bytes down, %d bytes up", c.changed, down, up)
		if down > c.down || up > c.up {
			t.Errorf("%d changed: %d bytes down and %d up, at most %d and %d are allowed", c.changed, down, up, c.down, c.up)
		}
		if err := w.equal("application"); err != nil {
			t.Error(err)
		}
	}
}

// replicaPeer is an agent in a session, with one scope that the hub fills.
func replicaPeer(style ScopeStyle, tune Tuning) *Peer {
	p := NewPeer(Config{Scopes: []ScopeConfig{{Name: "s", Role: Replica, Style: style}}, Tuning: tune}, emptySource{})
	p.Step(1, View{Scope: "s", Complete: true})
	open(p)
	return p
}

func item(seq uint64, name, content string) DeltaItem {
	return DeltaItem{Seq: seq, Key: Key{Name: name}, Version: VersionOf([]byte(content)), Content: []byte(content)}
}

// codes lists how items were answered in one step; Apply stands for those that are being applied.
func codes(effects []Effect) (out []string) {
	for _, e := range effects {
		switch e := e.(type) {
		case Apply:
			out = append(out, "Apply")
		case Send:
			if ack, ok := e.Message.(Ack); ok {
				for _, it := range ack.Items {
					out = append(out, "Ack "+string(it.Code))
				}
			}
		}
	}
	return out
}

func TestReplica_LimitsItems(t *testing.T) {
	p := replicaPeer(Mirror, Tuning{MaxItems: 2})
	got := codes(p.Step(1, Received{1, Delta{Scope: "s", Items: []DeltaItem{item(1, "a", "x"), item(2, "b", "x"), item(3, "c", "x")}}}))
	if want := "Apply,Apply,Ack TooLarge"; strings.Join(got, ",") != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := p.Status().Scopes[0].Limit; got != "2 items" {
		t.Errorf("limit %q", got)
	}
	// And does not ask for more in every round.
	effects := p.Step(1, Received{1, Roots{Items: []Root{{Scope: "s", Count: 3, Sum: Sum{1, 1}}}}})
	ask := effects[len(effects)-1].(Send).Message.(Ask)
	for _, e := range p.Step(1, Received{1, Answer{Scope: "s", Round: ask.Round, Branches: []Branch{{Items: []Listed{{Key{Name: "c"}.Hash(), VersionOf([]byte("x"))}}}}}}) {
		t.Errorf("%+v", e)
	}
}

func TestReplica_LimitsStoredBytes(t *testing.T) {
	p := replicaPeer(Mirror, Tuning{MaxBytes: 100})
	seq, tickets := uint64(0), uint64(0)
	send := func(name string, size int) string {
		t.Helper()
		seq++
		content := strings.Repeat("x", size)
		got := codes(p.Step(1, Received{1, Delta{Scope: "s", Items: []DeltaItem{item(seq, name, content)}}}))
		if fmt.Sprint(got) == "[Apply]" {
			tickets++
			p.Step(1, Applied{Scope: "s", Key: Key{Name: name}, Ticket: tickets, Stored: VersionOf([]byte(content)), Size: size, Written: true})
		}
		checkInvariants(t, p)
		return strings.Join(got, ",")
	}
	for _, c := range []struct {
		name string
		size int
		want string
	}{
		{"a", 60, "Apply"},
		{"b", 41, "Ack TooLarge"},
		{"b", 40, "Apply"},
		{"c", 1, "Ack TooLarge"},
		{"a", 61, "Ack TooLarge"},
		{"a", 60, "Ack "}, // as it is
		{"a", 59, "Apply"},
		{"c", 1, "Apply"},
	} {
		if got := send(c.name, c.size); got != c.want {
			t.Errorf("%d bytes for %s: %s, want %s", c.size, c.name, got, c.want)
		}
		limit := ""
		if c.want == "Ack TooLarge" {
			limit = "100 bytes"
		}
		if got := p.Status().Scopes[0].Limit; c.name != "a" && got != limit { // a keeps c waiting
			t.Errorf("%d bytes for %s: limit %q", c.size, c.name, got)
		}
	}
	// What others take away makes room, and what they add counts.
	p.Step(1, ObjectGone{Scope: "s", Key: Key{Name: "b"}})
	p.Step(1, Observe{Scope: "s", Key: Key{Name: "a"}, Stored: Version{1, 1}, Size: 80, Owned: true})
	if got := send("d", 20); got != "Ack TooLarge" {
		t.Errorf("81 bytes and 20: %s", got)
	}
	if got := send("d", 19); got != "Apply" {
		t.Errorf("81 bytes and 19: %s", got)
	}
}

// What is being written counts too, until it is known what came of it.
func TestReplica_CountsBytesBeingWritten(t *testing.T) {
	p := replicaPeer(Mirror, Tuning{MaxBytes: 400})
	content := strings.Repeat("x", 200)
	got := codes(p.Step(1, Received{1, Delta{Scope: "s", Items: []DeltaItem{item(1, "a", content), item(2, "b", content)}}}))
	if want := "Apply,Ack Overloaded"; strings.Join(got, ",") != want {
		t.Errorf("%v, want %v", got, want)
	}
	p.Step(1, Applied{Scope: "s", Key: Key{Name: "a"}, Ticket: 1, Code: Forbidden})
	if got := codes(p.Step(1, Received{1, Delta{Scope: "s", Items: []DeltaItem{item(3, "b", content)}}})); fmt.Sprint(got) != "[Apply]" {
		t.Errorf("%v after the other was refused", got)
	}
}

// What a peer may send any number of is not remembered any number of times.
func TestReplica_ForgetsRejectedKeys(t *testing.T) {
	p := replicaPeer(Mirror, Tuning{})
	r := p.replicas["s"]
	long := strings.Repeat("x", 10_000)
	for i := range uint64(2000) {
		name := fmt.Sprint("k", i)
		p.Step(1, Received{1, Delta{Scope: "s", Items: []DeltaItem{item(2*i+1, name, "x")}}})
		p.Step(1, Applied{Scope: "s", Key: Key{Name: name}, Ticket: i + 1, Code: Invalid, Message: long})
		if it := r.items[Key{Name: name}.Hash()]; it.problem == nil || it.problem.message != "" {
			t.Fatalf("an item without an object has problem %v", it.problem)
		}
		p.Step(1, Received{1, Delta{Scope: "s", Items: []DeltaItem{{Seq: 2*i + 2, Key: Key{Name: name}, Gone: true}}}})
	}
	if len(r.items) > 0 || len(r.diverged) > 0 || r.problems > 0 || r.digest.Len() > 0 {
		t.Errorf("%d items, %d to be asked for, %d problems, %d in the digest", len(r.items), len(r.diverged), r.problems, r.digest.Len())
	}
	checkInvariants(t, p)

	p.Step(1, Observe{Scope: "s", Key: Key{Name: "a"}, Stored: Version{1, 1}, Owned: true})
	p.Step(1, Received{1, Delta{Scope: "s", Items: []DeltaItem{item(5000, "a", "x")}}})
	p.Step(1, Applied{Scope: "s", Key: Key{Name: "a"}, Ticket: 2001, Code: Invalid, Message: long})
	if got, ok := p.Rejection("s", Key{Name: "a"}); !ok || got.Code != Invalid || len(got.Message) != maxMessage {
		t.Errorf("an item with an object is rejected: %v, with %d bytes", ok, len(got.Message))
	}
}

// An agent may report a hold with ever new IDs. Each replaces the one before, so that the hub remembers one per scope.
func TestRemoteHold_IsReplacedByNewID(t *testing.T) {
	p := NewPeer(Config{Hub: true, Scopes: []ScopeConfig{{Name: "s", Role: Owner}, {Name: "r", Role: Replica}}}, emptySource{})
	open(p)
	open := map[string]bool{} // about the store as a whole, by ID
	for i := range 1000 {
		for _, scope := range []string{"", "s", "r", "unknown"} {
			for _, e := range p.Step(1, Received{1, Held{Scope: scope, ID: fmt.Sprint("id", i)}}) {
				f, ok := e.(Event)
				switch {
				case !ok || f.Scope != "":
				case f.Type == HoldStarted:
					open[f.Held.ID] = true
				case f.Type == HoldEnded:
					delete(open, f.Held.ID)
				}
			}
		}
	}
	if len(open) != 1 || !open["id999"] || len(p.remoteHolds) != 2 {
		t.Errorf("%d holds were reported, the hub remembers %d", len(open), len(p.remoteHolds))
	}
}

func TestReplica_LimitsQueuedContent(t *testing.T) {
	p := replicaPeer(Mirror, Tuning{Window: 1000})
	content := string(bytes.Repeat([]byte("x"), 5000))
	var got []string
	for i := range uint64(6) {
		got = append(got, codes(p.Step(1, Received{1, Delta{Scope: "s", Items: []DeltaItem{item(i+1, fmt.Sprint("k", i), content)}}}))...)
	}
	if want := strings.Repeat("Apply,", 3) + strings.Repeat("Ack Overloaded,", 3); strings.Join(got, ",")+"," != want {
		t.Errorf("%v, want %v", got, want)
	}
	checkInvariants(t, p)
}

func TestReplica_RejectsContentOfAnotherVersion(t *testing.T) {
	p := replicaPeer(Mirror, Tuning{})
	bad := item(1, "a", "x")
	bad.Content = []byte("y")
	if got := codes(p.Step(1, Received{1, Delta{Scope: "s", Items: []DeltaItem{bad}}})); fmt.Sprint(got) != "[Ack Invalid]" {
		t.Errorf("%v", got)
	}
}

// A hostile owner can make a round as long as it likes, but not our memory.
func TestRound_IsBounded(t *testing.T) {
	p := replicaPeer(Mirror, Tuning{MaxItems: 2000})
	effects := p.Step(1, Received{1, Roots{Items: []Root{{Scope: "s", Count: 9, Sum: Sum{1, 1}}}}})
	asks, most := 0, 0
	for asks <= 1000 {
		var ask *Ask
		for _, e := range effects {
			if s, ok := e.(Send); ok {
				if a, ok := s.Message.(Ask); ok {
					ask = &a
				}
			}
		}
		if ask == nil {
			break
		}
		asks++
		answer := Answer{Scope: "s", Round: ask.Round}
		for _, prefix := range ask.Prefixes {
			b := Branch{Prefix: prefix, Split: true}
			for child := range 256 {
				b.Sums = append(b.Sums, ChildSum{uint8(child), Sum{1, uint64(child)}})
			}
			answer.Branches = append(answer.Branches, b)
		}
		effects = p.Step(1, Received{1, answer})
		most = max(most, len(p.replicas["s"].round.pending))
	}
	t.Logf("%d asks, at most %d prefixes pending", asks, most)
	if asks > 1000 || most > 100_000 || p.replicas["s"].round.active {
		t.Errorf("%d asks, %d prefixes pending, still active: %v", asks, most, p.replicas["s"].round.active)
	}
}

func TestOwner_LimitsAnswersToAsk(t *testing.T) {
	p := NewPeer(Config{Hub: true, Scopes: []ScopeConfig{{Name: "s", Role: Owner}}}, emptySource{})
	p.Step(1, View{Scope: "s", Complete: true})
	open(p)
	prefixes := make([]Prefix, 10_000)
	for i := range prefixes {
		prefixes[i] = Prefix{uint64(i/2) << 48, 2}
	}
	n := 0
	for _, e := range p.Step(1, Received{1, Ask{"s", 1, prefixes}}) {
		n += len(e.(Send).Message.(Answer).Branches)
	}
	if n != maxAsk/2 {
		t.Errorf("%d branches", n)
	}
}

// What the hub says while the agent prepares is kept, but not without end.
func TestSession_LimitsEarlyMessages(t *testing.T) {
	p := NewPeer(Config{Scopes: []ScopeConfig{{Name: "s", Role: Replica}}, Tuning: Tuning{Window: 1000}}, emptySource{})
	p.Step(1, Connected{Session: 1, Epoch: Epoch{1, 1}})
	p.Step(1, Received{1, Welcome{Epoch: Epoch{1, 1}, Protocol: 1, Projection: 1}})
	for i := range uint64(5000) {
		p.Step(1, Received{1, Roots{}})
		p.Step(1, Received{1, Delta{Scope: "s", Items: []DeltaItem{item(i+1, fmt.Sprint("k", i), "content")}}})
	}
	if len(p.early) > maxEarlyMessages || p.earlyBytes > maxQueuedWindows*1000 {
		t.Errorf("%d messages, %d bytes", len(p.early), p.earlyBytes)
	}
	p.Step(1, Disconnected{1})
	checkInvariants(t, p)
}

// A deletion that the owner no longer remembers is found by absence.
func TestOwner_LimitsTombstones(t *testing.T) {
	p := NewPeer(Config{Hub: true, Scopes: []ScopeConfig{{Name: "s", Role: Owner}}, Tuning: Tuning{MaxTombstones: 3}}, emptySource{})
	for i := range 10 {
		p.Step(1, Publish{Scope: "s", Key: benchKey(i), Version: Version{1, 1}})
	}
	for i := range 10 {
		p.Step(1, Withdraw{Scope: "s", Key: benchKey(i), Seen: true})
		checkInvariants(t, p)
	}
	if o := p.owners["s"]; o.tombstones != 3 || len(o.items) != 3 || o.digest.Len() != 3 {
		t.Errorf("%d tombstones, %d items, %d in the digest", o.tombstones, len(o.items), o.digest.Len())
	}
}

func TestVersion_Text(t *testing.T) {
	v := VersionOf([]byte("x"))
	if got, err := ParseVersion(v.String()); err != nil || got != v {
		t.Errorf("%v, %v", got, err)
	}
	for _, s := range []string{"", "zz", "00", v.String() + "00"} {
		if _, err := ParseVersion(s); err == nil {
			t.Errorf("%q is a version", s)
		}
	}
}

// What cannot travel is refused at home; the next item goes.
func TestOwner_RejectsTooLargeItemAlone(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.hub.do(Tick{})
	w.agent.do(Tick{})
	w.connect()
	w.deliver()
	w.hub.store.put("application", Key{Name: "big"}, func(o *object) { o.content = strings.Repeat("x", MaxContent+1) })
	w.hub.store.put("application", Key{Name: "small"}, func(o *object) { o.content = "x" })
	w.wait(120 * Second)
	if w.agent.store.of("application")[Key{Name: "small"}] == nil || w.hub.events[Rejected] != 1 {
		t.Errorf("small: %v, %d rejects", w.agent.store.of("application")[Key{Name: "small"}], w.hub.events[Rejected])
	}
	w.hub.store.put("application", Key{Name: "big"}, func(o *object) { o.content = "x" })
	w.wait(120 * Second)
	if err := w.equal("application"); err != nil || w.hub.events[Accepted] != 1 {
		t.Errorf("%v, %d cured", err, w.hub.events[Accepted])
	}
}

// An owner's store that is restored to where it was a moment ago must be found out too: so items, not only roots, tell
// how far it had come.
func TestOwner_SendsStoreRevisionWithItems(t *testing.T) {
	p := replicaPeer(Mirror, Tuning{})
	p.Step(1, Received{1, Delta{Scope: "s", Revision: 4711, Items: []DeltaItem{item(1, "a", "x")}}})
	if got := p.Status().Other.Revision; got != 4711 {
		t.Errorf("the owner's store was seen at revision %d, want 4711", got)
	}
	p.Step(1, Received{1, Delta{Scope: "s", Revision: 12, Items: []DeltaItem{item(2, "b", "x")}}})
	if got := p.Status().Other.Revision; got != 4711 {
		t.Errorf("a late message took it back to revision %d", got)
	}
}
