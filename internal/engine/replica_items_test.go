package engine

import "testing"

func TestRound_ItemSentMeanwhileIsNotAbsent(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	for _, name := range []string{"a", "b", "c", "d"} {
		l.observe(name, "v1")
	}
	l.open(hubStore)
	l.expect(l.root("b", "v1", "c", "v1", "d", "v1"), "ask")
	l.expect(l.delta(1, "a", "v1"), "ack a") // created again in this moment
	got := l.answer(100, "b", "v1", "c", "v1", "d", "v1")
	l.expectNone(got, "remove")
	l.expectNone(got, "event HoldStarted")
}

func TestRound_ItemThatAppearsMeanwhileIsNotAbsent(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	for _, name := range []string{"b", "c", "d"} {
		l.observe(name, "v1")
	}
	l.open(hubStore)
	l.expect(l.root("b", "v1", "c", "v1"), "ask")
	l.observe("a", "v1")
	got := l.answer(100, "b", "v1", "c", "v1", "d", "v1")
	l.expectNone(got, "remove")
	l.expectNone(got, "event HoldStarted")
}

func TestRound_StopsWhenViewIsIncomplete(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	for _, name := range []string{"a", "b", "c", "d"} {
		l.observe(name, "v1")
	}
	l.open(hubStore)
	l.expect(l.root("b", "v1", "c", "v1", "d", "v1"), "ask")
	id := l.peer.replicas["s"].round.id
	l.step(View{Scope: "s", Complete: false, Reason: "forbidden"})
	got := l.receive(Answer{Scope: "s", Round: id, View: 100, Branches: []Branch{{Items: []Listed{}}}})
	l.expectNone(got, "remove")
	l.expectNone(got, "event HoldStarted")
}

func TestReplica_AdoptsEqualObject(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.step(Observe{Scope: "s", Key: Key{Name: "a"}, Stored: VersionOf([]byte("v1")), Owned: false})
	l.open(hubStore)
	l.expect(l.delta(1, "a", "v1"), "apply a")
}

func TestReplica_AttachedScopeRemovesNothing(t *testing.T) {
	l := newReplicaSide(t, Attached, Config{})
	l.observe("a", "v1")
	l.open(hubStore)
	got := l.gone(1, "a")
	l.expectNone(got, "remove")
	l.expect(got, "ack a")
	l.expectNone(l.round(100), "remove")
}

func TestReplica_DoesNotRemoveObjectOfOthers(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.step(Observe{Scope: "s", Key: Key{Name: "a"}, Stored: VersionOf([]byte("v1")), Owned: false})
	l.open(hubStore)
	l.expectNone(l.round(100), "remove")
	got := l.gone(1, "a")
	l.expectNone(got, "remove")
	l.expect(got, "ack a")
}

func TestReplica_IgnoresResultOfAnotherWrite(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	l.expect(l.delta(1, "a", "v1"), "apply a")
	l.expectNone(l.step(Applied{Scope: "s", Key: Key{Name: "a"}, Ticket: 99, Stored: VersionOf([]byte("v1")), Written: true}), "ack")
	l.expect(l.applied("a", "v1", ""), "ack a")
}

func TestReplica_DropsQueuedItemOfClosedSession(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	l.delta(1, "a", "v1")
	l.delta(2, "a", "v2") // waits for the write
	l.close()
	l.expectNone(l.applied("a", "v1", ""), "apply")
}

// A rejection counts in the session in which it was given. The next session decides again.
func TestReplica_SessionForgetsRejections(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.observe("a", "v0")
	l.open(hubStore)
	l.delta(1, "a", "v1")
	l.failed("a", Invalid)
	if n := l.peer.Status().Scopes[0].Rejected; n != 1 {
		t.Fatalf("%d items are rejected", n)
	}
	l.close()
	l.open(hubStore)
	if n := l.peer.Status().Scopes[0].Rejected; n != 0 {
		t.Errorf("%d items are rejected when a session begins", n)
	}
	checkReplica(t, l.peer.replicas["s"])
}

func TestRound_StopsWithoutAnswer(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	l.expect(l.root("a", "v1"), "ask")
	l.expectNone(l.root("a", "v1"), "ask")
	l.advance(31 * Second)
	l.expect(l.root("a", "v1"), "ask")
}

func TestReplica_DoesNotCompareWithIncompleteView(t *testing.T) {
	l := newUntrusted(t, Mirror)
	l.step(View{Scope: "s", Complete: false, Reason: "forbidden"})
	for _, root := range [][]string{{"a", "v1", "b", "v1"}, {"a", "v2"}} {
		if got := l.root(root...); len(got) > 0 {
			t.Errorf("a root is answered with %q", got)
		}
	}
	l.expectNone(l.receive(Confirm{ID: l.peer.Status().StoreHoldID}), "ask")
}

func TestRound_DoesNotRequestItemSentMeanwhile(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.observe("a", "v1")
	l.open(hubStore)
	l.expect(l.root("a", "v2"), "ask")
	l.delta(1, "a", "v3")
	l.applied("a", "v3", "v1")
	l.expectNone(l.answer(100, "a", "v2"), "want")
}

func TestReplica_DoesNotRemoveItemBeingWritten(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	for _, name := range []string{"a", "b", "c", "d"} {
		l.observe(name, "v1")
	}
	l.open(hubStore)
	l.expect(l.delta(1, "a", "v2"), "apply a")
	l.expectNone(l.round(100, "b", "v1", "c", "v1", "d", "v1"), "remove")
}

// An allowed removal that failed ends when the owner has the item again, also if the owner has not sent it yet. If it
// loses the item once more, that absence is judged again.
func TestGuard_AllowedRemovalEndsWhenOwnerHasItem(t *testing.T) {
	all := []string{"a", "v1", "b", "v1", "c", "v1", "d", "v1"}
	for how, hasAgain := range map[string]func(l *peerHarness){
		"equal roots": func(l *peerHarness) { l.expect(l.root(all...), "event InSync") },
		"listed":      func(l *peerHarness) { l.round(101, all...) },
		"equal branch": func(l *peerHarness) {
			l.root(append(all, "zz", "makes a difference")...)
			var d Digest
			for i := 0; i < len(all); i += 2 {
				d.Set(Key{Name: all[i]}.Hash(), VersionOf([]byte(all[i+1])))
			}
			branch := Branch{Split: true}
			for child, sum := range d.childSums(Prefix{}) {
				if sum != (Sum{}) {
					branch.Sums = append(branch.Sums, ChildSum{Child: uint8(child), Sum: sum})
				}
			}
			l.receive(Answer{Scope: "s", Round: l.peer.replicas["s"].round.id, View: 101, Branches: []Branch{branch}})
		},
	} {
		t.Run(how, func(t *testing.T) {
			l := newReplicaSide(t, Mirror, Config{})
			for _, name := range []string{"a", "b", "c", "d"} {
				l.observe(name, "v1")
			}
			l.open(hubStore)
			l.expect(l.round(100, all[2:]...), "remove a")
			l.failed("a", Forbidden)
			hasAgain(l)

			for seq, name := range []string{"b", "c", "d"} {
				l.expect(l.gone(uint64(seq+1), name), "remove "+name)
				l.applied(name, "", "v1")
			}
			l.expectNone(l.round(102), "remove a")
			if held := l.peer.Status().Scopes[0].Held; held != 1 {
				t.Errorf("%d items are held, want the last item of the scope", held)
			}
		})
	}
}

// An object that this side does not adopt counts as refused. When the owner withdraws the item, the object stays.
func TestReplica_ObjectNotAdoptedStaysAfterWithdrawal(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.step(Observe{Scope: "s", Key: Key{Name: "a"}, Stored: VersionOf([]byte("theirs")), Owned: false})
	l.observe("b", "v1")
	l.observe("c", "v1")
	l.open(hubStore)
	l.delta(1, "a", "v1")
	l.failed("a", NotAdopted)
	got := l.round(100, "b", "v1", "c", "v1")
	l.expectNone(got, "remove")
	l.expect(got, "event Accepted a")
}
