package hubstate

import (
	"errors"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestPromote_NextGenerationOfBothHubs(t *testing.T) {
	h := Hub{"b", State{Identity: "group", Role: Standby, Generation: 1, Predecessor: engine.Store{UID: "a", Revision: 7}}}
	old := Hub{"a", State{Identity: "group", Role: Standby, Generation: 3}}
	promoted, demoted, err := Promote(h, old)
	if want := (State{Identity: "group", Role: Active, Generation: 4, Predecessor: h.Predecessor, WasActive: 4}); err != nil || promoted != want {
		t.Errorf("promoted: %+v, %v", promoted, err)
	}
	if want := (State{Identity: "group", Role: Standby, Generation: 4}); demoted != want {
		t.Errorf("demoted: %+v", demoted)
	}
	h.Predecessor.UID = "third" // what it has received is of another hub
	if promoted, _, _ = Promote(h, old); promoted.Predecessor != (engine.Store{UID: "a"}) {
		t.Errorf("predecessor %+v", promoted.Predecessor)
	}
}

func TestPromote_Refuses(t *testing.T) {
	standby := State{Identity: "group", Role: Standby, Generation: 1}
	active := State{Identity: "group", Role: Active, Generation: 1}
	strange := State{Identity: "others", Role: Standby, Generation: 1}
	for name, c := range map[string]struct{ h, other Hub }{
		"the same cluster":            {Hub{"a", standby}, Hub{"a", standby}},
		"another group":               {Hub{"a", standby}, Hub{"b", strange}},
		"the other hub serves agents": {Hub{"a", standby}, Hub{"b", active}},
		"it serves agents":            {Hub{"a", active}, Hub{"b", standby}},
	} {
		if promoted, _, err := Promote(c.h, c.other); err == nil {
			t.Errorf("%s: promoted %+v", name, promoted)
		}
	}
	if _, err := PromoteWithout(Hub{"a", active}); err == nil {
		t.Error("an active hub is promoted by force")
	}
}

// Only the hub that was active last lacks nothing that the other one has. Both have each other as the predecessor after two
// switches.
func TestMayLack_UnlessTheHubWasActiveLast(t *testing.T) {
	a := Hub{"a", State{Identity: "group", Role: Active, Generation: 1}} // made by hand
	b := Hub{"b", State{Identity: "group", Role: Standby, Generation: 1, Predecessor: engine.Store{UID: "a", Revision: 5}, ProvenAt: 9}}
	expect := func(what string, aLacks, bLacks bool) {
		t.Helper()
		if MayLack(a, b) != aLacks || MayLack(b, a) != bLacks {
			t.Errorf("%s: %t, %t, want %t, %t", what, MayLack(a, b), MayLack(b, a), aLacks, bLacks)
		}
	}
	transfer := func(from, to *Hub) {
		t.Helper()
		from.State = Demote(*from)
		promoted, demoted, err := Promote(*to, *from)
		if err != nil || promoted.ProvenAt != 0 {
			t.Fatalf("%+v, %v", promoted, err)
		}
		from.State, to.State = demoted, promoted
		if from.State, err = Follow(*from, *to); err != nil {
			t.Fatal(err)
		}
	}
	a.State = Demote(a)
	expect("demoted once", false, true)
	undone, demoted, err := Promote(a, b)
	if err != nil {
		t.Fatal(err)
	}
	a.State, b.State = undone, demoted
	transfer(&a, &b)
	transfer(&b, &a)
	expect("switched twice", false, true)
	a.State = Demote(a)
	expect("demoted after two switches", false, true)
	if again := Demote(a); again != a.State {
		t.Errorf("demoted again: %+v, was %+v", again, a.State)
	}
	if b.State, err = PromoteWithout(b); err != nil {
		t.Fatal(err)
	}
	b.State = Demote(b)
	expect("after a promotion by force", true, false)
	a.WasActive, b.WasActive = 0, 0
	expect("demoted by an older release", true, true)
}

// An older release demoted the hubs. Predecessors show which one was active last only before the first promotion.
func TestMayLack_HubsThatDoNotRecordThatTheyWereActive(t *testing.T) {
	hub := func(uid, predecessor string, generation uint64) Hub {
		return Hub{uid, State{Identity: "group", Role: Standby, Generation: generation, Predecessor: engine.Store{UID: predecessor}}}
	}
	recorded := hub("a", "", 1)
	recorded.WasActive = 1
	for name, c := range map[string]struct {
		a, b           Hub
		aLacks, bLacks bool
	}{
		"a was demoted, b is its standby":                {hub("a", "", 1), hub("b", "a", 1), false, true},
		"a followed a third hub":                         {hub("a", "c", 1), hub("b", "a", 1), false, true},
		"b was promoted, and a has not followed it":      {hub("a", "", 2), hub("b", "a", 2), true, true},
		"b was promoted by force":                        {hub("a", "", 1), hub("b", "a", 2), true, true},
		"a was promoted by force, b has not followed":    {hub("a", "", 2), hub("b", "a", 1), true, true},
		"each has followed the other":                    {hub("a", "b", 1), hub("b", "a", 1), true, true},
		"neither has followed the other":                 {hub("a", "", 1), hub("b", "", 1), true, true},
		"a recorded it, also if b never was its standby": {recorded, hub("b", "", 1), false, true},
	} {
		if MayLack(c.a, c.b) != c.aLacks || MayLack(c.b, c.a) != c.bLacks || UnknownLast(c.a, c.b) != (c.aLacks && c.bLacks) {
			t.Errorf("%s: %t, %t, unknown %t", name, MayLack(c.a, c.b), MayLack(c.b, c.a), UnknownLast(c.a, c.b))
		}
	}
}

// An older release, for example of argocd-agentctl, switches hubs and leaves the records of before. A record proves that a hub was
// active last only if no generation after it can have been that of the other hub.
func TestMayLack_RecordsOfBeforeSwitchesByAnOlderRelease(t *testing.T) {
	hub := func(uid string, generation, wasActive uint64) Hub {
		return Hub{uid, State{Identity: "group", Role: Standby, Generation: generation, WasActive: wasActive}}
	}
	for name, c := range map[string]struct {
		a, b           Hub
		aLacks, bLacks bool
	}{
		"b was promoted and demoted":                            {hub("a", 2, 1), hub("b", 2, 0), true, true},
		"b was promoted by force and demoted":                   {hub("a", 1, 1), hub("b", 2, 0), true, true},
		"b was promoted after a switch, which both recorded":    {hub("a", 4, 1), hub("b", 4, 2), true, true},
		"a was promoted and demoted again, and b recorded less": {hub("a", 3, 3), hub("b", 3, 2), false, true},
		"the promotion of b was interrupted":                    {hub("a", 2, 1), hub("b", 1, 0), false, true},
		"both were active with one generation":                  {hub("a", 2, 2), hub("b", 2, 2), true, true},
	} {
		if MayLack(c.a, c.b) != c.aLacks || MayLack(c.b, c.a) != c.bLacks || UnknownLast(c.a, c.b) != (c.aLacks && c.bLacks) {
			t.Errorf("%s: %t, %t, unknown %t", name, MayLack(c.a, c.b), MayLack(c.b, c.a), UnknownLast(c.a, c.b))
		}
	}
}

func TestFollow_KeepsWhenEverythingWasReceived(t *testing.T) {
	active := Hub{"a", State{Identity: "group", Role: Active, Generation: 5}}
	h := Hub{"b", State{Identity: "group", Role: Standby, Generation: 5, Predecessor: engine.Store{UID: "a", Revision: 9}, ProvenAt: 7, WasActive: 4}}
	if got, err := Follow(h, active); err != nil || got != h.State {
		t.Errorf("%+v, %v", got, err)
	}
	h.Predecessor.UID = "third"
	if got, err := Follow(h, active); err != nil || got.ProvenAt != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPromoteAlone_OnlyAHubWithoutAnother(t *testing.T) {
	demoted := Demote(Hub{"a", Alone("a")})
	if got, err := PromoteAlone(Hub{"a", demoted}); err != nil || got != Alone("a") {
		t.Errorf("%+v, %v", got, err)
	}
	older := demoted // by a release that did not record that it was active
	older.WasActive = 0
	if got, err := PromoteAlone(Hub{"a", older}); err != nil || got != Alone("a") {
		t.Errorf("%+v, %v", got, err)
	}
	later, identity, received := demoted, demoted, demoted
	later.Generation, identity.Identity, received.Predecessor = 2, "group", engine.Store{UID: "b"}
	for _, s := range []State{later, identity, received} {
		if _, err := PromoteAlone(Hub{"a", s}); !errors.Is(err, ErrNotAlone) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if _, err := PromoteAlone(Hub{"a", Alone("a")}); err == nil {
		t.Error("an active hub is promoted")
	}
}

func TestFollow_KeepsWhatWasReceived(t *testing.T) {
	active := Hub{"a", State{Identity: "group", Role: Active, Generation: 5}}
	got, err := Follow(Hub{"b", State{Identity: "b", Role: Active, Generation: 1, Predecessor: engine.Store{UID: "third", Revision: 9}}}, active)
	if want := (State{Identity: "group", Role: Standby, Generation: 5, Predecessor: engine.Store{UID: "a"}}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	received := engine.Store{UID: "a", Revision: 9}
	if got, _ = Follow(Hub{"b", State{Identity: "group", Role: Standby, Generation: 4, Predecessor: received}}, active); got.Predecessor != received {
		t.Errorf("predecessor %+v", got.Predecessor)
	}
	if _, err := Follow(active, active); !errors.Is(err, ErrSameHub) {
		t.Errorf("itself: %v", err)
	}
	later := State{Identity: "group", Role: Standby, Generation: 6}
	if got, err := Follow(Hub{"b", later}, active); !errors.Is(err, ErrSuperseded) {
		t.Errorf("follows a hub that agents no longer follow, with the generation of an earlier promotion: %+v, %v", got, err)
	}
	later.Identity = "others" // generations of groups are not compared
	if got, err := Follow(Hub{"b", later}, active); err != nil || got.Generation != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	active.Role = Standby
	if _, err := Follow(Hub{"b", State{}}, active); err == nil {
		t.Error("follows a standby")
	}
}

// Agents that follow one of two hubs with the same generation refuse the other one. So what they have may be lost if that hub
// becomes the standby of the other one.
func TestFollow_RefusesAHubOfTheSameGeneration(t *testing.T) {
	h := Hub{"b", State{Identity: "group", Role: Active, Generation: 5, WasActive: 5}}
	other := Hub{"a", State{Identity: "group", Role: Active, Generation: 5}}
	demoted := Hub{"b", Demote(h)}
	for _, h := range []Hub{h, demoted} {
		if got, err := Follow(h, other); !errors.Is(err, ErrBothActive) {
			t.Errorf("%s: %+v, %v", h.Role, got, err)
		}
	}
	other.Generation = 6
	for _, h := range []Hub{h, demoted} {
		if got, err := Follow(h, other); err != nil || got.Generation != 6 || got.WasActive != 5 {
			t.Errorf("%s, of the next generation: %+v, %v", h.Role, got, err)
		}
	}
	h.Identity = "b"
	if _, err := Follow(h, Hub{"a", State{Identity: "group", Role: Active, Generation: 5}}); err != nil {
		t.Errorf("of another group: %v", err)
	}
}

func TestReceived_FollowsTheStore(t *testing.T) {
	s := State{Predecessor: engine.Store{UID: "a", Revision: 7}}
	if got := Received(s, engine.Store{UID: "a"}); got != s {
		t.Errorf("%+v", got)
	}
	for _, store := range []engine.Store{{UID: "a", Revision: 8}, {UID: "a", Revision: 6}, {UID: "b", Revision: 1}} {
		if got := Received(s, store); got.Predecessor != store {
			t.Errorf("%+v", got)
		}
	}
	proven := Proven(s, engine.Store{UID: "a", Revision: 8}, 77)
	if proven.Predecessor.Revision != 8 || proven.ProvenAt != 77 {
		t.Errorf("%+v", proven)
	}
	if got := Proven(proven, engine.Store{}, 99); got != proven {
		t.Errorf("nothing is known: %+v", got)
	}
	if got := FollowGeneration(State{Generation: 3}, 2); got.Generation != 3 {
		t.Errorf("generation %d", got.Generation)
	}
}

// A comparison proves more than what the standby has recorded, unless the hub before was restored.
func TestCompared_RaisesTheRecord(t *testing.T) {
	mark := engine.HistoryMark{Record: "r", Number: 3}
	standby := State{Identity: "group", Role: Active, Generation: 2, Predecessor: engine.Store{UID: "a", Revision: 5, Mark: mark}}
	for name, c := range map[string]struct {
		change func(s *State, store *engine.Store)
		want   uint64
	}{
		"equal":                           {func(*State, *engine.Store) {}, 9},
		"a later mark":                    {func(_ *State, store *engine.Store) { store.Mark.Number = 4 }, 9},
		"no mark is known":                {func(s *State, store *engine.Store) { s.Predecessor.Mark.Number, store.Mark = 0, engine.HistoryMark{} }, 9},
		"not compared":                    {func(_ *State, store *engine.Store) { *store = engine.Store{} }, 5},
		"more was recorded":               {func(s *State, _ *engine.Store) { s.Predecessor.Revision = 12 }, 12},
		"another store":                   {func(_ *State, store *engine.Store) { store.UID = "c" }, 5},
		"nothing was recorded":            {func(s *State, _ *engine.Store) { s.Predecessor.Revision = 0 }, 0},
		"the store has lost a mark":       {func(_ *State, store *engine.Store) { store.Mark.Number = 2 }, 5},
		"the store has lost the record":   {func(_ *State, store *engine.Store) { store.Mark = engine.HistoryMark{} }, 5},
		"the store has another record":    {func(_ *State, store *engine.Store) { store.Mark.Record = "s" }, 5},
		"the marks of a store were reset": {func(_ *State, store *engine.Store) { store.Mark.Number = 0 }, 5},
	} {
		s, store := standby, engine.Store{UID: "a", Revision: 9, Mark: mark}
		c.change(&s, &store)
		got := Compared(s, store)
		if got.Predecessor.Revision != c.want {
			t.Errorf("%s: revision %d, want %d", name, got.Predecessor.Revision, c.want)
		}
		if got.Predecessor.Revision = s.Predecessor.Revision; got != s {
			t.Errorf("%s: more has changed: %+v", name, got)
		}
	}
}
