package hublease

import (
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
)

func TestDecide(t *testing.T) {
	active := func(generation uint64) hubstate.State {
		return hubstate.State{Identity: "group", Role: hubstate.Active, Generation: generation}
	}
	standby := func(generation uint64, predecessor engine.Store) hubstate.State {
		return hubstate.State{Identity: "group", Role: hubstate.Standby, Generation: generation, Predecessor: predecessor}
	}
	held := func(holder string, generation uint64) Record {
		return Record{Exists: true, Identity: "group", Holder: holder, Generation: generation}
	}
	expired := func(holder string, generation uint64) Record {
		l := held(holder, generation)
		l.Expired = true
		return l
	}
	received := engine.Store{UID: "other", Revision: 7}
	for _, c := range []struct {
		name   string
		state  hubstate.State
		lease  Record
		action Action
		next   uint64
		reason string
		behind string
	}{
		{"the first active hub creates it", active(1), Record{}, Claim, 1, "", ""},
		{"the holder renews it", active(2), held("self", 2), Claim, 2, "", ""},
		{"the holder renews it although it has expired", active(2), expired("self", 2), Claim, 2, "", ""},
		{"the holder was promoted by a user", active(3), held("self", 2), Claim, 3, "", ""},
		{"the holder was restored from a backup", active(1), held("self", 2), BecomeActive, 2, "", ""},
		{"another hub has taken over", active(1), held("other", 2), BecomeStandby, 2, "", ""},
		{"another hub has taken over and is lost", active(1), expired("other", 2), BecomeStandby, 2, "", ""},
		{"another hub has taken over and was demoted", active(1), held("", 2), BecomeStandby, 2, "", ""},
		{"two hubs have the same generation", active(2), held("other", 2), Wait, 0, "is active with generation 2 too; demote both", ""},
		{"two hubs have the same generation and one is lost", active(2), expired("other", 2), Wait, 0, "is active with generation 2 too", ""},
		{"promoted by a user while the other hub serves", active(3), held("other", 2), Wait, 0, "still holds the Lease", ""},
		{"promoted by a user and the other hub is lost", active(3), expired("other", 2), Claim, 3, "", ""},
		{"promoted by a user after the other hub was demoted", active(3), held("", 2), Claim, 3, "", ""},
		{"Lease of another group", active(1), Record{Exists: true, Identity: "strangers", Expired: true}, Wait, 0, `identity "strangers"`, ""},
		{"invalid generation", active(1), held("other", 1<<40), Wait, 0, "invalid generation", ""},
		{"a standby does not create it", standby(1, received), Record{}, Wait, 0, "has not created", ""},
		{"a standby waits", standby(1, received), held("other", 1), Wait, 0, "holds the Lease", ""},
		{"a standby takes over", standby(1, received), expired("other", 1), Claim, 2, "", ""},
		{"a standby takes over from a later generation", standby(1, received), expired("other", 4), Claim, 5, "", ""},
		{"a standby with a later generation takes over", standby(6, received), expired("other", 4), Claim, 7, "", ""},
		{"a standby continues to take over", standby(1, received), held("self", 2), BecomeActive, 2, "", ""},
		{"a demoted hub gives it up", standby(2, engine.Store{}), held("self", 2), Release, 2, "", ""},
		{"a standby does not take over after a demotion", standby(1, received), expired("", 1), Wait, 0, "was demoted", ""},
		{"a standby that has received nothing", standby(1, engine.Store{UID: "other"}), expired("other", 1), Wait, 0, "has not received all", ""},
		{"a standby of a third hub", standby(1, engine.Store{UID: "third", Revision: 7}), expired("other", 1), Wait, 0, "has not received all", ""},
		{"a standby that lacks too much does not take over", standby(1, received), expired("other", 1), Wait, 0, "is lost, but it lacks a week", "it lacks a week"},
		{"a standby that lacks too much says so before", standby(1, received), held("other", 1), Wait, 0, "must not take over: it lacks a week", "it lacks a week"},
		{"a standby continues to take over although it lacks too much", standby(1, received), held("self", 2), BecomeActive, 2, "", "it lacks a week"},
		{"a demoted hub gives it up although it lacks too much", standby(2, engine.Store{}), held("self", 2), Release, 2, "", "it lacks a week"},
		{"no generation is left", standby(1, received), expired("other", hubstate.MaxGeneration), Wait, 0, "no generation after", ""},
		{"a standby of another group", standby(1, received), Record{Exists: true, Identity: "strangers", Holder: "other", Expired: true}, Wait, 0, "strangers", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decide("self", c.state, c.lease, c.behind)
			if d.Action != c.action || d.Generation != c.next {
				t.Errorf("action %d, generation %d, want %d, %d", d.Action, d.Generation, c.action, c.next)
			}
			if !strings.Contains(d.Reason, c.reason) || (d.Action == Wait) != (d.Reason != "") {
				t.Errorf("reason %q, want %q", d.Reason, c.reason)
			}
		})
	}
}

func TestBehind(t *testing.T) {
	const maxLag, duration = 10 * time.Minute, time.Minute
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name      string
		age       time.Duration // of the record; negative if it is from the future
		unchanged time.Duration
		maxLag    time.Duration
		want      string // empty if the standby may take over
	}{
		{"a record of now", 0, 0, maxLag, ""},
		{"the oldest record", maxLag + duration, 0, maxLag, ""},
		{"an older record", maxLag + duration + time.Second, 0, maxLag, "at 2026-03-01T11:48:59Z, longer ago than --hub-lease-max-lag"},
		{"without a limit", 1000 * time.Hour, 1000 * time.Hour, 0, ""},
		{"a clock that is a little slow", -maxSkew, 0, maxLag, ""},
		{"a clock that was set back", -maxSkew - time.Second, 0, maxLag, "later than its clock"},
		{"a clock that was set back until the record seems new", 0, maxLag + duration + time.Second, maxLag, "longer ago"},
		{"a record that did not change for a while", time.Minute, maxLag + duration, maxLag, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Behind(hubstate.State{ProvenAt: now.Add(-c.age).Unix()}, now, c.unchanged, c.maxLag, duration)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := Behind(hubstate.State{}, now, 0, maxLag, duration); !strings.Contains(got, "has no record") {
		t.Errorf("without a record: %q", got)
	}
	if got := Behind(hubstate.State{}, now, 0, 0, duration); got != "" {
		t.Errorf("without a limit: %q", got)
	}
}

func TestStateAfter(t *testing.T) {
	s := hubstate.State{Identity: "group", Role: hubstate.Standby, Generation: 1, Predecessor: engine.Store{UID: "other", Revision: 7}, ProvenAt: 9}
	promoted := StateAfter(s, Decision{Action: BecomeActive, Generation: 2}, Record{Holder: "self"})
	if want := (hubstate.State{Identity: "group", Role: hubstate.Active, Generation: 2, Predecessor: s.Predecessor, WasActive: 2}); promoted != want {
		t.Errorf("promoted: %+v", promoted)
	}
	demoted := StateAfter(promoted, Decision{Action: BecomeStandby, Generation: 3}, Record{Holder: "other"})
	if want := (hubstate.State{Identity: "group", Role: hubstate.Standby, Generation: 3, Predecessor: engine.Store{UID: "other"}, WasActive: 2}); demoted != want {
		t.Errorf("demoted: %+v, which has received nothing of the new active hub", demoted)
	}
}
