package engine

import (
	"fmt"
	"strings"
	"testing"
)

// runAll runs commands as transcripts have them.
func (w *world) runAll(commands ...string) {
	w.t.Helper()
	for _, c := range commands {
		if err := w.run(strings.Fields(c)); err != nil {
			w.t.Fatalf("%s: %v", c, err)
		}
		w.work()
	}
}

// agentScope is what the agent says of a scope, and why it holds what it holds.
func (w *world) agentScope(name string) (s ScopeStatus, cause Cause) {
	for _, sc := range w.agent.peer.Status().Scopes {
		if sc.Name == name {
			s = sc
		}
	}
	if s.Held > 0 {
		r := w.agent.peer.replicas[name]
		cause = r.guard.describe(r).Cause
	}
	return s, cause
}

func TestGuard_RemovesAbsentItemsWithinBudget(t *testing.T) {
	const hours = "quiet wait 1200s"
	for _, c := range []struct {
		name  string
		all   int
		after []string
		left  int
		held  int
		cause Cause
	}{
		{"the only item", 1, []string{"hub misses application app1"}, 1, 1, CauseLast},
		{"one of two", 2, []string{"hub misses application app1"}, 1, 0, ""},
		{"both of two", 2, []string{"hub misses application app1..2"}, 2, 2, CauseLast},
		{"half", 10, []string{"hub misses application app1..5"}, 5, 0, ""},
		{"more than half", 10, []string{"hub misses application app1..6"}, 10, 6, CauseHalf},
		{"all of ten", 10, []string{"hub misses application app1..10"}, 10, 10, CauseLast},
		{"more than ten but a small share", 100, []string{"hub misses application app1..15"}, 85, 0, ""},
		{"more than ten and a large share", 40, []string{"hub misses application app1..11"}, 40, 11, CauseMany},
		{"a few at a time", 10, []string{"hub misses application app1..3", "quiet wait 60s", "hub misses application app4..5", "quiet wait 60s", "hub misses application app6"}, 5, 1, CauseHalf},
		{"a few at a time, with long pauses", 10, []string{"hub misses application app1..5", hours, "hub misses application app6..7"}, 3, 0, ""},
		{"what is held counts", 10, []string{"hub misses application app1..6", "quiet wait 60s", "hub misses application app7"}, 10, 7, CauseHalf},
		{"the last one, after users deleted the others", 10,
			[]string{"hub misses application app1", "quiet wait 5s", "hub delete application app2..9", "quiet wait 5s", "hub misses application app10"}, 1, 1, CauseLast},
		{"the last one, while another is being deleted", 2,
			[]string{"agent refuses application app1 InUse used", "hub delete application app1", "quiet wait 5s", "hub misses application app2"}, 2, 1, CauseLast},
		{"explicit deletions of everything", 10, []string{"hub delete application app1..10"}, 0, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Tuning{})
			w.runAll(fmt.Sprintf("quiet hub put application app1..%d v1", c.all), "quiet connect", "quiet wait 60s")
			w.runAll(c.after...)
			w.runAll("quiet wait 5s")
			s, cause := w.agentScope("application")
			if s.Items != c.left || s.Held != c.held || cause != c.cause {
				t.Errorf("%d items are left, %d held by rule %q; want %d, %d, %q", s.Items, s.Held, cause, c.left, c.held, c.cause)
			}
			if c.held == 0 {
				return
			}
			w.runAll("hub confirm application", "quiet wait 5s")
			if s, _ := w.agentScope("application"); s.Items != c.left-c.held || s.Held != 0 {
				t.Errorf("after the confirmation: %d items, %d held", s.Items, s.Held)
			}
		})
	}
}

// A removal that fails is tried in every round. It is one item however often.
func TestGuard_DoesNotHoldRepeatedlyFailingRemoval(t *testing.T) {
	for _, reconnect := range []bool{false, true} {
		t.Run(fmt.Sprintf("reconnect %v", reconnect), func(t *testing.T) {
			w := newWorld(t, Tuning{})
			w.runAll("quiet hub put project p1..4 v1", "quiet connect", "quiet wait 60s", "agent refuses project p1 InUse used", "hub misses project p1")
			for range 40 {
				w.runAll("quiet wait 60s")
				if reconnect {
					w.runAll("quiet cut", "quiet connect")
				}
				if s, cause := w.agentScope("project"); s.Held != 0 {
					t.Fatalf("%d held by rule %q", s.Held, cause)
				}
			}
			// There are eight now. Half of them may be deleted, including p1.
			w.runAll("quiet hub put project p5..8 v1", "quiet wait 60s", "hub misses project p2..4", "quiet wait 60s")
			if s, cause := w.agentScope("project"); s.Items != 5 || s.Held != 0 {
				t.Fatalf("%d items, %d held by rule %q: four of eight may go", s.Items, s.Held, cause)
			}
			w.runAll("hub misses project p5", "quiet wait 60s")
			if s, cause := w.agentScope("project"); s.Items != 5 || cause != CauseHalf {
				t.Fatalf("%d items, held by rule %q: five of eight may not go", s.Items, cause)
			}
			w.runAll("agent accepts project p1", "quiet wait 120s")
			if s, _ := w.agentScope("project"); s.Items != 4 || s.Held != 1 {
				t.Errorf("%d items, %d held", s.Items, s.Held)
			}
		})
	}
}

func TestGuard_NoBudgetScopeIsHeldOnlyByUntrustedStore(t *testing.T) {
	exempt := func(w *world) {
		for _, s := range []*side{w.hub, w.agent} {
			for i := range s.cfg.Scopes {
				s.cfg.Scopes[i].NoBudget = true
			}
			s.boot()
			s.do(Tick{})
		}
	}
	w := newWorld(t, Tuning{})
	exempt(w)
	w.runAll("quiet hub put application app1..30 v1", "quiet connect", "quiet wait 60s", "hub misses application app1..30", "quiet wait 5s")
	if s, _ := w.agentScope("application"); s.Items != 0 {
		t.Errorf("%d of 30 are still there", s.Items)
	}

	w = newWorld(t, Tuning{})
	exempt(w)
	w.runAll("quiet hub put application app1..3 v1", "quiet connect", "quiet wait 60s", "quiet cut")
	w.hub.store.id = Store{UID: "another", Revision: 5}
	w.runAll("hub misses application app1", "quiet connect", "quiet wait 5s")
	if s, cause := w.agentScope("application"); s.Items != 3 || cause != CauseStore {
		t.Errorf("%d items, held by %q", s.Items, cause)
	}
}

// A hub that checks its fleet is asked before anything goes by absence. What it lets go counts against the budget,
// which only a user can exceed.
func TestGuard_FleetCheckConfirmsFirst(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.hub.cfg.Welcome.Capabilities = []string{FleetHold}
	w.hub.boot()
	w.runAll("quiet hub put application app1..10 v1", "quiet connect", "quiet wait 60s")
	holds := func(held int, cause Cause) {
		t.Helper()
		w.runAll("quiet wait 5s")
		if s, got := w.agentScope("application"); s.Held != held || got != cause {
			t.Fatalf("%d held by rule %q, want %d by %q", s.Held, got, held, cause)
		}
		for _, h := range w.hub.peer.Status().RemoteHolds {
			if h.Cause != cause {
				t.Fatalf("the hub knows of %+v", h)
			}
		}
	}
	w.runAll("hub misses application app1..3")
	holds(3, CauseFleet)
	w.runAll("hub misses application app4")
	holds(4, CauseFleet)
	w.runAll("hub put application app4 v1")
	holds(3, CauseFleet)
	w.runAll("hub confirm application")
	holds(0, "")
	if s, _ := w.agentScope("application"); s.Items != 7 {
		t.Fatalf("%d items after the hub let three go", s.Items)
	}
	w.runAll("hub misses application app4..5")
	holds(2, CauseFleet)
	w.runAll("hub misses application app6")
	holds(3, CauseHalf)
	w.runAll("hub delete application app7..10")
	holds(3, CauseHalf)
	if s, _ := w.agentScope("application"); s.Items != 3 {
		t.Errorf("%d items: explicit deletions do not wait", s.Items)
	}
}

// What was within the budget when it was held may be the last item when the hub lets it go.
func TestGuard_ChecksBudgetAgainWhenHubConfirms(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.hub.cfg.Welcome.Capabilities = []string{FleetHold}
	w.hub.boot()
	w.runAll("quiet hub put application app1..2 v1", "quiet connect", "quiet wait 60s", "hub misses application app1", "quiet wait 5s")
	id := func() string {
		for _, h := range w.hub.peer.Status().RemoteHolds {
			return h.ID
		}
		return ""
	}
	first := id()
	w.runAll("hub delete application app2", "quiet wait 5s", "hub confirm application", "quiet wait 5s")
	if s, cause := w.agentScope("application"); s.Items != 1 || cause != CauseLast {
		t.Fatalf("%d items, held by rule %q", s.Items, cause)
	}
	if id() == first || id() == "" {
		t.Fatalf("the hub knows the hold as %q, as before", id())
	}
	w.agent.do(Received{w.session, Confirm{Scope: "application", ID: first}}) // sent before it was known
	w.runAll("quiet wait 5s")
	if s, _ := w.agentScope("application"); s.Items != 1 {
		t.Fatal("an older word counts for another rule")
	}
	w.runAll("hub confirm application", "quiet wait 5s")
	if s, _ := w.agentScope("application"); s.Items != 0 {
		t.Errorf("%d items after the user's confirmation", s.Items)
	}
}

func TestGuard_ReasonNamesRuleAndAction(t *testing.T) {
	w := newWorld(t, Tuning{})
	r := w.agent.peer.replicas["application"]
	for cause, want := range map[Cause]string{
		CauseLast: "lacks all remaining items", CauseHalf: "more than half", CauseMany: "more than 10 items and more than 20 %", CauseFleet: "argocd-agentctl pending",
	} {
		r.guard.cause = cause
		got := r.guard.reason(r)
		if !strings.Contains(got, want) || cause.Budget() && (!strings.Contains(got, "If that is intended, confirm") || !strings.Contains(got, "label selector")) {
			t.Errorf("%s: %s", cause, got)
		}
	}
}
