package engine

import "testing"

// atRest is a world in which everything was found equal, and both sides know it.
func atRest(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, Tuning{})
	w.connect()
	w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v1" })
	w.deliver()
	w.wait(200 * Second)
	return w
}

func (s *side) scope(name string) ScopeStatus {
	for _, scope := range s.peer.Status().Scopes {
		if scope.Name == name {
			return scope
		}
	}
	return ScopeStatus{}
}

// A root that the replica acknowledged, and then differed from, is acknowledged at once when both are equal again:
// users wait for that.
func TestSame_InSyncSoonAfterRepair(t *testing.T) {
	w := atRest(t)
	began := w.now
	w.agent.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "local" })
	w.wait(3 * Second)
	if err := w.equal("application"); err != nil {
		t.Fatal(err)
	}
	if at := w.hub.scope("application").InSyncAt; at <= began {
		t.Errorf("made good, but the hub knows only how it was %d s before", (began-at)/Second)
	}
}

// A replica that differs, or cannot read its objects, does not acknowledge a root.
func TestSame_NotSentByReplicaThatDiffers(t *testing.T) {
	for name, change := range map[string]func(*world){
		"differs": func(w *world) {
			w.agent.store.slow = true
			w.agent.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "local" })
		},
		"cannot see": func(w *world) { w.agent.do(View{Scope: "application", Complete: false, Reason: "forbidden"}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := atRest(t)
			change(w)
			began := w.now
			w.agent.history = nil
			w.wait(61 * Second)
			for _, e := range w.agent.history {
				for _, same := range acknowledged(e.message) {
					if same.Scope == "application" {
						t.Error("the hub received Same for Applications")
					}
				}
			}
			if at := w.hub.scope("application").InSyncAt; at > began {
				t.Error("the hub calls them proven")
			}
		})
	}
}

// acknowledged returns the roots that a message acknowledges.
func acknowledged(m Message) []Root {
	switch m := m.(type) {
	case Roots:
		return m.Same
	case Same:
		return m.Items
	}
	return nil
}

// An acknowledgment is sent before the requests of the same step. Otherwise the owner would take the difference for
// settled and would not compare again soon.
func TestSame_IsSentBeforeRequests(t *testing.T) {
	for name, beacon := range map[string]bool{"with a beacon": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			w := atRest(t)
			w.agent.pipe = nil
			p, r := w.agent.peer, w.agent.peer.replicas["application"]
			if beacon {
				p.beaconNow()
			}
			r.diverged[Key{Name: "a"}.Hash()] = w.now
			r.wakeBy(w.now)
			r.items[Key{Name: "a"}.Hash()].want = Version{1, 1}
			w.agent.do(Received{w.session, Roots{Items: []Root{{Scope: "application", Count: uint64(r.digest.Len()), Sum: r.digest.Sum()}}}})
			if len(w.agent.pipe) != 2 || len(acknowledged(w.agent.pipe[0].message)) != 1 {
				t.Fatalf("%+v", w.agent.pipe)
			}
			if _, ok := w.agent.pipe[1].message.(Want); !ok {
				t.Errorf("%+v", w.agent.pipe[1])
			}
		})
	}
}

// A peer that sends roots constantly gets one acknowledgment for each, and no more beacons.
func TestSame_FrequentRootsCauseNoMoreBeacons(t *testing.T) {
	w := atRest(t)
	root := Root{Scope: "status", Count: uint64(w.hub.peer.replicas["status"].digest.Len()), Sum: w.hub.peer.replicas["status"].digest.Sum()}
	w.hub.pipe = nil
	for range 600 {
		w.now += Second
		w.hub.do(Received{w.session, Roots{Items: []Root{root}}})
		w.hub.do(Received{w.session, Roots{}})
	}
	beacons, acks := 0, 0
	for _, e := range w.hub.pipe {
		if _, ok := e.message.(Roots); ok {
			beacons++
		}
		acks += len(acknowledged(e.message))
	}
	if beacons > 20 || acks != 600 || len(w.hub.pipe) > 600 {
		t.Errorf("%d beacons and %d acknowledgments in %d messages in ten minutes", beacons, acks, len(w.hub.pipe))
	}
}

// A new session begins without an acknowledgment from the one before.
func TestSame_NewSessionBeginsWithoutAcknowledgment(t *testing.T) {
	w := atRest(t)
	w.cut(false)
	w.agent.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "local" })
	w.hub.history, w.agent.history = nil, nil
	w.connect()
	w.deliver()
	for _, s := range []*side{w.hub, w.agent} {
		first := true
		for _, e := range s.history {
			roots, ok := e.message.(Roots)
			if !ok {
				continue
			}
			if first && len(roots.Same) > 0 {
				t.Errorf("the %s begins with an answer", s.name)
			}
			first = false
		}
		if first {
			t.Errorf("the %s has sent no roots", s.name)
		}
	}
}

// An earlier session's in-sync time is not reported for one that is about to begin.
func TestSame_NotInSyncBeforeSessionBegins(t *testing.T) {
	w := atRest(t)
	w.cut(false)
	w.hub.slow, w.agent.slow = true, true
	w.connect()
	w.deliver()
	if at := w.hub.scope("application").InSyncAt; at != 0 {
		t.Errorf("the hub calls it proven %d s ago", (w.now-at)/Second)
	}
	w.hub.do(Begin{})
	w.deliver()
	if at := w.agent.scope("application").InSyncAt; at != 0 {
		t.Errorf("the agent calls it proven %d s ago", (w.now-at)/Second)
	}
	w.agent.do(Begin{})
	w.deliver()
	for _, s := range []*side{w.hub, w.agent} {
		if s.scope("application").InSyncAt != w.now {
			t.Errorf("the %s does not call it proven", s.name)
		}
	}
}
