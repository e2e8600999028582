package engine

import (
	"fmt"
	"testing"
)

// hundredItems returns the names and contents of items k0 to k99, without the first ones.
func hundredItems(without int) []string {
	var items []string
	for i := without; i < 100; i++ {
		items = append(items, fmt.Sprint("k", i), "v1")
	}
	return items
}

// newWithHundred returns a replica in a session that has k0 to k99.
func newWithHundred(t *testing.T) *peerHarness {
	t.Helper()
	l := newReplicaSide(t, Mirror, Config{})
	for i := range 100 {
		l.observe(fmt.Sprint("k", i), "v1")
	}
	l.open(hubStore)
	l.expect(l.root(hundredItems(0)...), "event InSync")
	return l
}

// loseItems has rounds find that the owner lacks the first n of a hundred, and returns what the replica does. The
// question of a round has one answer for each byte of the hash, because the digest is split.
func (l *peerHarness) loseItems(n int) []string {
	l.t.Helper()
	var owner Digest
	items := hundredItems(n)
	for i := 0; i < len(items); i += 2 {
		owner.Set(Key{Name: items[i]}.Hash(), VersionOf([]byte(items[i+1])))
	}
	out := l.receive(Roots{Items: []Root{{Scope: "s", Count: uint64(owner.Len()), Sum: owner.Sum()}}})
	for r := l.peer.replicas["s"]; r.round.active; {
		answer := Answer{Scope: "s", Round: r.round.id}
		for p := range r.round.asked {
			answer.Branches = append(answer.Branches, owner.Branch(p))
		}
		out = append(out, l.receive(answer)...)
	}
	for i := range n {
		name := fmt.Sprint("k", i)
		if it := l.peer.replicas["s"].get(Key{Name: name}); it != nil && it.ticket != 0 {
			l.applied(name, "", "")
		}
	}
	return out
}

// count returns how many lines start so.
func count(lines []string, start string) int {
	n := 0
	for _, line := range lines {
		if len(line) >= len(start) && line[:len(start)] == start {
			n++
		}
	}
	return n
}

// A set must not empty itself a few items at a time.
func TestGuard_CountsRecentAbsencesTogether(t *testing.T) {
	l := newWithHundred(t)
	if n := count(l.loseItems(8), "remove"); n != 8 {
		t.Fatalf("%d removed of 8", n)
	}
	l.advance(300 * Second)
	l.expectNone(l.loseItems(21), "remove")
	if held := l.peer.Status().Scopes[0].Held; held != 13 {
		t.Errorf("%d are held", held)
	}
}

func TestGuard_IgnoresOldAbsences(t *testing.T) {
	l := newWithHundred(t)
	l.loseItems(8)
	l.advance(700 * Second)
	if n := count(l.loseItems(21), "remove"); n != 13 {
		t.Errorf("%d removed of 13", n)
	}
}

func TestGuard_HoldsOthersWhileItemsAreHeld(t *testing.T) {
	l := newWithHundred(t)
	l.expectNone(l.loseItems(40), "remove")
	l.expectNone(l.loseItems(41), "remove")
	if held := l.peer.Status().Scopes[0].Held; held != 41 {
		t.Errorf("%d are held", held)
	}
}

func TestConfirmation_CoversExactlyWhatWasShown(t *testing.T) {
	l := newWithHundred(t)
	l.loseItems(40)
	shown := l.peer.Status().Scopes[0].HeldID
	l.loseItems(41)
	if now := l.peer.Status().Scopes[0].HeldID; now == shown {
		t.Error("another set has the same ID")
	}
	l.expectNone(l.receive(Confirm{Scope: "s", ID: shown}), "remove")
	l.expectNone(l.receive(Confirm{Scope: "s", ID: ""}), "remove")
	if n := count(l.receive(Confirm{Scope: "s", ID: l.peer.Status().Scopes[0].HeldID}), "remove"); n != 41 {
		t.Errorf("%d removed of 41", n)
	}
}

// The owner speaks of an item whose removal by absence is held. Then its word counts.
func TestGuard_ReleasesItemThatTheOwnerDeletes(t *testing.T) {
	l := newWithHundred(t)
	l.loseItems(40)
	l.expect(l.gone(1, "k0"), "remove k0")
	if held := l.peer.Status().Scopes[0].Held; held != 39 {
		t.Errorf("%d are held", held)
	}
}

func TestGuard_ReleasesItemThatTheOwnerHasAgain(t *testing.T) {
	l := newWithHundred(t)
	l.loseItems(40)
	l.delta(1, "k0", "v1")
	if held := l.peer.Status().Scopes[0].Held; held != 39 {
		t.Errorf("%d are held", held)
	}
}

func TestGuard_ReleasesObjectThatIsGoneOrNotOwned(t *testing.T) {
	l := newWithHundred(t)
	l.loseItems(40)
	l.step(ObjectGone{Scope: "s", Key: Key{Name: "k0"}})
	l.step(Observe{Scope: "s", Key: Key{Name: "k1"}, Stored: VersionOf([]byte("v1")), Owned: false})
	if held := l.peer.Status().Scopes[0].Held; held != 38 {
		t.Errorf("%d are held", held)
	}
}

func TestGuard_HeldItemsDoNotCountAsDifference(t *testing.T) {
	l := newWithHundred(t)
	l.loseItems(40)
	l.expect(l.root(hundredItems(40)...), "event InSync")
}

func TestGuard_ReleasesItemThatARoundLists(t *testing.T) {
	l := newWithHundred(t)
	l.loseItems(40)
	l.loseItems(39)
	if held := l.peer.Status().Scopes[0].Held; held != 39 {
		t.Errorf("%d are held", held)
	}
}

// splitRound starts a round in which the owner of a hundred items has changed some of them, and returns its digest. The
// first answer has the sums of many branches.
func (l *peerHarness) splitRound(changed int) *Digest {
	l.t.Helper()
	var owner Digest
	for i, items := 0, hundredItems(0); i < len(items); i += 2 {
		content := items[i+1]
		if i/2 < changed {
			content = "v2"
		}
		owner.Set(Key{Name: items[i]}.Hash(), VersionOf([]byte(content)))
	}
	l.expect(l.receive(Roots{Items: []Root{{Scope: "s", Count: uint64(owner.Len()), Sum: owner.Sum()}}}), "ask")
	l.expect(l.receive(Answer{Scope: "s", Round: l.peer.replicas["s"].round.id, Branches: []Branch{owner.Branch(Prefix{})}}), "ask")
	return &owner
}

// requestedPrefix returns one of the prefixes that the round waits for.
func (l *peerHarness) requestedPrefix() Prefix {
	for p := range l.peer.replicas["s"].round.asked {
		return p
	}
	return Prefix{}
}

func TestRound_WaitsForAllAnswers(t *testing.T) {
	l := newWithHundred(t)
	owner := l.splitRound(8)
	wanted := 0
	for r := l.peer.replicas["s"]; r.round.active; {
		wanted += count(l.receive(Answer{Scope: "s", Round: r.round.id, Branches: []Branch{owner.Branch(l.requestedPrefix())}}), "want")
	}
	if wanted != 8 {
		t.Errorf("%d of 8 changed items are asked for", wanted)
	}
}

func TestRound_IgnoresUnrequestedAnswers(t *testing.T) {
	t.Run("of an older round", func(t *testing.T) {
		l := newReplicaSide(t, Mirror, Config{})
		l.observe("a", "v1")
		l.observe("b", "v1")
		l.open(hubStore)
		l.expect(l.root("c", "v1"), "ask")
		older := l.peer.replicas["s"].round.id
		l.advance(31 * Second)
		l.expect(l.root("c", "v1"), "ask")
		got := l.receive(Answer{Scope: "s", Round: older, Branches: []Branch{{}}})
		l.expectNone(got, "remove")
		l.expectNone(got, "event HoldStarted")
	})
	t.Run("of an item outside the prefix", func(t *testing.T) {
		l := newWithHundred(t)
		b := l.splitRound(1).Branch(l.requestedPrefix())
		outside := ^Key{Name: "k0"}.Hash() // k0 is what the branch is about
		b.Items = append(b.Items, Listed{outside, VersionOf([]byte("v1"))})
		l.expect(l.receive(Answer{Scope: "s", Round: l.peer.replicas["s"].round.id, Branches: []Branch{b}}), "want k0")
	})
}

func TestRound_UnrequestedBranchRemovesNothing(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	for _, name := range []string{"a", "b", "c", "d"} {
		l.observe(name, "v1")
	}
	l.open(hubStore)
	l.expect(l.root("a", "v1", "b", "v1", "c", "v1", "d", "v2"), "ask")
	all := Branch{}
	for _, name := range []string{"a", "b", "c", "d"} {
		all.Items = append(all.Items, Listed{Key{Name: name}.Hash(), VersionOf([]byte("v1"))})
	}
	below := Branch{Prefix: Prefix{}.Child(uint8(Key{Name: "a"}.Hash() >> 56))}
	got := l.receive(Answer{Scope: "s", Round: l.peer.replicas["s"].round.id, Branches: []Branch{below, all}})
	l.expectNone(got, "remove")
	l.expectNone(got, "event HoldStarted")
}

// What the owner has given up, but is still here, is withdrawn also after the session. What it has is not.
func TestWithdrawn_KnowsWhatTheOwnerGaveUp(t *testing.T) {
	for name, c := range map[string]struct {
		commands []string
		want     bool
	}{
		"accepted":          {nil, false},
		"deletion held":     {[]string{"hub misses application app1..2", "quiet wait 5s"}, true},
		"deletion refused":  {[]string{"agent refuses application app1 Internal broken", "hub delete application app1", "quiet wait 5s"}, true},
		"absent and in use": {[]string{"agent refuses application app1 InUse used", "hub misses application app1", "quiet wait 5s"}, true},
		"deletion canceled": {[]string{"hub misses application app1..2", "quiet wait 5s", "hub put application app1 v2", "quiet wait 5s"}, false},
		"update refused":    {[]string{"agent refuses application app1 Internal broken", "hub put application app1 v2", "quiet wait 5s"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Tuning{})
			w.runAll("quiet hub put application app1..2 v1", "quiet connect", "quiet wait 60s")
			w.runAll(c.commands...)
			if got := w.agent.peer.Withdrawn("application", Key{Name: "app1"}); got != c.want {
				t.Errorf("withdrawn: %v", got)
			}
			w.cut(false)
			if got := w.agent.peer.Withdrawn("application", Key{Name: "app1"}); got != c.want {
				t.Errorf("after the session, withdrawn: %v", got)
			}
		})
	}
	w := newWorld(t, Tuning{})
	if w.agent.peer.Withdrawn("application", Key{Name: "unknown"}) || w.agent.peer.Withdrawn("unknown", Key{}) {
		t.Error("an unknown item is withdrawn")
	}
}

// An item is wanted if the last session has shown that the owner has it.
func TestWanted_FollowsTheLastSession(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	wanted := func(when string, want bool) {
		t.Helper()
		if got := l.peer.Wanted("s", Key{Name: "a"}); got != want {
			t.Errorf("%s: wanted is %v", when, got)
		}
	}
	remove := func() { l.step(ObjectGone{Scope: "s", Key: Key{Name: "a"}}) }
	l.observe("a", "v1")
	l.close()
	remove()
	wanted("before the first session", false)

	l.observe("a", "v1")
	l.open(hubStore)
	l.close()
	remove()
	wanted("after a session without a comparison", false)

	l.observe("a", "v1")
	l.open(hubStore)
	l.root("a", "v1")
	l.close()
	remove()
	wanted("after a session in sync", true)

	l.open(hubStore)
	l.delta(1, "a", "v1")
	l.applied("a", "v1", "")
	remove()
	wanted("after the owner sent it", true)
	l.gone(2, "a")
	wanted("after the owner deleted it too", false)

	l.observe("a", "v1")
	l.close()
	remove()
	wanted("after it appeared", false)
	if l.peer.Wanted("unknown", Key{}) {
		t.Error("an item of an unknown scope is wanted")
	}
}

// The session ends while an object is written that the owner has deleted since.
func TestWithdrawn_DuringWriteOfEndedSession(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	l.expect(l.delta(1, "a", "v1"), "apply a")
	l.gone(2, "a")
	l.close()
	l.applied("a", "v1", "")
	if key := (Key{Name: "a"}); !l.peer.Withdrawn("s", key) || l.peer.Wanted("s", key) {
		t.Error("the deletion is forgotten")
	}
}
