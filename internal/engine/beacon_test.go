package engine

import "testing"

// At rest each side says one thing a minute, which also answers what the other
// said before: with thousands of agents that is what a hub's rest costs.
func TestAtRestEachSideSendsOneMessageAMinute(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.connect()
	w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v1" })
	w.deliver()
	w.wait(180 * Second) // both have called everything the same, and know it
	for _, s := range []*side{w.hub, w.agent} {
		s.sent, s.facts[Equal] = 0, 0
	}
	w.wait(600 * Second)
	for _, s := range []*side{w.hub, w.agent} {
		if s.sent != 10 {
			t.Errorf("the %s has sent %d messages in ten minutes", s.name, s.sent)
		}
		if n := s.facts[Equal]; n < 27 { // three scopes can be compared
			t.Errorf("the %s has found something equal %d times in ten minutes, of 30", s.name, n)
		}
		for _, scope := range s.peer.Status().Scopes {
			if age := w.now - scope.ProvenAt; scope.Name != "command" && age > 61*Second {
				t.Errorf("the %s knows of %s only how it was %d s ago", s.name, scope.Name, age/Second)
			}
		}
	}
}

// A peer that has nothing to compare, and sends no beacons, still gets some.
func TestHubBeaconsWithoutBeingAsked(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.agent.do(View{Scope: "status", Complete: false})
	w.connect()
	w.deliver()
	w.hub.sent = 0
	w.agent.do(View{Scope: "status", Complete: false})
	w.wait(600 * Second)
	if w.hub.sent < 6 {
		t.Errorf("the hub has sent %d messages in ten minutes to an agent that can not read its own cluster", w.hub.sent)
	}
}
