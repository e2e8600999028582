package engine

import (
	"strings"
	"testing"
)

// An owner whose view is older than a copy must not change the copy. These are the limits of that rule.
func TestStaleOwner_Limits(t *testing.T) {
	for name, c := range map[string]struct {
		copied   Observe
		view     uint64 // of the Delta
		revision uint64 // of its item
		want     string
	}{
		"older owner does not tell its view":                {Observe{Owned: true, SourceRevision: 50}, 0, 0, "apply a"},
		"owner has seen less":                               {Observe{Owned: true, SourceRevision: 50}, 40, 30, "ack a Unavailable"},
		"owner has seen exactly as much":                    {Observe{Owned: true, SourceRevision: 50}, 50, 50, "apply a"},
		"item is newer than what the owner has seen of all": {Observe{Owned: true, SourceRevision: 50}, 40, 60, "apply a"},
		"owner has seen more than the item":                 {Observe{Owned: true, SourceRevision: 50}, 60, 30, "apply a"},
		"copy is not ours, so its age is another hub's":     {Observe{Owned: false, SourceRevision: 50}, 40, 30, "apply a"},
		"copy is from a later history than the store":       {Observe{Owned: true, SourceRevision: 500}, 40, 30, "apply a"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newReplicaSide(t, Mirror, Config{})
			c.copied.Scope, c.copied.Key, c.copied.Stored = "s", Key{Name: "a"}, VersionOf([]byte("v1"))
			l.step(c.copied)
			l.open(hubStore)
			in := item(1, "a", "v2")
			in.Revision = c.revision
			l.expect(l.receive(Delta{Scope: "s", Items: []DeltaItem{in}, View: c.view}), c.want)
		})
	}
}

// Another process of this side has applied what the hub has written since this session began. The hub's replica of this
// session may not have seen it.
func TestStaleOwner_ReplicaWrittenDuringSessionIsProtected(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	l.step(Observe{Scope: "s", Key: Key{Name: "a"}, Stored: VersionOf([]byte("v2")), Owned: true, SourceRevision: 150})
	in := item(1, "a", "v1")
	in.Revision = 120
	l.expect(l.receive(Delta{Scope: "s", Items: []DeltaItem{in}, View: 120}), "ack a Unavailable")
	l.expectNone(l.round(120), "remove a")
}

// Until a regressed store is accepted, the revision seen before stays the reference.
func TestStaleOwner_UntrustedStoreDoesNotCountAsSeen(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: Store{UID: "hub", Revision: 200}})
	l.open(hubStore) // regressed
	l.step(Observe{Scope: "s", Key: Key{Name: "a"}, Stored: VersionOf([]byte("v1")), Owned: true, SourceRevision: 90})
	l.receive(Delta{Scope: "s", Items: []DeltaItem{item(1, "a", "v2")}, Revision: 95})
	l.close()
	l.step(Connected{Session: 9, Epoch: Epoch{1, 9}, Store: agentStore})
	hello := l.last[len(l.last)-1].(Send).Message.(Hello)
	if len(hello.Seen) != 1 || hello.Seen[0].Revision != 200 {
		t.Errorf("seen: %v, want 200", hello.Seen)
	}
}

// The owner sends up to which revision it has read all of its store. An item has the revision of its own objects. One
// that is gone has none, and its removal does not wait for the slower of two watches.
func TestStaleOwner_SendsViewRevision(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.source.least, l.source.most = 10, 20
	l.open(agentStore)
	l.publish("a", "v1")
	if d := l.last[len(l.last)-1].(Send).Message.(Delta); d.View != 10 || d.Items[0].Revision != 20 {
		t.Errorf("a Delta has view %d, its item revision %d", d.View, d.Items[0].Revision)
	}
	l.receive(Ack{Scope: "s", Items: []AckItem{{Seq: 1, Key: Key{Name: "a"}, Version: VersionOf([]byte("v1"))}}})
	l.source.most = 30
	l.step(Withdraw{Scope: "s", Key: Key{Name: "a"}, Seen: true})
	if d := l.last[len(l.last)-1].(Send).Message.(Delta); d.View != 10 || !d.Items[0].Gone || d.Items[0].Revision != 30 {
		t.Errorf("a Delta has view %d, its item revision %d", d.View, d.Items[0].Revision)
	}
	l.receive(Ask{Scope: "s", Round: 1, Prefixes: []Prefix{{}}})
	if a := l.last[len(l.last)-1].(Send).Message.(Answer); a.View != 10 {
		t.Errorf("an Answer has view %d", a.View)
	}
}

// Of several answers in a round, the one that knew the least decides.
func TestStaleOwner_OldestAnswerOfRoundDecides(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{Tuning: Tuning{AskPrefixes: 1}})
	names := map[string]bool{}
	for i := range 40 { // enough that some share their first byte, and the digest is split
		name := "k" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		names[name] = true
		l.step(Observe{Scope: "s", Key: Key{Name: name}, Stored: VersionOf([]byte("v1")), Owned: true, SourceRevision: 90})
	}
	l.open(hubStore)
	l.root("other", "v1")
	r := l.peer.replicas["s"]
	own := r.digest.childSums(Prefix{})
	var sums []ChildSum
	for c, sum := range own { // all children differ a little, so that each is asked for
		if sum != (Sum{}) {
			sum.Lo++
			sums = append(sums, ChildSum{uint8(c), sum})
		}
	}
	l.receive(Answer{Scope: "s", Round: r.round.id, View: 95, Branches: []Branch{{Split: true, Sums: sums}}})
	removed := 0
	for view := uint64(95); r.round.active; view = 80 { // the first of them still knows more than the copies
		var asked Prefix
		for asked = range r.round.asked {
		}
		for _, line := range l.receive(Answer{Scope: "s", Round: r.round.id, View: view, Branches: []Branch{{Prefix: asked}}}) {
			if line != "ask" {
				t.Logf("%s", line)
				removed++
			}
		}
	}
	if removed > 0 {
		t.Error("items are removed or held although the owner has not seen them")
	}
}

// An item that waits for a running write is compared again when its turn comes: another process may have written the
// object since, from a newer state of the owner.
func TestStaleOwner_WaitingItemDoesNotUndoNewerWrite(t *testing.T) {
	for name, c := range map[string]struct {
		gone           bool
		sourceRevision uint64 // of what another process has written
		want           string
	}{
		"content, replica is newer": {false, 150, "ack a Unavailable"},
		"gone, replica is newer":    {true, 150, "ack a Unavailable"},
		"content, replica is older": {false, 115, "apply a"},
		"gone, replica is older":    {true, 115, "remove a"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newReplicaSide(t, Mirror, Config{})
			l.open(hubStore)
			l.expect(l.delta(1, "a", "v1"), "apply a")
			waiting := item(2, "a", "v2")
			if c.gone {
				waiting = DeltaItem{Seq: 2, Key: Key{Name: "a"}, Gone: true}
			}
			waiting.Revision = 120
			if out := l.receive(Delta{Scope: "s", Items: []DeltaItem{waiting}, View: 110}); len(out) > 0 {
				t.Errorf("it does not wait: %q", out)
			}
			l.step(Observe{Scope: "s", Key: Key{Name: "a"}, Stored: VersionOf([]byte("v3")), Owned: true, SourceRevision: c.sourceRevision})
			out := l.failed("a", Unavailable)
			l.expect(out, c.want)
			if c.want == "apply a" {
				if a := l.last[len(l.last)-1].(Apply); a.View != 120 {
					t.Errorf("view %d", a.View)
				}
			}
			for _, start := range []string{"apply", "remove"} {
				if !strings.HasPrefix(c.want, start) {
					l.expectNone(out, start)
				}
			}
		})
	}
}
