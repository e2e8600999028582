package engine

import (
	"slices"
	"testing"
)

// hubAt returns the hub's store at a revision, with a history mark of the Agent.
func hubAt(revision, mark uint64) Store {
	return Store{UID: hubStore.UID, Revision: revision, Mark: HistoryMark{Record: "agent-uid", Number: mark}}
}

func (l *peerHarness) expectTrust(want bool, why string) {
	l.t.Helper()
	if trusted := l.peer.Status().StoreHoldID == ""; trusted != want {
		l.t.Errorf("%s: the store is trusted: %v", why, trusted)
	}
}

// The hub was restored to a state before the last mark, and has written past the revision that the agent knows.
func TestHistory_RestoredStoreThatHasWrittenPastIsUntrusted(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubAt(100, 3))
	l.observe("a", "v1")
	l.observe("b", "v1")
	l.receive(Roots{Mark: 4})
	l.close()
	got := l.open(hubAt(5000, 3))
	l.expect(got, "event HoldStarted")
	l.expectTrust(false, "the mark is lost")
	l.expectNone(l.round(5000, "b", "v1"), "remove")
	if l.peer.Status().Scopes[0].Held != 1 {
		t.Error("the deletion is not held")
	}
	if known := l.hello().Known; known.Mark.Number != 4 {
		t.Errorf("the agent now knows %+v, and no user has accepted it", known)
	}
}

func TestHistory_Comparison(t *testing.T) {
	known := hubAt(100, 4)
	other := hubAt(200, 1)
	other.Mark.Record = "another-agent-uid"
	for name, tc := range map[string]struct {
		met     Store
		trusted bool
		then    HistoryMark
	}{
		"the same mark":                    {hubAt(200, 4), true, known.Mark},
		"a later mark":                     {hubAt(200, 9), true, hubAt(0, 9).Mark},
		"an earlier mark":                  {hubAt(200, 3), false, known.Mark},
		"the first mark was not recorded":  {hubAt(200, 0), false, known.Mark},
		"the Agent was created again":      {other, true, other.Mark},
		"a principal of an older release":  {Store{UID: hubStore.UID, Revision: 200}, true, known.Mark},
		"another store with a later mark":  {Store{UID: "other", Revision: 200, Mark: hubAt(0, 9).Mark}, false, known.Mark},
		"the revision regressed, not more": {hubAt(50, 4), false, known.Mark},
	} {
		t.Run(name, func(t *testing.T) {
			l := newReplicaSide(t, Mirror, Config{KnownStore: known})
			l.open(tc.met)
			l.expectTrust(tc.trusted, name)
			if got, _ := l.peer.Other(); got.Mark != tc.then {
				t.Errorf("the agent then knows %+v", got.Mark)
			}
		})
	}
}

func TestHistory_AnotherProcessKnowsALaterMark(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: hubAt(100, 4)})
	l.step(Remembered{Store: hubAt(90, 6)})
	l.open(hubAt(200, 5))
	l.expectTrust(false, "another process has received mark 6")
	l = newReplicaSide(t, Mirror, Config{KnownStore: hubAt(100, 6)})
	l.step(Remembered{Store: hubAt(110, 4)})
	l.open(hubAt(200, 5))
	l.expectTrust(false, "this process has received mark 6")
}

func TestHistory_AcceptedStoreIsTheNewReference(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: hubAt(100, 9)})
	l.open(hubAt(200, 3))
	l.receive(Roots{Mark: 4}) // of the untrusted store
	if known, _ := l.peer.Other(); known.Mark.Number != 9 {
		t.Errorf("a mark of an untrusted store is known: %+v", known.Mark)
	}
	l.receive(Confirm{ID: l.peer.Status().StoreHoldID})
	if known, _ := l.peer.Other(); known.Mark.Number != 4 {
		t.Errorf("the agent knows %+v", known.Mark)
	}
	l.close()
	l.open(hubAt(300, 4))
	l.expectTrust(true, "a user has accepted this history")
}

// A principal of an older release reports no mark. A mark that it sends by mistake has no record.
func TestHistory_MarkWithoutRecordIsIgnored(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	l.receive(Roots{Mark: 7})
	if known, _ := l.peer.Other(); known.Mark != (HistoryMark{}) {
		t.Errorf("the agent knows %+v", known.Mark)
	}
}

// newMarkingHub is a hub whose Agent has a mark, in a session with an agent that knows another one.
func newMarkingHub(t *testing.T, own Store, known Store) *peerHarness {
	t.Helper()
	l := newOwnerSide(t, Mirror, Config{})
	l.source.least, l.source.most = 100, 100
	l.session++
	epoch := Epoch{Incarnation: 1, Attempt: l.session}
	l.step(Connected{Session: l.session, Store: own})
	l.step(Received{l.session, Hello{Epoch: epoch, Protocol: Range{ProtocolMin, ProtocolMax}, Projection: Range{ProjectionMin, ProjectionMax}, Store: agentStore, Known: known}})
	l.step(Begin{})
	l.publish("a", "v1")
	return l
}

func TestHistory_HubRecordsNoMarkWhileItLacksOne(t *testing.T) {
	another := hubAt(100, 9)
	another.UID = "store-of-another-hub"
	recreated := hubAt(100, 9)
	recreated.Mark.Record = "agent-that-was-deleted"
	for name, tc := range map[string]struct {
		known Store
		want  uint64
	}{
		"an agent that knows nothing":       {Store{}, 100},
		"the same mark":                     {hubAt(100, 4), 100},
		"an earlier mark":                   {hubAt(100, 1), 100},
		"a later mark":                      {hubAt(100, 5), 0},
		"a later mark of another hub":       {another, 100},
		"a later mark of an Agent before":   {recreated, 100},
		"a release that does not report it": {hubStore, 100},
	} {
		if got := newMarkingHub(t, hubAt(5000, 4), tc.known).peer.Status().Unmarked; got != tc.want {
			t.Errorf("%s: revision %d needs a mark", name, got)
		}
	}
	if newMarkingHub(t, hubStore, Store{}).peer.Status().Unmarked != 0 {
		t.Error("a hub that records no marks needs one")
	}
	l := newOwnerSide(t, Mirror, Config{})
	l.source.most = 100
	l.step(Connected{Session: 1, Store: hubAt(100, 4)})
	l.step(Received{1, Hello{Epoch: Epoch{1, 1}, Protocol: Range{1, 1}, Projection: Range{1, 1}}})
	if l.peer.Status().Unmarked != 0 {
		t.Error("a hub without items for the agent needs a mark")
	}
}

func TestHistory_MarkCoversWhatWasPublishedBefore(t *testing.T) {
	l := newMarkingHub(t, hubAt(100, 4), hubAt(100, 4))
	l.step(Marked{Mark: hubAt(0, 5).Mark, Revision: l.peer.Status().Unmarked})
	if l.peer.Status().Unmarked != 0 {
		t.Error("a mark is needed although nothing has changed")
	}
	l.source.least, l.source.most = 101, 101
	if l.peer.Status().Unmarked != 101 {
		t.Error("no mark is needed after a change")
	}
	l.step(Marked{Mark: hubAt(0, 6).Mark, Revision: 100}) // it was stored before the change was read
	if l.peer.Status().Unmarked != 101 {
		t.Error("a mark covers a later change")
	}
	l.step(Marked{Mark: hubAt(0, 5).Mark, Revision: 101})
	l.step(Marked{Mark: HistoryMark{Record: "another", Number: 99}, Revision: 101})
	l.now += 100 * Second
	l.step(Tick{})
	sent := slices.ContainsFunc(l.last, func(e Effect) bool {
		s, _ := e.(Send)
		roots, ok := s.Message.(Roots)
		return ok && roots.Mark == 6
	})
	if !sent {
		t.Errorf("no beacon has the mark: %+v", l.last)
	}
	l.close()
	if l.peer.Status().Unmarked != 0 {
		t.Error("a mark is needed without a session")
	}
}

// A user accepts the restored store on the agent, which then reports that it holds nothing.
func TestHistory_HubRecordsMarksAgainAfterAcceptance(t *testing.T) {
	l := newMarkingHub(t, hubAt(5000, 4), hubAt(100, 9))
	l.receive(Held{Scope: "s", ID: "one", Cause: CauseStore, Count: 1, Of: 2})
	l.receive(Held{Scope: "s"})
	if l.peer.Status().Unmarked != 0 {
		t.Error("marks are recorded, and the store is not accepted")
	}
	l.receive(Held{ID: "store-1", Cause: CauseStore})
	l.receive(Held{})
	if l.peer.Status().Unmarked == 0 {
		t.Error("no marks are recorded after the store was accepted")
	}
}
