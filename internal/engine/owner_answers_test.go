package engine

import (
	"slices"
	"testing"
)

func TestOwner_IgnoresLateAck(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.publish("a", "v1")
	l.receive(Roots{}) // the replica lives
	l.now += 60 * Second
	l.expect(l.step(Tick{}), "delta a v1") // Seq 2
	l.expectNone(l.ack(1, "a", Busy), "event")
	l.ack(1, "a", OK)
	if n := l.peer.Status().Scopes[0].InFlight; n != 1 {
		t.Errorf("%d items are in flight after an answer to the first send", n)
	}
	l.ack(2, "a", OK)
	if n := l.peer.Status().Scopes[0].InFlight; n != 0 {
		t.Errorf("%d items are in flight after the answer", n)
	}
}

func TestOwner_IgnoresSecondAck(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.publish("a", "v1")
	l.ack(1, "a", OK)
	l.expectNone(l.ack(1, "a", Busy), "event")
}

func TestOwner_ResendsUrgentExtra(t *testing.T) {
	for name, delivered := range map[string]bool{"lost with the session": false, "delivered": true} {
		t.Run(name, func(t *testing.T) {
			l := newOwnerSide(t, Attached, Config{})
			l.open(agentStore)
			l.publish("a", "v1")
			l.ack(1, "a", OK)
			l.source.extra[Key{Name: "a"}] = "refreshed"
			l.expect(l.step(Publish{Scope: "s", Key: Key{Name: "a"}, Version: VersionOf([]byte("v1")), SendExtra: true, Urgent: true}), "delta a v1")
			if delivered {
				l.ack(2, "a", OK)
			}
			l.close()
			again := l.open(agentStore)
			if delivered {
				l.expectNone(again, "delta")
			} else {
				l.expect(again, "delta a v1")
			}
		})
	}
}

// retryIn returns after how long a rejected item is sent again.
func (l *peerHarness) retryIn(name, content string) Time {
	l.t.Helper()
	began := l.now
	for l.now < began+600*Second {
		l.now += Second / 2
		if slices.Contains(l.step(Tick{}), "delta "+name+" "+content) {
			return l.now - began
		}
		l.receive(Roots{}) // the replica lives
	}
	l.t.Fatalf("%s is not sent again", name)
	return 0
}

func TestOwner_BackoffBelongsToRejectedContent(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.publish("a", "wrong")
	seq := uint64(1)
	for range 7 {
		l.ack(seq, "a", Busy)
		l.retryIn("a", "wrong")
		seq++
	}
	l.ack(seq, "a", Busy)
	l.expect(l.publish("a", "corrected"), "delta a corrected")
	l.ack(seq+1, "a", Busy)
	if d := l.retryIn("a", "corrected"); d > 2*Second {
		t.Errorf("the corrected content is tried again only after %d s", d/Second)
	}
}

func TestOwner_DoesNotResendRequestedItemInFlight(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.publish("a", "v1")
	l.expectNone(l.receive(Want{Scope: "s", Hashes: []KeyHash{Key{Name: "a"}.Hash()}}), "delta")
	l.expectNone(l.ack(1, "a", OK), "delta")
	l.expect(l.receive(Want{Scope: "s", Hashes: []KeyHash{Key{Name: "a"}.Hash()}}), "delta a v1")
}

// The replica reports the end of an Application that the owner is deleting. Then it has an object of that name again.
func TestOwner_FinishedItemCountsWhenRequestedAgain(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.publish("a", "deleting")
	l.ack(1, "a", OK)
	finished := Finished{Scope: "s", Key: Key{Name: "a"}, Version: VersionOf([]byte("an older one"))}
	l.expectNone(l.receive(finished), "event Finalized")
	finished.Version = VersionOf([]byte("deleting"))
	l.expect(l.receive(finished), "event Finalized a")
	l.expect(l.receive(Want{Scope: "s", Hashes: []KeyHash{Key{Name: "a"}.Hash()}}), "delta a deleting") // step checks the digest
}

func TestOwner_SendsNoRootWithIncompleteView(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.publish("a", "v1")
	l.step(View{Scope: "s", Complete: false, Reason: "forbidden"})
	l.expectNone(l.open(agentStore), "roots")
	l.expectNone(l.receive(Ask{Scope: "s", Round: 1, Prefixes: []Prefix{{}}}), "answer")
	l.expect(l.step(View{Scope: "s", Complete: true}), "roots")
	l.expect(l.receive(Ask{Scope: "s", Round: 1, Prefixes: []Prefix{{}}}), "answer")
}

func TestOwner_OlderRootIsNotInSync(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.publish("a", "v1")
	l.open(agentStore)
	l.publish("a", "v2")
	l.ack(1, "a", OK)
	l.expectNone(l.receive(Same{Items: []Root{rootOf([]string{"a", "v1"})}}), "event InSync")
	l.expect(l.receive(Same{Items: []Root{rootOf([]string{"a", "v2"})}}), "event InSync")
}

func TestOwner_InSyncClearsEarlierRejection(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.publish("a", "v1")
	l.publish("b", "v1")
	l.expect(l.ack(1, "a", Invalid), "event Rejected a")
	l.expect(l.ack(2, "b", Invalid), "event Rejected b")
	l.close()
	l.open(agentStore)
	l.receive(Want{Scope: "s", Hashes: []KeyHash{Key{Name: "b"}.Hash()}})
	l.ack(1, "b", Invalid) // refused in this session too
	cured := l.receive(Same{Items: []Root{rootOf([]string{"a", "v1", "b", "v1"})}})
	l.expect(cured, "event Accepted a")
	l.expectNone(cured, "event Accepted b")
}
