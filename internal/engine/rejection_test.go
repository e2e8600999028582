package engine

import "testing"

func TestRejection_BelongsToItsSession(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	rejected := func() bool {
		_, ok := l.peer.Rejection("s", Key{Name: "a"})
		return ok
	}
	l.open(agentStore)
	l.publish("a", "v1")
	l.ack(1, "a", Invalid)
	if !rejected() {
		t.Error("not known")
	}
	l.close()
	if rejected() {
		t.Error("known although there is no session")
	}
	l.open(agentStore)
	if rejected() {
		t.Error("known although the new session has not said so")
	}
	l.receive(Want{Scope: "s", Hashes: []KeyHash{Key{Name: "a"}.Hash()}})
	l.ack(1, "a", Invalid)
	if !rejected() {
		t.Error("not known in the new session")
	}
}

func TestAccepted_OwnerKnowsAfterAck(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	accepted := func(want bool, when string) {
		t.Helper()
		if got := l.peer.Accepted("s", Key{Name: "a"}); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	l.open(agentStore)
	l.publish("a", "v1")
	accepted(false, "in flight")
	l.ack(1, "a", OK)
	accepted(true, "answered")
	l.close()
	accepted(false, "without a session")
	l.open(agentStore)
	accepted(false, "not sent in the new session")
	l.publish("a", "v2")
	l.ack(1, "a", Busy)
	accepted(false, "refused")
}

func TestAccepted_ReplicaKnowsAfterWrite(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.observe("a", "v1")
	l.open(hubStore)
	in := item(1, "a", "v1")
	in.Extra = []byte("x")
	l.expect(l.receive(Delta{Scope: "s", Items: []DeltaItem{in}}), "apply a")
	if l.peer.Accepted("s", Key{Name: "a"}) {
		t.Error("accepted before it is written")
	}
	l.applied("a", "v1", "")
	if !l.peer.Accepted("s", Key{Name: "a"}) {
		t.Error("not accepted although it is written")
	}
}

// An absent project that an Application still names does not count as a difference. Its removal is decided again later.
func TestReplica_RemovesAbsentItemInUseLater(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	for _, name := range []string{"a", "b", "c", "d"} {
		l.observe(name, "v1")
	}
	l.open(hubStore)
	rest := []string{"b", "v1", "c", "v1", "d", "v1"}
	l.expect(l.round(100, rest...), "remove a")
	l.failed("a", InUse)
	l.expect(l.root(rest...), "event InSync")
	l.expect(l.advance(70*Second), "ask")
	l.expect(l.answer(100, rest...), "remove a")
}

func TestOwner_RepublishedItemIsNotSentAsDeleted(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.publish("a", "v1")
	l.ack(1, "a", OK)
	sent := func() DeltaItem { return l.last[len(l.last)-1].(Send).Message.(Delta).Items[0] }
	l.expect(l.step(Withdraw{Scope: "s", Key: Key{Name: "a"}, Seen: true, DeletedUID: "u1"}), "gone a")
	if sent().DeletedUID != "u1" {
		t.Error("the replica does not hear that a user deleted it")
	}
	l.publish("a", "v2")
	l.expect(l.ack(2, "a", OK), "delta a v2")
	if sent().DeletedUID != "" {
		t.Error("it is sent as deleted")
	}
}

func TestReplica_ConfirmedAbsenceIsNotAUserDeletion(t *testing.T) {
	l := newUntrusted(t, Mirror)
	l.round(100, "b", "v1")
	l.expect(l.receive(Confirm{ID: l.peer.Status().Scopes[0].HeldID}), "remove a")
	l.expectNoUserDeletion()
}

func TestReplica_AbsenceIsNotAUserDeletion(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	rest := []string{"b", "v1", "c", "v1"}
	for _, name := range []string{"a", "b", "c"} {
		l.observe(name, "v1")
	}
	l.open(hubStore)
	l.expect(l.round(100, rest...), "remove a")
	l.expectNoUserDeletion()
}

func (l *peerHarness) expectNoUserDeletion() {
	l.t.Helper()
	for _, e := range l.last {
		if r, ok := e.(Remove); ok && r.DeletedUID != "" {
			l.t.Error("its delete hooks would run")
		}
	}
}
