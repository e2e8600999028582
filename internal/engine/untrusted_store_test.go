package engine

import "testing"

var laterHubStore = Store{UID: "hub", Revision: 200}

// newUntrusted returns a replica in a session with a hub whose store regressed. It has objects a and b.
func newUntrusted(t *testing.T, style ScopeStyle) *peerHarness {
	t.Helper()
	l := newReplicaSide(t, style, Config{KnownStore: laterHubStore})
	l.observe("a", "v1")
	l.observe("b", "v1")
	l.open(hubStore)
	if l.peer.Status().StoreHoldID == "" {
		t.Fatal("the store is trusted")
	}
	return l
}

// hello returns what the agent says when it connects again.
func (l *peerHarness) hello() Hello {
	l.t.Helper()
	l.close()
	l.session++
	l.step(Connected{Session: l.session, Epoch: Epoch{1, l.session}, Store: agentStore})
	return l.last[len(l.last)-1].(Send).Message.(Hello)
}

func TestUntrustedStore_AcceptedOnlyByItsID(t *testing.T) {
	l := newUntrusted(t, Mirror)
	l.expectNone(l.receive(Confirm{ID: "store-of-yesterday"}), "event StoreAccepted")
	l.expect(l.receive(Confirm{ID: l.peer.Status().StoreHoldID}), "event StoreAccepted")
}

func TestUntrustedStore_AcceptedStoreIsTheNewReference(t *testing.T) {
	l := newUntrusted(t, Mirror)
	l.receive(Confirm{ID: l.peer.Status().StoreHoldID})
	if seen := l.hello().Seen[0].Revision; seen > hubStore.Revision {
		t.Errorf("the hub is to wait for revision %d, but it is at %d", seen, hubStore.Revision)
	}
	l.close()
	l.open(hubStore)
	if l.peer.Status().StoreHoldID != "" {
		t.Error("the store is suspect again")
	}
}

func TestUntrustedStore_AcceptanceForgetsEarlierHistory(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(laterHubStore)
	l.receive(Delta{Scope: "s", Items: []DeltaItem{item(1, "a", "v1")}, Revision: 200})
	l.applied("a", "v1", "")
	l.close()
	l.open(hubStore)
	l.receive(Confirm{ID: l.peer.Status().StoreHoldID})
	if seen := l.hello().Seen[0].Revision; seen > hubStore.Revision {
		t.Errorf("the hub is to wait for revision %d, but it is at %d", seen, hubStore.Revision)
	}
}

// A copy of the earlier history shows up late, from a watch that is behind.
func TestUntrustedStore_AcceptanceAllowsChanges(t *testing.T) {
	l := newUntrusted(t, Mirror)
	l.step(Observe{Scope: "s", Key: Key{Name: "c"}, Stored: VersionOf([]byte("v1")), Owned: true, SourceRevision: 180})
	l.receive(Confirm{ID: l.peer.Status().StoreHoldID})
	in := item(1, "c", "v2")
	in.Revision = 101
	l.expect(l.receive(Delta{Scope: "s", Items: []DeltaItem{in}, View: 101}), "apply c")
}

func TestUntrustedStore_DeletesNothing(t *testing.T) {
	t.Run("with cascade", func(t *testing.T) {
		l := newUntrusted(t, Mirror)
		got := l.delta(1, "a", "deleting")
		l.expectNone(got, "apply")
		l.expect(got, "ack a Held")
		l.delta(2, "c", "deleting") // not seen here yet, but it may be there by the time of the write
		if a, ok := l.last[len(l.last)-1].(Apply); !ok || !a.StoreUntrusted {
			t.Errorf("applied without a warning: %+v", l.last)
		}
	})
	t.Run("by its word", func(t *testing.T) {
		l := newUntrusted(t, Mirror)
		held := l.gone(1, "a")
		l.expectNone(held, "remove")
		l.expect(held, "ack a Held")
	})
	t.Run("by absence", func(t *testing.T) {
		l := newUntrusted(t, Mirror)
		l.expectNone(l.round(100, "b", "v1"), "remove")
		if l.peer.Status().Scopes[0].Held != 1 {
			t.Error("it is not held")
		}
	})
	t.Run("and gives no commands", func(t *testing.T) {
		l := newUntrusted(t, OneShot)
		got := l.delta(1, "c", "sync")
		l.expectNone(got, "apply")
		l.expect(got, "ack c Held")
	})
}

// A confirmation counts for the absence that the user looked at. If the owner has had the item since, another absence
// is another matter.
func TestConfirmation_EndsWhenTheOwnerHasItemAgain(t *testing.T) {
	for name, again := range map[string]func(*peerHarness){
		"it sends it":       func(l *peerHarness) { l.delta(1, "a", "v1") },
		"a round lists it":  func(l *peerHarness) { l.round(100, "a", "v2", "b", "v1") },
		"a session is over": func(l *peerHarness) { l.close(); l.open(hubStore) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newUntrusted(t, Mirror)
			l.round(100, "b", "v1")
			l.expect(l.receive(Confirm{ID: l.peer.Status().Scopes[0].HeldID}), "remove a")
			l.failed("a", Busy)
			again(l)
			l.expectNone(l.round(100, "b", "v1"), "remove a")
		})
	}
}

func TestConfirmation_FailedRemovalIsRetried(t *testing.T) {
	l := newUntrusted(t, Mirror)
	l.round(100, "b", "v1")
	l.receive(Confirm{ID: l.peer.Status().Scopes[0].HeldID})
	l.failed("a", Busy)
	l.expect(l.round(100, "b", "v1"), "remove a")
}

func TestUntrustedStore_Detection(t *testing.T) {
	for name, c := range map[string]struct {
		known, met Store
		suspect    bool
	}{
		"never seen before":   {Store{}, hubStore, false},
		"as it was":           {hubStore, hubStore, false},
		"further":             {hubStore, laterHubStore, false},
		"regressed":           {laterHubStore, hubStore, true},
		"another, but newer":  {hubStore, Store{UID: "other", Revision: 300}, true},
		"does not report its": {hubStore, Store{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newReplicaSide(t, Mirror, Config{KnownStore: c.known})
			got := l.open(c.met)
			if suspect := l.peer.Status().StoreHoldID != ""; suspect != c.suspect {
				t.Errorf("suspect: %v", suspect)
			}
			if c.suspect {
				l.expect(got, "event HoldStarted")
				l.close()
				l.open(c.met)
				if l.peer.Status().StoreHoldID == "" {
					t.Error("it is trusted at the second connection")
				}
			}
		})
	}
}

// What another replica of the hub has recorded counts while there is no session here.
func TestUntrustedStore_RecordCountsWithoutSession(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{KnownStore: agentStore})
	l.open(agentStore)
	l.step(Known{Store: agentStore, StoreUntrusted: true})
	if l.peer.Status().StoreHoldID != "" {
		t.Error("a record from before the session replaces what the session knows")
	}
	l.close()
	l.step(Known{Store: agentStore, StoreUntrusted: true})
	if l.peer.Status().StoreHoldID == "" {
		t.Error("the suspicion of another replica is lost")
	}
	l.step(Known{Store: agentStore})
	if l.peer.Status().StoreHoldID != "" {
		t.Error("the store was accepted elsewhere")
	}
}

// Another process of the agent may have had a session since. What it recorded is added before the next session, and never
// removes what this process knows.
func TestRemembered_AddsWhatAnotherProcessKnows(t *testing.T) {
	for _, c := range []struct {
		name      string
		in        Remembered
		untrusted bool
		seen      uint64
	}{
		{"nothing", Remembered{}, false, hubStore.Revision},
		{"an older state", Remembered{Store: Store{UID: hubStore.UID, Revision: 1}, Seen: []Seen{{"s", 1}}}, false, hubStore.Revision},
		{"another process does not trust the store", Remembered{Store: hubStore, StoreUntrusted: true}, true, hubStore.Revision},
		{"a later state, so the hub has lost it", Remembered{Store: laterHubStore, Seen: []Seen{{"s", laterHubStore.Revision}}}, true, laterHubStore.Revision},
		{"another hub", Remembered{Store: Store{UID: "other", Revision: 900}, Seen: []Seen{{"s", 900}}}, false, hubStore.Revision},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newReplicaSide(t, Mirror, Config{})
			l.observe("a", "v1")
			l.open(hubStore)
			l.close()
			l.step(c.in)
			l.open(hubStore)
			if got := l.peer.Status().StoreHoldID != ""; got != c.untrusted {
				t.Errorf("the store is untrusted: %v, want %v", got, c.untrusted)
			}
			l.step(Remembered{Store: Store{UID: hubStore.UID, Revision: 1 << 40}, StoreUntrusted: true}) // a session is open
			if got := l.peer.Status().StoreHoldID != ""; got != c.untrusted {
				t.Error("it counts during a session")
			}
			if seen := l.peer.replicas["s"].seen; seen > c.seen {
				t.Errorf("seen is %d, want at most %d", seen, c.seen)
			}
		})
	}
}
