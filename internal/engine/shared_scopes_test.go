package engine

import (
	"slices"
	"strings"
	"testing"
)

// openWith begins a session with a peer that has these capabilities.
func (l *peerHarness) openWith(capabilities ...string) []string {
	l.t.Helper()
	l.session++
	epoch := Epoch{Incarnation: 1, Attempt: l.session}
	l.step(Connected{Session: l.session, Epoch: epoch, Store: Store{UID: "own", Revision: 100}})
	if l.peer.cfg.Hub {
		l.step(Received{l.session, Hello{Epoch: epoch, Protocol: Range{ProtocolMin, ProtocolMax}, Projection: Range{ProjectionMin, ProjectionMax}, Store: agentStore, Capabilities: capabilities}})
	} else {
		l.step(Received{l.session, Welcome{Epoch: epoch, Protocol: ProtocolMax, Projection: ProjectionMax, Store: hubStore, Capabilities: capabilities}})
	}
	return l.step(Begin{})
}

func TestScopes_SharedIfBothSidesKnowThem(t *testing.T) {
	for name, c := range map[string]struct {
		announced    bool
		capabilities []string
		want         bool
	}{
		"an old scope, a peer that announces none":        {false, nil, true},
		"a new scope, a peer that announces none":         {true, nil, false},
		"an old scope, a peer with other capabilities":    {false, []string{FleetHold, "tunnels=api"}, true},
		"a new scope, a peer with other capabilities":     {true, []string{FleetHold, "tunnels=api"}, false},
		"an old scope, a peer that announces it":          {false, []string{"scope=s"}, true},
		"a new scope, a peer that announces it":           {true, []string{"scope=s"}, true},
		"an old scope, a peer that announces only others": {false, []string{"scope=s2"}, false},
		"a new scope, a peer that announces only others":  {true, []string{"scope=s2"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cfg := range []ScopeConfig{{Name: "s", Role: Owner}, {Name: "s", Role: Replica}} {
				cfg.Announced = c.announced
				l := newPeerHarness(t, Config{Hub: cfg.Role == Owner, Scopes: []ScopeConfig{cfg}})
				l.openWith(c.capabilities...)
				if got := !l.peer.Status().Scopes[0].Unshared; got != c.want {
					t.Errorf("hub %v: shared is %v", l.peer.cfg.Hub, got)
				}
			}
		})
	}
}

func TestScopes_AreAnnouncedByBothSides(t *testing.T) {
	announced := func(l *peerHarness) []string {
		for _, e := range l.last {
			if s, ok := e.(Send); ok {
				switch m := s.Message.(type) {
				case Hello:
					return m.Capabilities
				case Welcome:
					return m.Capabilities
				}
			}
		}
		return nil
	}
	hub := newOwnerSide(t, Mirror, Config{Welcome: Welcome{Capabilities: []string{FleetHold}}})
	for range 2 { // a second session announces nothing twice
		hub.openWith()
		if got := announced(hub); !slices.Equal(got, []string{FleetHold, "short-beacon", "scope=s"}) {
			t.Errorf("the hub announces %q", got)
		}
		hub.close()
	}
	agent := newReplicaSide(t, Mirror, Config{})
	agent.step(Connected{Session: 1, Epoch: Epoch{1, 1}, Store: agentStore})
	if got := announced(agent); !slices.Equal(got, []string{"scope=s"}) {
		t.Errorf("the agent announces %q", got)
	}
}

func TestScopes_NothingOfUnsharedScopeIsSentOrAwaited(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.hub.cfg.Scopes = append(w.hub.cfg.Scopes, ScopeConfig{Name: "gadget", Role: Owner})
	w.hub.boot()
	w.agent.cfg.Scopes = append(w.agent.cfg.Scopes, ScopeConfig{Name: "widget", Role: Replica})
	w.agent.boot()
	run := func(command string) {
		t.Helper()
		if err := w.run(strings.Fields(command)); err != nil {
			t.Fatal(err)
		}
	}
	run("hub put gadget g v1")
	w.connect()
	w.wait(120 * Second)
	run("hub put gadget h v1")
	run("hub delete gadget g")
	run("hub put application a v1")
	w.wait(120 * Second)
	if w.hub.events[InitialSyncDone] != 1 || w.agent.events[InitialSyncDone] != 1 {
		t.Errorf("initial sync done: hub %d, agent %d", w.hub.events[InitialSyncDone], w.agent.events[InitialSyncDone])
	}
	if got := w.agent.peer.Status().UnexpectedMessages; got != 0 {
		t.Errorf("the agent was sent %d messages of a scope that it does not know", got)
	}
	for _, s := range w.hub.peer.Status().Scopes {
		if s.Name == "gadget" && (!s.Unshared || s.Dirty+s.InFlight+s.Rejected != 0 || s.InSyncAt != 0) {
			t.Errorf("the scope is %+v", s)
		}
	}

	// The agent is upgraded.
	w.agent.cfg.Scopes = append(w.agent.cfg.Scopes, ScopeConfig{Name: "gadget", Role: Replica})
	w.cut(false)
	w.agent.boot()
	w.connect()
	w.wait(120 * Second)
	if err := w.equal("gadget"); err != nil {
		t.Error(err)
	}
	if s := w.hub.peer.Status().Scopes[4]; s.Unshared || s.InSyncAt == 0 {
		t.Errorf("after the upgrade the scope is %+v", s)
	}
}

func TestScopes_MessagesOfUnsharedScopeAreRefused(t *testing.T) {
	replica := newReplicaSide(t, Mirror, Config{})
	replica.observe("a", "1")
	replica.openWith("scope=other")
	if got := replica.root(); len(got) > 0 {
		t.Errorf("an empty root of the hub: %q", got)
	}
	replica.expect(replica.delta(1, "a", "2"), "ack a NotAllowed")
	if got := replica.step(View{Scope: "s", Complete: false}); len(got) > 0 {
		t.Errorf("%q", got)
	}
	if got := replica.step(View{Scope: "s", Complete: true}); len(got) > 0 {
		t.Errorf("a complete view: %q", got)
	}
	owner := newOwnerSide(t, Mirror, Config{})
	owner.publish("a", "1")
	owner.openWith("scope=other")
	if got := owner.receive(Want{Scope: "s", Hashes: []KeyHash{Key{Name: "a"}.Hash()}}); len(got) > 0 {
		t.Errorf("a request: %q", got)
	}
	if got := replica.peer.Status().UnexpectedMessages + owner.peer.Status().UnexpectedMessages; got != 3 {
		t.Errorf("%d messages count as unexpected", got)
	}
}

func TestScopes_RejectionEndsWithUnsharedScope(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.publish("a", "1")
	l.openWith("scope=s")
	l.receive(Want{Scope: "s", Hashes: []KeyHash{Key{Name: "a"}.Hash()}})
	l.expect(l.ack(1, "a", Invalid), "event Rejected a")
	l.close()
	l.expect(l.openWith("scope=other"), "event Accepted a")
	if got := l.peer.Status().Scopes[0].Rejected; got != 0 {
		t.Errorf("%d items are rejected by a peer that does not know them", got)
	}
	if got := l.advance(3600 * Second); slices.ContainsFunc(got, func(s string) bool { return s == "delta a 1" }) {
		t.Errorf("the item is sent: %q", got)
	}
}
