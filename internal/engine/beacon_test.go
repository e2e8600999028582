package engine

import "testing"

// An idle connection carries two messages a minute: the agent's short beacon, and the hub's answer. With thousands of
// agents that is the cost of an idle hub.
func TestBeacon_IdleConnectionCarriesTwoMessagesPerMinute(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.connect()
	w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v1" })
	w.deliver()
	w.wait(180 * Second) // both have called everything the same, and know it
	for _, s := range []*side{w.hub, w.agent} {
		s.sent, s.events[InSync] = 0, 0
	}
	w.wait(600 * Second)
	for s, want := range map[*side]int{w.hub: 10, w.agent: 10} {
		if s.sent != want {
			t.Errorf("the %s has sent %d messages in ten minutes", s.name, s.sent)
		}
		if n := s.events[InSync]; n < 27 { // three scopes can be compared
			t.Errorf("the %s has found something equal %d times in ten minutes, of 30", s.name, n)
		}
		for _, scope := range s.peer.Status().Scopes {
			if age := w.now - scope.InSyncAt; scope.Name != "command" && age > 61*Second {
				t.Errorf("the %s knows of %s only how it was %d s ago", s.name, scope.Name, age/Second)
			}
		}
	}
}

// A peer that has nothing to compare, and sends no beacons, still gets some.
func TestBeacon_HubSendsWithoutAgentBeacon(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.agent.do(View{Scope: "status", Complete: false})
	w.connect()
	w.deliver()
	w.hub.sent = 0
	w.agent.do(View{Scope: "status", Complete: false})
	w.wait(600 * Second)
	if w.hub.sent < 6 {
		t.Errorf("the hub has sent %d messages in ten minutes to an agent that cannot read its own cluster", w.hub.sent)
	}
}

// An agent may send beacons more often. It gets one answer to each, and at most two beacons a minute.
func TestBeacon_FrequentBeaconsCauseNoMoreBeacons(t *testing.T) {
	for _, every := range []Time{5 * Second, 29 * Second, 31 * Second, 45 * Second} {
		w := newWorld(t, Tuning{})
		w.agent.cfg.Tuning.Beacon = every
		w.agent.boot()
		w.connect()
		w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v1" })
		w.wait(200 * Second)
		w.hub.sent, w.agent.sent = 0, 0
		for range 20 {
			w.wait(30 * Second)
			for _, s := range []*side{w.hub, w.agent} {
				for _, name := range []string{"project", "application", "status"} {
					if age := w.now - s.scope(name).InSyncAt; age > 61*Second {
						t.Errorf("every %d s: the %s knows of %s only how it was %d s ago", every/Second, s.name, name, age/Second)
					}
				}
			}
		}
		if least := int(600 * Second / every); w.hub.sent > least+1 || w.agent.sent < least || w.agent.sent > least+21 {
			t.Errorf("every %d s: in ten minutes the hub has sent %d messages, the agent %d", every/Second, w.hub.sent, w.agent.sent)
		}
	}
}

// A beacon out of turn, by either side, does not delay the next comparison beyond one interval.
func TestBeacon_OutOfTurnDelaysNoComparison(t *testing.T) {
	for shift := Time(0); shift < 60; shift += 7 {
		for _, name := range []string{"hub", "agent"} {
			w := atRest(t)
			w.wait(shift * Second)
			if name == "hub" {
				w.hub.peer.beaconNow()
			} else {
				w.agent.peer.beaconNow()
			}
			for range 30 {
				w.wait(10 * Second)
				for _, s := range []*side{w.hub, w.agent} {
					for _, scope := range []string{"project", "application", "status"} {
						if age := w.now - s.scope(scope).InSyncAt; age > 61*Second {
							t.Errorf("beacon of the %s after %d s: the %s knows of %s only how it was %d s ago", name, shift, s.name, scope, age/Second)
						}
					}
				}
			}
		}
	}
}
