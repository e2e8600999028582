package engine

import "testing"

// The content of an item is gone when its turn comes, and is there again, unchanged, before the owner hears that it
// went.
func TestOwner_SendsItemThatIsReadableAgain(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.expectNone(l.step(Publish{Scope: "s", Key: Key{Name: "a"}, Version: VersionOf([]byte("v1"))}), "delta")
	l.expect(l.publish("a", "v1"), "delta a v1")
}

func TestOwner_ExtraOfRejectedItemWaitsForRetry(t *testing.T) {
	l := newOwnerSide(t, Attached, Config{})
	l.open(agentStore)
	l.publish("a", "v1")
	l.ack(1, "a", NoObject)
	l.expectNone(l.step(Publish{Scope: "s", Key: Key{Name: "a"}, Version: VersionOf([]byte("v1")), SendExtra: true, Urgent: true}), "delta")
}

func TestOwner_SendsContentWithItsVersion(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.source.content[Key{Name: "a"}] = "v2" // has changed since
	l.step(Publish{Scope: "s", Key: Key{Name: "a"}, Version: VersionOf([]byte("v1"))})
	if it := l.last[len(l.last)-1].(Send).Message.(Delta).Items[0]; it.Version != VersionOf(it.Content) {
		t.Errorf("%s is sent under another version", it.Content)
	}
}

func TestOwner_DoesNotWaitForRejectedProject(t *testing.T) {
	l := newPeerHarness(t, Config{Hub: true, Scopes: []ScopeConfig{{Name: "s"}, {Name: "application", DependsOn: "s"}}})
	l.open(agentStore)
	l.publish("p", "v1")
	l.source.content[Key{Name: "a"}], l.source.content[Key{Name: "b"}] = "v1", "v1"
	needs := func(name string) []string {
		return l.step(Publish{Scope: "application", Key: Key{Name: name}, Version: VersionOf([]byte("v1")), DependsOn: Key{Name: "p"}})
	}
	l.expectNone(needs("a"), "delta")
	l.expect(l.ack(1, "p", Busy), "delta a v1")
	l.retryIn("p", "v1") // on its way again
	l.expect(needs("b"), "delta b v1")
}
