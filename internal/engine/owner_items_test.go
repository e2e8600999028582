package engine

import "testing"

// The content of an item is gone when its turn comes, and is there again, unchanged, before the owner hears that it went.
func TestItemThatCouldNotBeReadIsSentWhenItIsBack(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.refuse(l.step(Publish{Scope: "s", Key: Key{Name: "a"}, Version: VersionOf([]byte("v1"))}), "delta")
	l.expect(l.publish("a", "v1"), "delta a v1")
}

func TestExtraOfARefusedItemWaitsForItsRetry(t *testing.T) {
	l := newOwnerSide(t, Attached, Config{})
	l.open(agentStore)
	l.publish("a", "v1")
	l.ack(1, "a", NoObject)
	l.refuse(l.step(Publish{Scope: "s", Key: Key{Name: "a"}, Version: VersionOf([]byte("v1")), Touch: true, Urgent: true}), "delta")
}
