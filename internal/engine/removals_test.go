package engine

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

func removal(name, source string, generation, revision uint64) Removal {
	stores := []string{hubStore.UID, hubStore.UID, promotedStore.UID, "third"} // by generation
	return Removal{Scope: "s", Key: Key{Name: name}.Hash(), Source: source, Store: stores[generation], Generation: generation, Revision: revision}
}

func forgotten(revision uint64) Removal { return Removal{Store: hubStore.UID, Revision: revision} }

func TestMergeRemovals_KeepsTheLatestOfEachItemAndStore(t *testing.T) {
	got := MergeRemovals([]Removal{removal("a", "u1", 0, 50), removal("b", "u2", 2, 7)}, []Removal{removal("a", "u1", 0, 60), removal("a", "u3", 0, 40), removal("b", "u2", 1, 90)})
	if want := []Removal{removal("a", "u3", 0, 40), removal("a", "u1", 0, 60), removal("b", "u2", 1, 90), removal("b", "u2", 2, 7)}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// What is no longer remembered counts as one removal of any item, at their latest revision.
func TestMergeRemovals_IsBounded(t *testing.T) {
	var all []Removal
	for i := range uint64(MaxRemovals + 3) {
		all = MergeRemovals(all, []Removal{removal("x"+strconv.FormatUint(i, 10), "u", 0, 100+i)})
	}
	if len(all) != MaxRemovals+1 || all[0] != forgotten(102) || all[1].Revision != 103 || all[MaxRemovals].Revision != 100+MaxRemovals+2 {
		t.Errorf("%d removals, the first %+v", len(all), all[:2])
	}
	if again := MergeRemovals(all, []Removal{forgotten(50)}); !slices.Equal(again, all) {
		t.Errorf("merged with what was forgotten before: %+v", again[:2])
	}
	all[MaxRemovals].ByUser = true
	if got := ParseRemovals(FormatRemovals(all)); !slices.Equal(got, all) {
		t.Errorf("read again: %+v", got[:2])
	}
}

func TestParseRemovals_IgnoresTheRest(t *testing.T) {
	want := []Removal{removal("a", "u1", 2, 50)}
	text := FormatRemovals(want)
	for _, damaged := range []string{"x", "s/zz/u/2", "s/1/u", "s/1/u/-1", "s/1/u/x", "s/1/u/1/2", "s/1/u/1/other", "s/1/u/1/user/x", "@store", "@store/x", "@a/b/1"} {
		if got := ParseRemovals(strings.Join([]string{damaged, text}, " ")); !slices.Equal(got, want) {
			t.Errorf("%s: %+v", damaged, got)
		}
	}
}

// An item is not created if its deletion may be unknown to the hub.
func TestRemovals_HoldTheCreation(t *testing.T) {
	known := []Removal{removal("a", "u1", 0, 90), removal("b", "u2", 0, 70)}
	other := promoted(85)
	other.Predecessor.UID = "third"
	rebuilt := promoted(85)
	rebuilt.Predecessor = Store{}
	for name, tc := range map[string]struct {
		removals  []Removal
		untrusted bool // as the process before has recorded
		number    uint64
		hub       Welcome
		held      []string // of a, b, c
		trusted   bool
	}{
		"received":                    {known, false, 1, promoted(90), nil, true},
		"the later one not received":  {known, false, 1, promoted(85), []string{"a"}, false},
		"none received":               {known, false, 1, promoted(60), []string{"a", "b"}, false},
		"the next process":            {known, true, 2, promoted(85), []string{"a"}, false},
		"killed before its session":   {known, false, 2, promoted(85), []string{"a"}, false},
		"nothing received":            {known, false, 1, promoted(0), []string{"a", "b"}, false},
		"of another predecessor":      {known, false, 1, other, []string{"a", "b"}, false},
		"a rebuilt hub":               {known, false, 1, rebuilt, []string{"a", "b"}, false},
		"a restored store":            {known, false, 1, Welcome{PrincipalUID: hubIdentity, Store: Store{UID: hubStore.UID, Revision: 50}}, []string{"a", "b"}, false},
		"the hub goes on":             {known, false, 1, Welcome{PrincipalUID: hubIdentity, Store: hubStore}, nil, true},
		"unknown revision":            {[]Removal{removal("a", "u1", 0, 0)}, false, 1, promoted(100), []string{"a"}, false},
		"unknown source":              {[]Removal{removal("a", "", 0, 90)}, false, 1, promoted(85), []string{"a"}, false},
		"another source":              {[]Removal{removal("a", "u9", 0, 90)}, false, 1, promoted(85), nil, false},
		"ordered by the promoted hub": {[]Removal{removal("a", "u1", 2, 90)}, true, 2, promoted(85), nil, false},
		"forgotten, received":         {[]Removal{forgotten(80)}, false, 1, promoted(85), nil, true},
		"forgotten, not received":     {[]Removal{forgotten(86)}, false, 1, promoted(85), []string{"a", "b", "c"}, false},
		"forgotten, any store":        {[]Removal{{}}, false, 1, promoted(100), []string{"a", "b", "c"}, false},
		"forgotten, unknown":          {[]Removal{forgotten(80)}, false, 1, other, []string{"a", "b", "c"}, false},
		"forgotten, a restored store": {[]Removal{forgotten(80)}, false, 1, Welcome{PrincipalUID: hubIdentity, Store: Store{UID: hubStore.UID, Revision: 50}, Predecessor: Store{UID: "before"}}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, StoreUntrusted: tc.untrusted, KnownGeneration: HubGeneration{Hub: hubIdentity, Number: tc.number}, KnownRemovals: tc.removals})
			l.step(View{Scope: "s", Complete: true})
			l.welcome(tc.hub)
			var held []string
			for name, source := range map[string]string{"a": "u1", "b": "u2", "c": "u3"} {
				if l.peer.HoldsCreation("s", Key{Name: name}, source) {
					held = append(held, name)
				}
			}
			slices.Sort(held)
			if !slices.Equal(held, tc.held) {
				t.Errorf("held %v, want %v", held, tc.held)
			}
			l.expectTrust(tc.trusted, name)
			if l.peer.HoldsCreation("other", Key{Name: "a"}, "u1") && !slices.Contains(tc.held, "c") {
				t.Error("an item of another scope is held")
			}
			if !tc.trusted {
				l.receive(Confirm{ID: l.peer.Status().StoreHoldID})
			}
			left := slices.DeleteFunc(l.peer.Removals(), func(d Removal) bool { return tc.hub.HubGeneration > 1 && d.Store == tc.hub.Store.UID })
			if l.peer.HoldsCreation("s", Key{Name: "a"}, "u1") || !tc.trusted && len(left) > 0 {
				t.Errorf("after a confirmation: %+v", left)
			}
		})
	}
}

// A removal is recorded at the revision up to which the hub's store was seen.
func TestRemovals_AreRecorded(t *testing.T) {
	record := func(l *peerHarness) []Removal {
		l.step(Removing{Scope: "s", Key: Key{Name: "a"}, Source: "u1"})
		l.step(Removing{Scope: "unknown", Key: Key{Name: "a"}, Source: "u1"})
		return l.peer.Removals()
	}
	l := newFollower(t, Mirror)
	l.welcome(Welcome{PrincipalUID: hubIdentity, Store: hubStore})
	l.receive(Delta{Scope: "s", Items: []DeltaItem{item(1, "a", "v1")}, Revision: 150})
	if got, want := record(l), []Removal{removal("a", "u1", 0, 150)}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	l = newFollower(t, Mirror)
	l.welcome(promoted(85)) // it lacks b
	l.receive(Delta{Scope: "s", Items: []DeltaItem{item(1, "a", "v1")}, Revision: 60})
	if got, want := record(l), []Removal{removal("a", "u1", 2, 60)}; !slices.Equal(got, want) {
		t.Errorf("for a promoted hub: %+v, want %+v", got, want)
	}
	l.close()
	l.step(Remembered{Removals: []Removal{removal("b", "u2", 0, 90)}})
	if got, want := l.peer.Removals(), []Removal{removal("b", "u2", 0, 90), removal("a", "u1", 2, 60)}; !slices.Equal(got, want) {
		t.Errorf("with those of another process: %+v, want %+v", got, want)
	}
}

// A user accepts a promoted hub. What it has ordered before that is remembered for the next promotion. What the hub before it
// had ordered is accepted too.
func TestRemovals_OfAnAcceptedHubStay(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration, KnownRemovals: []Removal{removal("a", "u1", 0, 90)}})
	l.step(View{Scope: "s", Complete: true})
	l.welcome(promoted(85))
	l.receive(Delta{Scope: "s", Items: []DeltaItem{item(1, "c", "v1")}, Revision: 60})
	l.step(Removing{Scope: "s", Key: Key{Name: "b"}, Source: "u2"})
	l.receive(Confirm{ID: l.peer.Status().StoreHoldID})
	want := []Removal{removal("b", "u2", 2, 60)}
	if got := l.peer.Removals(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	l.close()
	third := Welcome{PrincipalUID: hubIdentity, HubGeneration: 3, Store: Store{UID: "third", Revision: 20}, Predecessor: Store{UID: promotedStore.UID, Revision: 50}}
	l.welcome(third)
	if !l.peer.HoldsCreation("s", Key{Name: "b"}, "u2") || l.peer.HoldsCreation("s", Key{Name: "a"}, "u1") {
		t.Error("the next hub brings back what the accepted one has deleted, or holds what was accepted")
	}
}

// A promoted hub has received a deletion. A second standby of the hub before it has not, and is promoted next.
func TestRemovals_ReceivedOnesAreHeldForAnotherStandby(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration, KnownRemovals: []Removal{removal("a", "u1", 0, 80)}})
	l.step(View{Scope: "s", Complete: true})
	l.welcome(promoted(85))
	l.expectTrust(true, "the promoted hub")
	l.close()
	l.welcome(Welcome{PrincipalUID: hubIdentity, HubGeneration: 3, Store: Store{UID: "third", Revision: 20}, Predecessor: Store{UID: hubStore.UID, Revision: 70}})
	l.expectTrust(false, "the second standby")
	if !l.peer.HoldsCreation("s", Key{Name: "a"}, "u1") {
		t.Error("the second standby brings back what it has not seen deleted")
	}
}

// A user of the workload cluster can write any UID on a replica. The record of its removal stays small and can be read again,
// and every object of that name is held.
func TestRemovals_OfADamagedReplica(t *testing.T) {
	for name, source := range map[string]string{"long": strings.Repeat("u", 200_000), "with a separator": "u/1", "with a space": "u 1"} {
		l := newFollower(t, Mirror)
		l.welcome(Welcome{PrincipalUID: hubIdentity, Store: hubStore})
		l.step(Removing{Scope: "s", Key: Key{Name: "a"}, Source: source})
		text := FormatRemovals(l.peer.Removals())
		if len(text) > 256 {
			t.Fatalf("%s: the record has %d bytes", name, len(text))
		}
		l = newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration, KnownRemovals: ParseRemovals(text)})
		l.welcome(promoted(85))
		if !l.peer.HoldsCreation("s", Key{Name: "a"}, "u1") {
			t.Errorf("%s: the next process creates the item", name)
		}
	}
}

// While the store of a hub is trusted, removals that hubs before it have ordered no longer count.
func TestKnownRemovals_OfTheTrustedStore(t *testing.T) {
	all := []Removal{{}, removal("a", "u1", 0, 90), removal("b", "u2", 2, 40), removal("c", "u3", 3, 60), {Scope: "s", Store: "later", Generation: 4}}
	hub := HubGeneration{Hub: hubIdentity, Number: 3, Since: 2, Store: "third"}
	for name, tc := range map[string]struct {
		store     string
		untrusted bool
		want      int
	}{"trusted": {"third", false, 3}, "untrusted": {"third", true, 5}, "the store before is trusted": {"before", false, 5}, "unknown": {"", false, 5}} {
		if got := KnownRemovals(all, hub, Store{UID: tc.store}, tc.untrusted); len(got) != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A promoted hub that orders many deletions does not displace those that it has not received.
func TestRemovals_DisplacedOnesAreStillHeld(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration, KnownRemovals: []Removal{removal("a", "u1", 0, 90)}})
	l.step(View{Scope: "s", Complete: true})
	l.welcome(promoted(85))
	for i := range MaxRemovals + 1 {
		l.step(Removing{Scope: "s", Key: Key{Name: "x" + strconv.Itoa(i)}, Source: "x"})
	}
	next := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, StoreUntrusted: true, KnownGeneration: l.peer.Generation(), KnownRemovals: ParseRemovals(FormatRemovals(l.peer.Removals()))})
	next.step(View{Scope: "s", Complete: true})
	next.welcome(promoted(85))
	for what, l := range map[string]*peerHarness{"this process": l, "the next process": next} {
		if !l.peer.HoldsCreation("s", Key{Name: "a"}, "u1") {
			t.Errorf("%s creates an item again whose deletion the promoted hub has not received", what)
		}
	}
}

// The stores whose removals are no longer remembered one by one are bounded. One removal stands for the first of them.
func TestMergeRemovals_BoundsStores(t *testing.T) {
	var all []Removal
	for i := range uint64(3 * maxForgottenStores) {
		all = MergeRemovals(all, []Removal{{Store: "store-" + strconv.FormatUint(i, 10), Generation: i + 1, Revision: 7}})
	}
	if len(all) != maxForgottenStores+1 || all[0] != (Removal{}) || all[maxForgottenStores].Generation != 3*maxForgottenStores {
		t.Errorf("%+v", all)
	}
}

// A hub was restored into a new cluster with its generation, and a user has accepted that. The deletions that it had ordered
// before the restore are accepted as lost, so that the hub after it does not have to know them.
func TestRemovals_OfAnotherStoreOfTheGenerationAreAccepted(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: promotedStore, KnownGeneration: HubGeneration{Hub: hubIdentity, Number: 2, Store: promotedStore.UID}, KnownRemovals: []Removal{removal("a", "u1", 2, 8000)}})
	l.step(View{Scope: "s", Complete: true})
	restored := promoted(85)
	restored.Store.UID = "restored"
	l.welcome(restored)
	l.expectTrust(false, "the restored hub")
	l.receive(Confirm{ID: l.peer.Status().StoreHoldID})
	l.close()
	l.welcome(Welcome{PrincipalUID: hubIdentity, HubGeneration: 3, Store: Store{UID: "third", Revision: 20}, Predecessor: Store{UID: "restored", Revision: 100}})
	l.expectTrust(true, "the next hub, which has received everything")
}

// A removal with the resources of an Application, or by absence, does not count as one after which the replica only ends.
func TestRemovals_ByUser(t *testing.T) {
	byUser := removal("a", "u1", 0, 90)
	byUser.ByUser = true
	for name, tc := range map[string]struct {
		known       Removal
		key, source string
		want        bool
	}{
		"by a user":      {byUser, "a", "u1", true},
		"other item":     {byUser, "b", "u1", false},
		"other object":   {byUser, "a", "u2", false},
		"not by a user":  {removal("a", "u1", 0, 90), "a", "u1", false},
		"no longer kept": {forgotten(90), "a", "u1", false},
	} {
		l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration, KnownRemovals: ParseRemovals(FormatRemovals([]Removal{tc.known}))})
		if got := l.peer.RemovedByUser("s", Key{Name: tc.key}, tc.source); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
