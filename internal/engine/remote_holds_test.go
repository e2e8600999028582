package engine

import "testing"

func TestRemoteHold_IsReportedOnce(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.expect(l.receive(Held{Scope: "s", ID: "x", Count: 3}), "event HoldStarted")
	l.expectNone(l.receive(Held{Scope: "s", ID: "x", Count: 3}), "event")
	l.expect(l.receive(Held{Scope: "s"}), "event HoldEnded")
	l.expectNone(l.receive(Held{Scope: "s"}), "event")
}

func TestRemoteHold_IgnoresScopesOfTheHub(t *testing.T) {
	t.Run("of a scope that does not exist", func(t *testing.T) {
		l := newOwnerSide(t, Mirror, Config{})
		l.open(agentStore)
		l.expectNone(l.receive(Held{Scope: "nonsense", ID: "x"}), "event")
		if n := len(l.peer.Status().RemoteHolds); n != 0 {
			t.Errorf("%d are noted", n)
		}
	})
	t.Run("of the hub", func(t *testing.T) {
		l := newReplicaSide(t, Mirror, Config{})
		l.open(hubStore)
		l.expectNone(l.receive(Held{ID: "x"}), "event")
	})
}

// The agent confirms nothing that the hub holds back.
func TestRemoteHold_AgentCannotAcceptItsOwnStore(t *testing.T) {
	l := newPeerHarness(t, Config{Hub: true, KnownStore: Store{UID: "agent", Revision: 200}, Scopes: []ScopeConfig{{Name: "s", Role: Replica}}})
	l.open(agentStore)
	id := l.peer.Status().StoreHoldID
	if id == "" {
		t.Fatal("the store is trusted")
	}
	l.expectNone(l.receive(Confirm{ID: id}), "event StoreAccepted")
	l.expect(l.step(Confirmed{ID: id}), "event StoreAccepted")
}
