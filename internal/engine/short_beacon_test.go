package engine

import (
	"slices"
	"testing"
)

// kindsSent returns the messages that a side has sent since its history was cleared.
func (s *side) kindsSent() []string {
	var out []string
	for _, e := range s.history {
		switch e.message.(type) {
		case Roots:
			out = append(out, "Roots")
		case Same:
			out = append(out, "Same")
		case Equal:
			out = append(out, "Equal")
		default:
			out = append(out, "other")
		}
	}
	return out
}

func TestShortBeacon_IsNotSentToOlderHub(t *testing.T) {
	w := atRest(t)
	w.agent.peer.setShared(nil) // an older hub announces nothing
	w.hub.history, w.agent.history = nil, nil
	w.wait(60 * Second)
	if hub, agent := w.hub.kindsSent(), w.agent.kindsSent(); !slices.Equal(hub, []string{"Roots"}) || !slices.Equal(agent, []string{"Roots", "Same"}) {
		t.Errorf("the hub has sent %q, the agent %q", hub, agent)
	}
}

// A difference in any scope, of either direction, is found with the next beacon.
func TestShortBeacon_DifferenceLeadsToRoots(t *testing.T) {
	for name, c := range map[string]struct {
		scope  string
		change func(*world)
	}{
		"the agent lost a message": {"application", func(w *world) {
			w.hub.store.put("application", Key{Name: "b"}, func(o *object) { o.content = "v1" })
			w.work()
			w.hub.pipe = nil
		}},
		"the hub lost a message": {"status", func(w *world) {
			w.agent.store.put("status", Key{Name: "a"}, func(o *object) { o.content = "Synced" })
			w.work()
			w.agent.pipe = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := atRest(t)
			w.hub.peer.tune.Resend, w.agent.peer.tune.Resend = 3600*Second, 3600*Second
			c.change(w)
			w.hub.history, w.agent.history = nil, nil
			w.wait(61 * Second)
			if got := w.agent.kindsSent(); got[0] != "Equal" || !slices.Contains(got, "Roots") {
				t.Fatalf("the agent has sent %q", got)
			}
			began := w.now - 61*Second
			for _, s := range []*side{w.hub, w.agent} {
				if at := s.scope("project").InSyncAt; at <= began {
					t.Errorf("the %s knows of projects only how they were %d s ago", s.name, (w.now-at)/Second)
				}
			}
		})
	}
}

// Nothing counts as equal while a side cannot read one of the scopes.
func TestShortBeacon_NotEqualIfObjectsAreNotRead(t *testing.T) {
	for name, fail := range map[string]func(*world){
		"owner":   func(w *world) { w.hub.do(View{Scope: "application", Complete: false}) },
		"replica": func(w *world) { w.hub.do(View{Scope: "status", Complete: false, Reason: "forbidden"}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := atRest(t)
			fail(w)
			w.hub.history = nil
			w.wait(61 * Second)
			if got := w.hub.kindsSent(); slices.Contains(got, "Equal") {
				t.Errorf("the hub has sent %q", got)
			}
		})
	}
}

func TestShortBeacon_WithoutAnswerIsFollowedByRoots(t *testing.T) {
	w := atRest(t)
	w.agent.history = nil
	w.onPass = func(s *side) {
		if _, ok := s.pipe[0].message.(Equal); ok && s == w.hub {
			s.pipe = slices.Insert(s.pipe[1:], 0, envelope{s.pipe[0].session, Open{}}) // lost
		}
	}
	w.wait(60 * Second)
	w.onPass = nil
	w.wait(120 * Second)
	if got := w.agent.kindsSent(); !slices.Equal(got, []string{"Equal", "Roots", "Same", "Equal"}) {
		t.Errorf("the agent has sent %q", got)
	}
}

// A late answer does not prove what has changed on the agent since.
func TestShortBeacon_LateAnswerProvesNothing(t *testing.T) {
	w := atRest(t)
	sum := w.agent.peer.combinedSum()
	w.agent.store.put("status", Key{Name: "a"}, func(o *object) { o.content = "Synced" })
	w.work()
	before := w.agent.scope("project").InSyncAt
	w.now += Second
	w.agent.do(Received{w.session, Equal{Sum: sum}})
	if at := w.agent.scope("project").InSyncAt; at != before {
		t.Error("a late answer counts")
	}
}

// The other side's newest revision is known although the objects of the scope are equal.
func TestShortBeacon_CarriesChangedRevisions(t *testing.T) {
	for name, c := range map[string]struct {
		from, to func(*world) *side
		scope    string
	}{
		"agent": {func(w *world) *side { return w.agent }, func(w *world) *side { return w.hub }, "status"},
		"hub":   {func(w *world) *side { return w.hub }, func(w *world) *side { return w.agent }, "application"},
	} {
		t.Run(name, func(t *testing.T) {
			w := atRest(t)
			from, to := c.from(w), c.to(w)
			from.store.id.Revision += 10
			from.history = nil
			w.wait(60 * Second)
			if got := from.kindsSent(); !slices.Equal(got, []string{"Equal"}) {
				t.Fatalf("the %s has sent %q", name, got)
			}
			want := from.store.Revision(c.scope)
			if i := slices.Index(to.peer.Seen(), Seen{c.scope, want}); i < 0 {
				t.Errorf("revision %d of %s is not known: %v", want, c.scope, to.peer.Seen())
			}
			from.history = nil
			w.wait(60 * Second)
			if m := from.history[0].message.(Equal); len(m.Seen) != 0 {
				t.Errorf("unchanged revisions are sent again: %v", m.Seen)
			}
		})
	}
}

// A history mark is known although nothing differs.
func TestShortBeacon_CarriesHistoryMark(t *testing.T) {
	w := atRest(t)
	w.hub.peer.own.Mark = HistoryMark{Record: "agent-1", Number: 3}
	w.agent.peer.current.Mark = HistoryMark{Record: "agent-1", Number: 2}
	w.hub.history = nil
	w.wait(60 * Second)
	if got := w.hub.kindsSent(); !slices.Equal(got, []string{"Equal"}) {
		t.Fatalf("the hub has sent %q", got)
	}
	if got := w.agent.peer.other.Mark; got != w.hub.peer.own.Mark {
		t.Errorf("the agent knows mark %v", got)
	}
}

// An agent that constantly sends wrong sums causes no more roots than one that sends roots.
func TestShortBeacon_WrongSumsCauseNoMoreBeacons(t *testing.T) {
	w := atRest(t)
	w.hub.pipe = nil
	for range 600 {
		w.now += Second
		w.hub.do(Received{w.session, Equal{Sum: Sum{Hi: 7}, Seen: []Seen{{Scope: "unknown"}}}})
	}
	if len(w.hub.pipe) > 20 {
		t.Errorf("%d messages in ten minutes", len(w.hub.pipe))
	}
}

// Each scope counts with its name, number of items and digest. Their order does not matter.
func TestCombinedSum_DependsOnEachScope(t *testing.T) {
	hub := atRest(t).hub
	before := hub.peer.combinedSum()
	slices.Reverse(hub.peer.orderedOwners)
	if hub.peer.combinedSum() != before {
		t.Error("the order of the scopes matters")
	}
	for _, change := range []func(){
		func() { hub.peer.replicas["status"].digest.Set(1, Version{1, 1}) },
		func() { hub.peer.owners["project"].digest.Set(1, Version{1, 1}) },
		func() { hub.peer.owners["project"].digest.Set(1, Version{1, 2}) },
		func() { hub.peer.owners["project"].unshared = true },
		func() { hub.peer.replicas["status"].complete = false },
	} {
		change()
		sum := hub.peer.combinedSum()
		if sum == before {
			t.Error("a change does not change the sum")
		}
		before = sum
	}
}
