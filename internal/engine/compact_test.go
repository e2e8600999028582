package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// withdraw reports that the owner no longer has an item. If uid is set, a user deleted its object.
func (l *peerHarness) withdraw(name string, seen bool, uid string) []string {
	l.t.Helper()
	delete(l.source.content, Key{Name: name})
	return l.step(Withdraw{Scope: "s", Key: Key{Name: name}, Seen: seen, DeletedUID: uid})
}

func (l *peerHarness) setCompact(compact bool) { l.step(SetCompact{Scope: "s", Compact: compact}) }

// report reports what the owner has, and that this is all.
func (l *peerHarness) report() {
	l.t.Helper()
	for key, content := range l.source.content {
		l.publish(key.Name, content)
	}
	l.step(View{Scope: "s", Complete: true})
}

// newCompact returns a hub with a compact scope that has published items of one letter each.
func newCompact(t *testing.T, cfg Config, names string) *peerHarness {
	t.Helper()
	l := newOwnerSide(t, Mirror, cfg)
	for _, name := range names {
		l.publish(string(name), "v1")
	}
	l.setCompact(true)
	return l
}

func TestCompact_DeletionsAreKnownInTheNextSession(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		l.publish(name, "v1")
	}
	l.withdraw("a", true, "uid-a") // before
	l.setCompact(true)
	l.withdraw("b", true, "uid-b")
	l.withdraw("c", false, "") // a list lacks it
	l.withdraw("e", true, "")
	l.publish("e", "v2") // there again
	if n := len(l.peer.owners["s"].items); n != 2 {
		t.Errorf("%d items are kept in full", n)
	}
	l.setCompact(false)
	l.report()
	lines := l.open(agentStore)
	l.expect(lines, "gone a")
	l.expect(lines, "gone b")
	l.expectNone(lines, "gone c")
	l.expectNone(lines, "gone e")
	l.expectNone(lines, "delta") // comparison finds out whether d and e differ
	for _, e := range l.last {
		if send, ok := e.(Send); ok {
			if d, ok := send.Message.(Delta); ok {
				for _, it := range d.Items {
					if it.DeletedUID != "uid-"+it.Key.Name {
						t.Errorf("%s was deleted with UID %q", it.Key.Name, it.DeletedUID)
					}
				}
			}
		}
	}
	// Until they are acknowledged, a and b do not look absent.
	for name, want := range map[string]bool{"a": true, "b": true, "c": false, "d": true, "e": true} {
		if _, ok := l.peer.owners["s"].digest.Get(Key{Name: name}.Hash()); ok != want {
			t.Errorf("%s is in the digest: %v", name, ok)
		}
	}
}

// The agent holds a deletion: it is not in the digest then.
func TestCompact_DeletionThatTheAgentHolds(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.publish("a", "v1")
	l.publish("b", "v1")
	l.open(agentStore)
	l.expect(l.withdraw("a", true, "uid-a"), "gone a")
	l.ack(1, "a", OnHold)
	l.close()
	l.setCompact(true)
	l.setCompact(false)
	l.report()
	l.expect(l.open(agentStore), "gone a")
}

// When a scope is no longer compact, objects are reported one by one, and some have to be read first.
func TestCompact_DeletionBeforeTheItemIsReportedAgain(t *testing.T) {
	l := newCompact(t, Config{}, "abcd")
	l.setCompact(false)
	l.publish("a", "v1")
	l.withdraw("b", true, "uid-b")
	l.withdraw("c", false, "")
	if !l.peer.Publishes("s", Key{Name: "d"}.Hash()) {
		t.Error("an item that was not reported again is forgotten")
	}
	if l.peer.Status().Scopes[0].Complete {
		t.Error("the view is complete although not everything was reported")
	}
	l.step(View{Scope: "s", Complete: true})
	if l.peer.Publishes("s", Key{Name: "d"}.Hash()) {
		t.Error("an item is kept that a complete view lacks")
	}
	lines := l.open(agentStore)
	l.expect(lines, "gone b")
	l.expectNone(lines, "gone c")
	l.expectNone(lines, "gone d")
}

func TestCompact_AgainBeforeItemsAreReported(t *testing.T) {
	l := newCompact(t, Config{}, "ab")
	l.setCompact(false)
	l.publish("a", "v1")
	l.setCompact(true)
	l.withdraw("b", true, "")
	l.setCompact(false)
	l.report()
	l.expect(l.open(agentStore), "gone b")
}

// A view of a compact scope can be complete: what is not known in full is no evidence of an absence.
func TestCompact_CompleteViewKeepsWhatIsPublished(t *testing.T) {
	l := newCompact(t, Config{}, "a")
	l.step(View{Scope: "s", Complete: true})
	l.withdraw("a", true, "")
	l.setCompact(false)
	l.report()
	l.expect(l.open(agentStore), "gone a")
}

func TestCompact_OnlyWithoutSession(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.setCompact(true)
	l.expect(l.publish("a", "v1"), "delta a v1")
}

func TestCompact_RejectedItem(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.publish("a", "v1")
	l.ack(1, "a", Invalid)
	l.close()
	l.setCompact(true) // the invariants count the rejected items
	l.setCompact(false)
	l.report()
	if l.peer.Status().Scopes[0].Rejected != 0 {
		t.Error("an item is rejected that was not sent since")
	}
}

func TestCompact_KnowsWhatItPublishes(t *testing.T) {
	l := newCompact(t, Config{}, "abc")
	l.withdraw("b", true, "")
	l.withdraw("c", false, "")
	for name, want := range map[string]bool{"a": true, "b": true, "c": false, "d": false} {
		if got := l.peer.Publishes("s", Key{Name: name}.Hash()); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if s := l.peer.Status().Scopes[0]; s.Items != 1 || s.Complete {
		t.Errorf("%+v", s)
	}
}

// An owner without a session for long has the tombstones of items whose deletion other replicas have delivered. When there are too
// many, it forgets the oldest one, not the deletion that the agent does not know yet.
func TestTombstones_TheLatestAreKept(t *testing.T) {
	for _, compact := range []bool{false, true} {
		l := newOwnerSide(t, Mirror, Config{Tuning: Tuning{MaxTombstones: 2}})
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			l.publish(name, "v1")
		}
		l.open(agentStore)
		for seq, name := range []string{"a", "b", "c", "d", "e"} {
			l.ack(uint64(seq+1), name, OK)
		}
		l.close()
		l.setCompact(compact)
		for _, name := range []string{"d", "b", "c", "a"} {
			l.now += Second
			l.withdraw(name, true, "")
			if n := l.peer.owners["s"].tombstones; n > 2 {
				t.Errorf("%d tombstones", n)
			}
		}
		l.setCompact(false)
		l.report()
		lines := l.open(agentStore)
		l.expect(lines, "gone c")
		l.expect(lines, "gone a")
		l.expectNone(lines, "gone d")
		l.expectNone(lines, "gone b")
	}
}

// A deletion of an item that is in flight does not delay that unacknowledged items are sent again.
func TestTombstones_ItemInFlight(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{Tuning: Tuning{Resend: 10 * Second}})
	l.open(agentStore)
	l.expect(l.publish("a", "v1"), "delta a v1")
	l.expect(l.publish("b", "v1"), "delta b v1")
	l.now += 9 * Second
	l.withdraw("a", true, "")
	l.now += Second
	l.expect(l.step(Tick{}), "delta b v1")
}

// A replica of an Attached scope has no items while it is compact. One whose write still runs stays, so that its end is counted.
func TestCompact_Replica(t *testing.T) {
	l := newPeerHarness(t, Config{Hub: true, Scopes: []ScopeConfig{{Name: "s", Role: Replica, Style: Attached}}})
	l.observe("a", "v1")
	l.observe("b", "v1")
	l.open(agentStore)
	l.expect(l.delta(1, "a", "v2"), "apply a")
	l.close()
	l.setCompact(true)
	r := l.peer.replicas["s"]
	if len(r.items) != 1 || r.load == 0 {
		t.Fatalf("%d items, %d bytes wait", len(r.items), r.load)
	}
	l.applied("a", "v2", "v1")
	if r.load != 0 {
		t.Errorf("%d bytes wait", r.load)
	}
	l.setCompact(false)
	if l.peer.Status().Scopes[0].Complete {
		t.Error("the view is complete before it was reported")
	}
	l.observe("a", "v2")
	l.observe("b", "v1")
	l.step(View{Scope: "s", Complete: true})
	l.open(agentStore)
	if r.digest.Len() != 2 || r.storedBytes != 0 || r.owned != 2 {
		t.Errorf("%d in the digest, %d owned", r.digest.Len(), r.owned)
	}
}

// A scope that was compact begins its next session like one that never was.
func TestCompact_EqualsScopeThatNeverWas(t *testing.T) {
	for seed := range uint64(500) {
		chance := rand.New(rand.NewPCG(seed, 1))
		never, sometimes := newOwnerSide(t, Mirror, Config{}), newOwnerSide(t, Mirror, Config{})
		both := func(do func(l *peerHarness)) { do(never); do(sometimes) }
		for range 40 {
			name, content, seen := string(rune('a'+chance.IntN(6))), fmt.Sprint("v", chance.IntN(3)), chance.IntN(3) > 0
			switch chance.IntN(7) {
			case 0, 1:
				both(func(l *peerHarness) { l.publish(name, content) })
			case 2, 3:
				both(func(l *peerHarness) { l.withdraw(name, seen, "uid") })
			case 4:
				sometimes.setCompact(true)
			case 5:
				if !sometimes.peer.owners["s"].compact {
					break
				}
				sometimes.setCompact(false)
				for c := 'a'; c <= 'f' && chance.IntN(8) > 0; c++ { // not all: the others were not read yet
					if content, ok := sometimes.source.content[Key{Name: string(c)}]; ok {
						sometimes.publish(string(c), content)
					}
				}
			case 6: // a session in which the agent holds every deletion
				sometimes.setCompact(false)
				sometimes.report()
				both(func(l *peerHarness) {
					l.open(agentStore)
					for seq := uint64(1); seq <= l.peer.owners["s"].seq; seq++ {
						for c := 'a'; c <= 'f'; c++ {
							if it := l.peer.owners["s"].items[Key{Name: string(c)}.Hash()]; it != nil && it.gone && it.seq == seq {
								l.ack(seq, string(c), OnHold)
							}
						}
					}
					l.close()
				})
			}
		}
		sometimes.setCompact(false)
		sometimes.report()
		a, b := never.peer.owners["s"], sometimes.peer.owners["s"]
		if a.digest.Sum() != b.digest.Sum() || a.tombstones != b.tombstones || len(a.items) != len(b.items) {
			t.Fatalf("seed %d: %d items with %d tombstones, want %d with %d", seed, len(b.items), b.tombstones, len(a.items), a.tombstones)
		}
		for h, it := range a.items {
			if other := b.items[h]; other == nil || other.gone != it.gone || other.version != it.version || other.deletedUID != it.deletedUID {
				t.Fatalf("seed %d: %s is %+v, want %+v", seed, it.key, other, it)
			}
		}
	}
}

// A compact scope that had many items is as small as one that had few, also with a tombstone.
func TestCompact_ReleasesMemory(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	for i := range 1000 {
		l.publish(fmt.Sprint(i), "v1")
	}
	l.withdraw("0", true, "")
	l.setCompact(true)
	o := l.peer.owners["s"]
	if root := &o.digest.root; root.kids != nil || cap(root.items) > 4 || cap(o.unreported) > 1050 {
		t.Errorf("room for %d items in the digest and %d that are published", cap(root.items), cap(o.unreported))
	}
}
