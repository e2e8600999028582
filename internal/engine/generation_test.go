package engine

import (
	"slices"
	"strings"
	"testing"
)

const hubIdentity = "hub-identity"

var (
	firstGeneration = HubGeneration{Hub: hubIdentity, Number: 1}
	promotedStore   = Store{UID: "standby", Revision: 40} // its numbers mean something else than those of hubStore
)

// welcome begins a session with a hub, and returns what the agent does with the Welcome and then.
func (l *peerHarness) welcome(m Welcome) []string {
	l.t.Helper()
	l.session++
	m.Epoch, m.Protocol, m.Projection = Epoch{Incarnation: 1, Attempt: l.session}, ProtocolMax, ProjectionMax
	l.step(Connected{Session: l.session, Epoch: m.Epoch, Store: agentStore})
	out := l.step(Received{l.session, m})
	return append(out, l.step(Begin{})...)
}

// promoted is the Welcome of a hub that has received everything of hubStore up to a revision.
func promoted(revision uint64) Welcome {
	return Welcome{PrincipalUID: hubIdentity, HubGeneration: 2, Store: promotedStore, Predecessor: Store{UID: hubStore.UID, Revision: revision}}
}

// observeFrom says that the local object came from a revision of a hub.
func (l *peerHarness) observeFrom(name, content string, generation, revision uint64) []string {
	l.t.Helper()
	return l.step(Observe{Scope: "s", Key: Key{Name: name}, Stored: VersionOf([]byte(content)), Owned: true, SourceGeneration: generation, SourceRevision: revision})
}

// newFollower is an agent that has followed the first hub up to revision 100. Its objects came from revisions 80 and 90.
func newFollower(t *testing.T, style ScopeStyle) *peerHarness {
	t.Helper()
	l := newReplicaSide(t, style, Config{KnownStore: hubStore, KnownGeneration: firstGeneration})
	l.observeFrom("a", "v1", 0, 80)
	l.observeFrom("b", "v1", 0, 90)
	return l
}

func TestGeneration_LowerOneIsRefused(t *testing.T) {
	for _, tc := range []struct {
		hub        string
		generation uint64
		refused    bool
	}{{hubIdentity, 0, true}, {hubIdentity, 1, true}, {hubIdentity, 2, true}, {hubIdentity, 3, false}, {hubIdentity, 4, false}, {"other", 1, false}} {
		l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: HubGeneration{Hub: hubIdentity, Number: 3}})
		l.session++
		epoch := Epoch{Incarnation: 1, Attempt: l.session}
		l.step(Connected{Session: l.session, Epoch: epoch, Store: agentStore})
		got := l.step(Received{l.session, Welcome{Epoch: epoch, Protocol: ProtocolMax, Projection: ProjectionMax, PrincipalUID: tc.hub, HubGeneration: tc.generation, Store: hubStore}})
		if !tc.refused {
			l.expect(got, "event Opened")
			continue
		}
		l.expectNone(got, "event Opened")
		if bye, ok := l.last[0].(Send).Message.(Bye); !ok || bye.Code != HubSuperseded || !strings.Contains(bye.Message, "generation 3") {
			t.Errorf("generation %d: the hub gets %+v", tc.generation, l.last[0])
		}
		if l.step(Begin{}); len(l.last) > 0 {
			t.Errorf("the session begins: %+v", l.last)
		}
		if l.peer.Generation().Number != 3 {
			t.Error("the generation has decreased")
		}
	}
}

func TestGeneration_AllAddressesLeadToOneHub(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration, OneHub: true})
	l.expectNone(l.welcome(Welcome{PrincipalUID: "other", HubGeneration: 7, Store: promotedStore}), "event Opened")
	if l.peer.Generation() != firstGeneration {
		t.Errorf("the agent now belongs to %+v", l.peer.Generation())
	}
	l.expect(l.welcome(Welcome{PrincipalUID: hubIdentity, HubGeneration: 1, Store: hubStore}), "event Opened")
}

// Two hubs with the same identity and generation claim to be active. An agent with several addresses stays with the one that it
// follows. A later generation, and an agent with one address, are as before.
func TestGeneration_TwoHubsOfOneGeneration(t *testing.T) {
	first := Welcome{PrincipalUID: hubIdentity, HubGeneration: 1, Store: hubStore}
	second := Welcome{PrincipalUID: hubIdentity, HubGeneration: 1, Store: promotedStore}
	follower := func(t *testing.T, cfg Config) *peerHarness {
		t.Helper()
		l := newReplicaSide(t, Mirror, cfg)
		l.expect(l.welcome(first), "event Opened")
		l.close()
		return l
	}
	restarted := func(t *testing.T, l *peerHarness, oneHub bool) *peerHarness {
		t.Helper()
		known, untrusted := l.peer.Other()
		return newReplicaSide(t, Mirror, Config{KnownStore: known, StoreUntrusted: untrusted, KnownGeneration: l.peer.Generation(), OneHub: oneHub})
	}
	t.Run("is refused", func(t *testing.T) {
		l := follower(t, Config{OneHub: true})
		for name, process := range map[string]*peerHarness{"one process": l, "the next process": restarted(t, l, true)} {
			before := process.peer.Generation()
			process.expectNone(process.welcome(second), "event Opened")
			process.session++
			epoch := Epoch{Incarnation: 1, Attempt: process.session}
			process.step(Connected{Session: process.session, Epoch: epoch, Store: agentStore})
			m := second
			m.Epoch, m.Protocol, m.Projection = epoch, ProtocolMax, ProjectionMax
			process.step(Received{process.session, m})
			bye, ok := process.last[0].(Send).Message.(Bye)
			if !ok || bye.Code != WrongHub || !strings.Contains(bye.Message, hubStore.UID) || !strings.Contains(bye.Message, promotedStore.UID) || !strings.Contains(bye.Message, "argocd-agentctl hub promote") {
				t.Errorf("%s: the hub gets %+v", name, process.last[0])
			}
			if process.peer.Generation() != before || process.peer.Status().StoreHoldID != "" {
				t.Errorf("%s: the agent knows %+v, before %+v", name, process.peer.Generation(), before)
			}
			process.expect(process.welcome(first), "event Opened")
			process.close()
			next := promoted(100)
			process.expect(process.welcome(next), "event StoreContinued")
		}
	})
	t.Run("another process has followed a hub", func(t *testing.T) {
		l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration, OneHub: true})
		l.step(Remembered{Store: hubStore, Generation: HubGeneration{Hub: hubIdentity, Number: 1, Store: hubStore.UID}})
		l.expectNone(l.welcome(second), "event Opened")
	})
	t.Run("an agent with one address holds", func(t *testing.T) {
		l := follower(t, Config{})
		l.expect(l.welcome(second), "event HoldStarted")
		l.expect(l.receive(Confirm{ID: l.peer.Status().StoreHoldID}), "event StoreAccepted")
		next := restarted(t, l, true)
		next.expect(next.welcome(second), "event Opened")
	})
	t.Run("a user has accepted the store while an older release ran", func(t *testing.T) {
		known := HubGeneration{Hub: hubIdentity, Number: 1, Store: hubStore.UID}
		for untrusted, want := range map[bool]bool{false: true, true: false} {
			l := newReplicaSide(t, Mirror, Config{KnownStore: promotedStore, StoreUntrusted: untrusted, KnownGeneration: known, OneHub: true})
			l.welcome(second)
			if got := l.peer.isOpen(); got != want {
				t.Errorf("untrusted %v: follows %v", untrusted, got)
			}
		}
	})
	t.Run("the store of the generation is unknown", func(t *testing.T) {
		l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration, OneHub: true})
		l.expect(l.welcome(second), "event HoldStarted")
	})
	t.Run("a later generation whose store is untrusted", func(t *testing.T) {
		l := follower(t, Config{OneHub: true})
		rebuilt := Welcome{PrincipalUID: hubIdentity, HubGeneration: 2, Store: promotedStore}
		l.expect(l.welcome(rebuilt), "event HoldStarted")
		l.close()
		for _, process := range []*peerHarness{l, restarted(t, l, true)} { // its record has the store before, which is trusted
			process.expect(process.welcome(rebuilt), "event HoldStarted")
			process.expect(process.receive(Confirm{ID: process.peer.Status().StoreHoldID}), "event StoreAccepted")
		}
	})
}

// Since is of one store. A record of another store of the generation does not have it.
func TestGeneration_SinceIsOfOneStore(t *testing.T) {
	known := HubGeneration{Hub: hubIdentity, Number: 5, Since: 3, Store: "a"}
	for name, tc := range map[string]struct{ other, want HubGeneration }{
		"other store":   {HubGeneration{Hub: hubIdentity, Number: 5, Store: "b"}, HubGeneration{Hub: hubIdentity, Number: 5, Store: "b"}},
		"same store":    {HubGeneration{Hub: hubIdentity, Number: 5, Store: "a"}, known},
		"unknown store": {HubGeneration{Hub: hubIdentity, Number: 5}, known},
	} {
		if got := known.Newer(tc.other); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestPromotion_HoldNamesWhatTheHubLacks(t *testing.T) {
	for name, tc := range map[string]struct {
		until    uint64
		read     bool
		removals []Removal
		want     string
	}{
		"one item":               {85, true, nil, "had not received the last changes of 1 item: deletions"},
		"two items":              {70, true, nil, "had not received the last changes of 2 items: deletions"},
		"an item and a deletion": {85, true, []Removal{removal("c", "u3", 0, 95)}, "had not received the last changes of 2 items: deletions"},
		"forgotten deletions":    {85, true, []Removal{{Revision: 95}}, "may lack the last changes of objects on this cluster: deletions"},
		"not read yet":           {100, false, nil, "may lack the last changes of objects on this cluster: deletions"},
		"only some read":         {85, false, nil, "may lack the last changes of objects on this cluster: deletions"},
	} {
		l := newFollower(t, Mirror)
		l.step(Remembered{Removals: tc.removals})
		l.step(View{Scope: "s", Complete: tc.read})
		l.welcome(promoted(tc.until))
		if got := l.peer.storeHold().Reason; !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Another process of the agent has followed the promoted hub.
func TestGeneration_IsRemembered(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration, OneHub: true})
	l.step(Remembered{Generation: HubGeneration{Hub: "other", Number: 9}})
	l.expect(l.welcome(Welcome{PrincipalUID: hubIdentity, Store: hubStore}), "event Opened")
	l.close()
	l.step(Remembered{Generation: HubGeneration{Hub: hubIdentity, Number: 2}})
	l.expectNone(l.welcome(Welcome{PrincipalUID: hubIdentity, Store: hubStore}), "event Opened")
}

// An agent has followed another hub since. It still does not follow a hub that was superseded before.
func TestGeneration_OfFormerHubIsRemembered(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: HubGeneration{Hub: hubIdentity, Number: 3}})
	l.expect(l.welcome(Welcome{PrincipalUID: "other", Store: promotedStore}), "event Opened")
	l.close()
	if got := l.peer.LatestGeneration(hubIdentity); got != 3 {
		t.Errorf("the former hub has generation %d", got)
	}
	next := newReplicaSide(t, Mirror, Config{KnownStore: promotedStore, KnownGeneration: l.peer.Generation(), FormerGenerations: l.peer.FormerGenerations()})
	for _, process := range []*peerHarness{l, next} {
		process.expectNone(process.welcome(Welcome{PrincipalUID: hubIdentity, HubGeneration: 2, Store: hubStore}), "event Opened")
		process.expect(process.welcome(Welcome{PrincipalUID: hubIdentity, HubGeneration: 4, Store: hubStore}), "event Opened")
		if process.peer.LatestGeneration(hubIdentity) != 4 || process.peer.LatestGeneration("other") != 1 || len(process.peer.FormerGenerations()) != 1 {
			t.Errorf("%+v, formerly %+v", process.peer.Generation(), process.peer.FormerGenerations())
		}
	}
}

func TestGeneration_FormerHubsOfAnotherProcess(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration})
	l.step(Remembered{Generation: HubGeneration{Hub: "other", Number: 1}, FormerGenerations: []HubGeneration{{Hub: hubIdentity, Number: 5}, {Hub: "third", Number: 2}}})
	for hub, want := range map[string]uint64{hubIdentity: 5, "other": 1, "third": 2, "unknown": 0} {
		if got := l.peer.LatestGeneration(hub); got != want {
			t.Errorf("%s has generation %d, want %d", hub, got, want)
		}
	}
}

func TestMergeGenerations(t *testing.T) {
	g := func(hub string, number uint64) HubGeneration { return HubGeneration{Hub: hub, Number: number} }
	var many []HubGeneration
	for i := range uint64(maxFormerHubs + 3) {
		many = append(many, g(string(rune('a'+i)), i+1))
	}
	for _, tc := range []struct {
		name        string
		current     HubGeneration
		former      []HubGeneration
		want        HubGeneration
		wantFormers []HubGeneration
	}{
		{"nothing", g("x", 1), nil, g("x", 1), nil},
		{"no hub", g("x", 1), []HubGeneration{{}}, g("x", 1), nil},
		{"a later one of the current hub", g("x", 1), []HubGeneration{g("x", 4), g("x", 2)}, g("x", 4), nil},
		{"the latest of each hub, the last one last", g("x", 1), []HubGeneration{g("y", 4), g("z", 1), g("y", 2)}, g("x", 1), []HubGeneration{g("z", 1), g("y", 4)}},
		{"too many", g("x", 1), many, g("x", 1), many[3:]},
		{"the store of the same generation", g("x", 1), []HubGeneration{{Hub: "x", Number: 1, Store: "s"}, g("x", 1)}, HubGeneration{Hub: "x", Number: 1, Store: "s"}, nil},
		{"no store of an earlier generation", g("x", 2), []HubGeneration{{Hub: "x", Number: 1, Store: "s"}}, g("x", 2), nil},
		{"no store of a former hub", g("x", 1), []HubGeneration{{Hub: "y", Number: 4, Store: "s"}}, g("x", 1), []HubGeneration{g("y", 4)}},
	} {
		if got, former := MergeGenerations(tc.current, tc.former...); got != tc.want || !slices.Equal(former, tc.wantFormers) {
			t.Errorf("%s: %+v %+v", tc.name, got, former)
		}
	}
}

// A process of the agent that has not noticed the promotion does not overwrite what another process wrote for the new hub.
func TestGeneration_OlderProcessOverwritesNothing(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownGeneration: firstGeneration})
	l.welcome(Welcome{PrincipalUID: hubIdentity, Store: hubStore})
	l.observeFrom("a", "v2", 2, 41)
	stale := item(1, "a", "v3")
	stale.Revision = 100
	l.expectNone(l.receive(Delta{Scope: "s", Items: []DeltaItem{stale}, View: 100}), "apply")
	if l.peer.IsLater("s", 0, 41, 100) || !l.peer.IsLater("s", 2, 41, 100) {
		t.Error("a later generation is not later")
	}
	if seen := l.hello().Seen[0].Revision; seen == 41 {
		t.Error("a revision of another store was recorded")
	}
}

// The revisions of objects of an earlier generation say nothing about those of this one.
func TestGeneration_EarlierRevisionsDoNotCount(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: promotedStore, KnownGeneration: HubGeneration{Hub: hubIdentity, Number: 2}})
	l.observeFrom("a", "v1", 0, 90)
	l.welcome(Welcome{PrincipalUID: hubIdentity, HubGeneration: 2, Store: promotedStore})
	l.observeFrom("b", "v2", 2, 50) // another process wrote it since
	stale := item(1, "b", "v1")
	l.expectNone(l.receive(Delta{Scope: "s", Items: []DeltaItem{stale}, View: 45}), "apply")
	l.expect(l.receive(Delta{Scope: "s", Items: []DeltaItem{item(2, "a", "v2")}, View: 45}), "apply a")
}

func TestPromotion_ContinuesTheStore(t *testing.T) {
	for name, predecessor := range map[string]uint64{"planned": 100, "with a lag of what others have": 90} {
		t.Run(name, func(t *testing.T) {
			l := newFollower(t, Mirror)
			got := l.welcome(promoted(predecessor))
			l.expect(got, "event StoreContinued")
			l.expectNone(got, "event HoldStarted")
			if l.peer.Status().StoreHoldID != "" || l.peer.Status().Other != promotedStore {
				t.Errorf("%+v", l.peer.Status())
			}
			update := item(1, "a", "v2")
			update.Revision = 41
			l.expect(l.receive(Delta{Scope: "s", Items: []DeltaItem{update}, View: 41}), "apply a")
			if apply := l.last[len(l.last)-1].(Apply); apply.SourceGeneration != 2 || apply.StoreUntrusted {
				t.Errorf("%+v", apply)
			}
			l.expect(l.gone(2, "b"), "remove b")
			if seen := l.hello().Seen[0].Revision; seen > promotedStore.Revision {
				t.Errorf("the hub is to wait for revision %d, but it is at %d", seen, promotedStore.Revision)
			}
		})
	}
}

// Object b came from a revision that the promoted hub has not received.
func TestPromotion_HoldsWhatTheHubMayLack(t *testing.T) {
	begin := func(t *testing.T) *peerHarness {
		t.Helper()
		l := newFollower(t, Mirror)
		got := l.welcome(promoted(85))
		l.expect(got, "event HoldStarted")
		l.expectNone(got, "event StoreContinued")
		return l
	}
	t.Run("updates", func(t *testing.T) {
		l := begin(t)
		l.expect(l.delta(1, "a", "v2"), "apply a")
		held := l.delta(2, "b", "v0")
		l.expectNone(held, "apply")
		l.expect(held, "ack b Held")
		l.expect(l.delta(3, "c", "v1"), "apply c")
	})
	t.Run("deletions", func(t *testing.T) {
		l := begin(t)
		l.expect(l.gone(1, "a"), "remove a")
		held := l.gone(2, "b")
		l.expectNone(held, "remove")
		l.expect(held, "ack b Held")
	})
	t.Run("absence", func(t *testing.T) {
		l := newFollower(t, Mirror)
		for _, name := range []string{"c", "d", "e"} {
			l.observeFrom(name, "v1", 0, 70)
		}
		l.welcome(promoted(85))
		got := l.round(100, "c", "v1", "d", "v1", "e", "v1")
		l.expect(got, "remove a")
		l.expectNone(got, "remove b")
		if l.peer.Status().Scopes[0].Held != 1 {
			t.Error("it is not held")
		}
	})
	t.Run("commands", func(t *testing.T) {
		l := newPeerHarness(t, Config{KnownStore: hubStore, KnownGeneration: firstGeneration,
			Scopes: []ScopeConfig{{Name: "s", Role: Replica}, {Name: "command", Role: Replica, Style: OneShot}}})
		l.step(View{Scope: "command", Complete: true})
		l.observeFrom("b", "v1", 0, 90)
		l.welcome(promoted(85))
		got := l.receive(Delta{Scope: "command", Items: []DeltaItem{item(1, "c", "sync")}})
		l.expectNone(got, "apply")
		l.expect(got, "ack c Held")
	})
	t.Run("until a user confirms", func(t *testing.T) {
		l := begin(t)
		l.delta(1, "b", "v0")
		l.expect(l.receive(Confirm{ID: l.peer.Status().StoreHoldID}), "event StoreAccepted")
		l.expect(l.delta(2, "b", "v0"), "apply b")
		if l.peer.Status().Other != promotedStore {
			t.Errorf("%+v", l.peer.Status().Other)
		}
	})
	t.Run("in the next session", func(t *testing.T) {
		l := begin(t)
		l.delta(1, "a", "v2")
		l.step(Applied{Scope: "s", Key: Key{Name: "a"}, Ticket: l.peer.replicas["s"].get(Key{Name: "a"}).ticket, Written: true,
			Stored: VersionOf([]byte("v2")), SourceRevision: 95, SourceGeneration: 2})
		l.close()
		again := promoted(85)
		again.Store.Revision++
		l.expect(l.welcome(again), "event HoldStarted")
		l.expect(l.delta(1, "a", "v3"), "apply a")
		l.expect(l.delta(2, "b", "v0"), "ack b Held")
	})
	t.Run("and all if its store regresses", func(t *testing.T) {
		l := begin(t)
		l.receive(Delta{Scope: "s", Items: []DeltaItem{item(1, "a", "v1")}, Revision: 60})
		l.close()
		regressed := promoted(85)
		regressed.Store.Revision = 59
		l.welcome(regressed)
		l.expect(l.delta(1, "a", "v2"), "ack a Held")
	})
	t.Run("also of objects that appear", func(t *testing.T) {
		l := begin(t)
		l.observeFrom("c", "v1", 0, 99)
		l.expect(l.delta(1, "c", "v0"), "ack c Held")
		l.observeFrom("d", "v1", 2, 99)
		l.expect(l.delta(2, "d", "v2"), "apply d")
	})
	t.Run("not of objects that are created again", func(t *testing.T) {
		l := begin(t)
		l.expect(l.delta(1, "b", "v0"), "ack b Held")
		l.step(ObjectGone{Scope: "s", Key: Key{Name: "b"}})
		l.expect(l.delta(2, "b", "v0"), "apply b")
		l.applied("b", "v0", "")
		l.expect(l.delta(3, "b", "v2"), "apply b")
	})
	t.Run("also of objects without a revision", func(t *testing.T) {
		l := newFollower(t, Mirror)
		l.observeFrom("c", "v1", 0, 0)
		l.welcome(promoted(100))
		l.expect(l.delta(1, "c", "v0"), "ack c Held")
		l.expect(l.delta(2, "b", "v2"), "apply b")
	})
	t.Run("also if not all objects are read", func(t *testing.T) {
		l := newFollower(t, Mirror)
		l.step(View{Scope: "s"})
		l.expectNone(l.welcome(promoted(100)), "event StoreContinued")
	})
}

// After a second promotion, objects of the first hub have revisions that mean nothing in the store of the second.
func TestPromotion_EarlierGenerationsAreCovered(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{KnownStore: promotedStore, KnownGeneration: HubGeneration{Hub: hubIdentity, Number: 2}})
	l.observeFrom("a", "v1", 0, 90)
	l.observeFrom("b", "v1", 2, 38)
	back := Welcome{PrincipalUID: hubIdentity, HubGeneration: 3, Store: hubStore, Predecessor: Store{UID: promotedStore.UID, Revision: 40}}
	l.expect(l.welcome(back), "event StoreContinued")
}

// A store is trusted only as the successor of the one that the agent knows.
func TestPromotion_OtherStoresAreUntrusted(t *testing.T) {
	for name, change := range map[string]func(*peerHarness, *Welcome){
		"of another predecessor":           func(_ *peerHarness, m *Welcome) { m.Predecessor.UID = "other" },
		"without a predecessor":            func(_ *peerHarness, m *Welcome) { m.Predecessor = Store{} },
		"that has received nothing":        func(_ *peerHarness, m *Welcome) { m.Predecessor.Revision = 0 },
		"of the same generation":           func(_ *peerHarness, m *Welcome) { m.HubGeneration = 1 },
		"that is the same one":             func(_ *peerHarness, m *Welcome) { m.Store = Store{UID: hubStore.UID, Revision: 50} },
		"of another hub":                   func(_ *peerHarness, m *Welcome) { m.PrincipalUID = "other" },
		"of a hub that was untrusted":      func(l *peerHarness, _ *Welcome) { l.step(Remembered{Store: hubStore, StoreUntrusted: true}) },
		"of a process that did not see it": func(l *peerHarness, _ *Welcome) { l.peer.generation.Number, l.peer.storeUntrusted = 2, true },
	} {
		t.Run(name, func(t *testing.T) {
			l := newFollower(t, Mirror)
			m := promoted(100)
			change(l, &m)
			l.expect(l.welcome(m), "event HoldStarted")
			l.expect(l.delta(1, "a", "v2"), "ack a Held")
		})
	}
}

// A user has set a generation by hand that no hub has. The record of the agent, which is read later, has an earlier one.
func TestGeneration_InventedOneIsIgnored(t *testing.T) {
	apply := func(l *peerHarness) []string {
		in := item(1, "a", "v3")
		in.Revision = 100
		return l.receive(Delta{Scope: "s", Items: []DeltaItem{in}, View: 100})
	}
	newInvented := func(t *testing.T) *peerHarness {
		t.Helper()
		l := newReplicaSide(t, Mirror, Config{KnownStore: hubStore, KnownGeneration: firstGeneration})
		l.observeFrom("a", "v2", 99, 41)
		return l
	}
	for name, tc := range map[string]struct {
		recorded HubGeneration
		before   bool // it was on the replica before the record was read
		ignored  bool
	}{
		"before the record was read":           {firstGeneration, true, true},
		"after the record was read":            {firstGeneration, false, false},
		"the record is of another hub":         {HubGeneration{Hub: "other", Number: 1}, true, false},
		"the record could not be used":         {HubGeneration{}, true, false},
		"another process follows exactly that": {HubGeneration{Hub: hubIdentity, Number: 99}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newInvented(t)
			in := Remembered{Generation: tc.recorded}
			if tc.before {
				in.LaterGenerations = l.peer.LaterGenerations()
			}
			l.step(in)
			if later := l.peer.IsLater("s", 99, 41, 100); later == tc.ignored && tc.recorded.Number != 99 {
				t.Errorf("it is later: %v", later)
			}
			l.welcome(Welcome{PrincipalUID: hubIdentity, Store: hubStore})
			if tc.ignored {
				l.expect(apply(l), "apply a")
			} else {
				l.expectNone(apply(l), "apply a")
			}
		})
	}
	t.Run("its revision is unknown to a promoted hub", func(t *testing.T) {
		l := newInvented(t)
		l.step(Remembered{Generation: firstGeneration, LaterGenerations: l.peer.LaterGenerations()})
		l.welcome(promoted(100))
		l.expectTrust(false, "the promoted hub may lack it")
	})
	t.Run("a promotion that another process has noticed is real", func(t *testing.T) {
		l := newReplicaSide(t, Mirror, Config{KnownStore: promotedStore, KnownGeneration: firstGeneration})
		l.observeFrom("a", "v1", 2, 30)
		l.step(Remembered{Store: promotedStore, Generation: HubGeneration{Hub: hubIdentity, Number: 2}, LaterGenerations: l.peer.LaterGenerations()})
		l.welcome(Welcome{PrincipalUID: hubIdentity, HubGeneration: 3, Store: Store{UID: "third", Revision: 9}, Predecessor: promotedStore})
		l.expectTrust(true, "the promoted hub has received everything")
	})
	t.Run("only of replicas", func(t *testing.T) {
		l := newInvented(t)
		l.step(Observe{Scope: "s", Key: Key{Name: "foreign"}, Stored: VersionOf([]byte("v1")), SourceGeneration: 7})
		l.observeFrom("b", "v1", 1, 5)
		if got := l.peer.LaterGenerations(); !slices.Equal(got, []uint64{99}) {
			t.Errorf("later generations: %v", got)
		}
	})
}

// A hub that is demoted and promoted again has the same store. What came from it in an earlier generation may be newer than
// what its successor has received.
func TestGeneration_HubPromotedAgainKeepsItsRevisions(t *testing.T) {
	for name, restart := range map[string]bool{"one process": false, "the next process": true} {
		t.Run(name, func(t *testing.T) {
			l := newFollower(t, Mirror)
			l.welcome(Welcome{PrincipalUID: hubIdentity, HubGeneration: 2, Store: Store{UID: hubStore.UID, Revision: 120}})
			if restart {
				l = newReplicaSide(t, Mirror, Config{KnownStore: Store{UID: hubStore.UID, Revision: 120}, KnownGeneration: l.peer.Generation()})
				l.observeFrom("a", "v1", 0, 80)
				l.observeFrom("b", "v1", 0, 90)
			}
			next := promoted(85) // it has not received b
			next.HubGeneration = 3
			got := l.welcome(next)
			l.expectNone(got, "event StoreContinued")
			if n := l.peer.suspects(); n != 1 {
				t.Errorf("%d items may be newer than what the promoted hub has received, want 1", n)
			}
		})
	}
}
