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
	if want := (State{Identity: "group", Role: Active, Generation: 4, Predecessor: h.Predecessor}); err != nil || promoted != want {
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

func TestPromoteAlone_OnlyAHubWithoutAnother(t *testing.T) {
	demoted := Demote(Hub{"a", Alone("a")})
	if got, err := PromoteAlone(Hub{"a", demoted}); err != nil || got != Alone("a") {
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
	if got := FollowGeneration(State{Generation: 3}, 2); got.Generation != 3 {
		t.Errorf("generation %d", got.Generation)
	}
}
