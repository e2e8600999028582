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

// A root is not called the same by a replica that differs by the time it says so.
func TestSame_StaleAcknowledgmentIsNotSent(t *testing.T) {
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
				if roots, ok := e.message.(Roots); ok {
					for _, same := range roots.Same {
						if same.Scope == "application" {
							t.Error("the hub received Same for Applications")
						}
					}
				}
			}
			if at := w.hub.scope("application").InSyncAt; at > began {
				t.Error("the hub calls them proven")
			}
		})
	}
}

// What the replica requests is followed by roots. An acknowledgment of older ones does not count for these.
func TestSame_PendingDoesNotDelayNextComparison(t *testing.T) {
	w := atRest(t)
	next := w.agent.peer.beaconAt
	w.wait(next - w.now - 20*Second)
	w.hub.peer.beaconNow() // so that the hub's does not follow the agent's
	w.hub.do(Tick{})
	w.wait(next - w.now - Second/2)
	began := w.now
	w.agent.store.slow = true
	w.agent.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "local" })
	w.wait(Second) // the agent's beacon is between
	w.agent.store.slow = false
	w.agent.store.drain()
	w.wait(3 * Second)
	if err := w.equal("application"); err != nil {
		t.Fatal(err)
	}
	if at := w.hub.scope("application").InSyncAt; at <= began {
		t.Errorf("made good, but the hub knows only how it was %d s before", (began-at)/Second)
	}
}

// A peer of an earlier version neither says nor hears any of this.
func TestSame_OlderPeerIsAnsweredAtOnce(t *testing.T) {
	w := newWorld(t, Tuning{})
	plain := func(s *side) {
		for i, e := range s.pipe {
			if roots, ok := e.message.(Roots); ok {
				if len(roots.Same) > 0 {
					t.Errorf("the %s says the same where it is not heard", s.name)
				}
				old := Roots{}
				for _, r := range roots.Items {
					r.Known = false
					old.Items = append(old.Items, r)
				}
				s.pipe[i].message = old
			}
		}
	}
	w.onPass = plain
	w.connect()
	w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v1" })
	w.wait(600 * Second)
	for _, s := range []*side{w.hub, w.agent} {
		for _, name := range []string{"project", "application", "status"} {
			if age := w.now - s.scope(name).InSyncAt; age > 61*Second {
				t.Errorf("the %s knows of %s only how it was %d s ago", s.name, name, age/Second)
			}
		}
	}
}

// A peer that wrongly marks roots as known waits longer for the acknowledgment. A peer that sends them constantly gets
// no more of them.
func TestSame_FrequentRootsCauseNoMoreBeacons(t *testing.T) {
	w := atRest(t)
	root := Root{Scope: "status", Count: uint64(w.hub.peer.replicas["status"].digest.Len()), Sum: w.hub.peer.replicas["status"].digest.Sum(), Known: true}
	w.hub.sent = 0
	for range 600 {
		w.now += Second
		w.hub.do(Received{w.session, Roots{Items: []Root{root}}})
		w.hub.do(Received{w.session, Roots{}})
	}
	if w.hub.sent > 20 {
		t.Errorf("%d messages in ten minutes", w.hub.sent)
	}
}

// A new session begins without pending acknowledgments of the one before.
func TestSame_NewSessionHasNothingPending(t *testing.T) {
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
			for _, r := range roots.Items {
				if first && r.Known {
					t.Errorf("the %s takes %s for known", s.name, r.Scope)
				}
			}
			first = false
		}
		if first {
			t.Errorf("the %s has sent no roots", s.name)
		}
	}
}

// An acknowledgment of an older root does not count for the last one.
func TestSame_OnlyAcknowledgedRootIsKnown(t *testing.T) {
	w := atRest(t)
	old := w.hub.peer.owners["application"].lastSentRoot
	w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v2" })
	tell := func() Root {
		w.hub.pipe = nil // the agent does not hear it
		w.hub.peer.beaconNow()
		w.hub.do(Tick{})
		roots := w.hub.pipe[len(w.hub.pipe)-1].message.(Roots)
		return roots.Items[1]
	}
	tell()
	w.hub.do(Received{w.session, Roots{Same: []Root{{Scope: "application", Sum: old}}}})
	if root := tell(); root.Scope != "application" || root.Known {
		t.Errorf("%+v, which the agent has never seen", root)
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
