package engine

import "testing"

// An owned object that appears after the sides were in sync is not assumed to be the owner's.
func TestDrift_NewObjectIsNotAssumedToBeTheOwners(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	l.expect(l.root(), "event InSync")
	l.observe("a", "v1")
	l.expectNone(l.observe("a", "v2"), "want")
}

// A write of an earlier session succeeds after the new session found the sides in sync without it.
func TestDrift_EarlierWriteIsNotAssumedToBeTheOwners(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.observe("a", "v1")
	l.open(hubStore)
	l.expect(l.delta(1, "a", "v2"), "apply a")
	l.close()
	l.open(hubStore)
	l.expect(l.root("a", "v1"), "event InSync")
	l.observe("a", "v2")
	landed := l.applied("a", "v2", "v1")
	l.expectNone(landed, "alias")
	l.expect(landed, "ask")
}

func TestDrift_RequestsLocalChangeWhenViewIsComplete(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.observe("a", "v1")
	l.open(hubStore)
	l.expect(l.root("a", "v1"), "event InSync")
	l.step(View{Scope: "s", Complete: false, Reason: "forbidden"})
	l.expectNone(l.observe("a", "changed"), "want")
	l.expect(l.step(View{Scope: "s", Complete: true}), "want a")
}

func TestDrift_RequestsObjectThatLostOwnership(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	l.delta(1, "a", "v1")
	l.applied("a", "v1", "")
	l.expect(l.step(Observe{Scope: "s", Key: Key{Name: "a"}, Stored: VersionOf([]byte("v1")), Owned: false}), "want a")
}

// Something on this side insists on its content. For a while both are taken as equal. Then one more write shows whether
// it still insists.
func TestDrift_ContestedContentIsWrittenAgain(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	seq := uint64(1)
	l.delta(seq, "a", "v1")
	l.applied("a", "v1", "theirs")
	var fought []string
	for len(fought) == 0 || fought[len(fought)-1] != "event Aliased a" {
		if seq > 5 {
			t.Fatal("it is not tolerated")
		}
		fought = append(fought, l.observe("a", "theirs")...)
		fought = append(fought, l.advance(20*Second)...)
		if fought[len(fought)-1] != "want a" {
			break
		}
		seq++
		l.delta(seq, "a", "v1")
		l.applied("a", "v1", "theirs")
	}
	l.expect(fought, "event Aliased a")
	l.expect(l.root("a", "v1"), "event InSync")
	l.expectNone(l.advance(contestedLifetime/2-Second), "want")
	l.expect(l.advance(contestedLifetime/2+Second), "want a")
}

// What the API server made of the last write is known before it is recorded on the object. Until then the object has
// the alias of an earlier version.
func TestDrift_RecordedAliasDoesNotReplaceNewerOne(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	l.delta(1, "a", "v1")
	l.expect(l.applied("a", "v1, normalised", ""), "alias a")
	older := Alias{Written: VersionOf([]byte("v0")), Stored: VersionOf([]byte("v1, normalised"))} // which v0 was stored as too
	l.expectNone(l.step(Observe{Scope: "s", Key: Key{Name: "a"}, Stored: VersionOf([]byte("v1, normalised")), Owned: true, Alias: older}), "want")
	l.expect(l.root("a", "v1"), "event InSync")
}

func TestDrift_DoesNotRequestItemThatTheOwnerLost(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.observe("a", "v1")
	l.open(hubStore)
	l.root("a", "v1")
	l.expect(l.step(ObjectGone{Scope: "s", Key: Key{Name: "a"}}), "want a")
	l.expect(l.root(), "event InSync")
	l.expectNone(l.advance(300*Second), "want")
}

func TestDrift_RecheckOfOneItem(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	for i, name := range []string{"a", "b"} {
		l.delta(uint64(i+1), name, "v1")
		l.expect(l.applied(name, "v1, normalised", ""), "alias "+name)
	}
	l.step(Recheck{Scope: "s", Key: Key{Name: "a"}})
	got := l.advance(20 * Second)
	l.expect(got, "want a")
	l.expectNone(got, "want b")
}
