package engine

import "testing"

func TestHandshake_AgentAcceptsOnlyMatchingWelcome(t *testing.T) {
	good := Welcome{Epoch: Epoch{1, 1}, Protocol: ProtocolMax, Projection: ProjectionMax, Mode: "managed", Mapping: "namespace", Store: hubStore}
	for name, c := range map[string]struct {
		change func(*Welcome)
		want   string
	}{
		"as agreed":          {func(*Welcome) {}, "event Opened"},
		"of another session": {func(w *Welcome) { w.Epoch.Attempt = 9 }, ""},
		"unknown protocol":   {func(w *Welcome) { w.Protocol = ProtocolMax + 1 }, "cut WrongProtocol"},
		"unknown projection": {func(w *Welcome) { w.Projection = ProjectionMin - 1 }, "cut WrongProtocol"},
		"another mode":       {func(w *Welcome) { w.Mode = "autonomous" }, "cut WrongMode"},
		"another mapping":    {func(w *Welcome) { w.Mapping = "destination" }, "event Opened"},
		"unknown mapping":    {func(w *Welcome) { w.Mapping = "moon" }, "cut WrongMode"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newReplicaSide(t, Mirror, Config{Mode: "managed", Mapping: "namespace", Mappings: []string{"namespace", "destination"}})
			l.step(Connected{Session: 1, Epoch: Epoch{1, 1}, Store: agentStore})
			l.session = 1
			w := good
			c.change(&w)
			got := l.receive(w)
			if c.want == "" && len(got) > 0 {
				t.Errorf("answered with %q", got)
			}
			if c.want != "" {
				l.expect(got, c.want)
			}
		})
	}
}

// If the registration changes between a connection and its Hello, the new Peer does not know the hub's store. A Welcome
// without it would look to the agent like a restored hub.
func TestHandshake_HubRefusesHelloBeforeItsStoreIsKnown(t *testing.T) {
	hello := func(attempt uint64) Hello {
		return Hello{Epoch: Epoch{1, attempt}, Protocol: Range{ProtocolMin, ProtocolMax}, Projection: Range{ProjectionMin, ProjectionMax},
			Mode: "managed", Mapping: "namespace", ClusterUID: "one", Store: agentStore, Known: hubStore}
	}
	l := newOwnerSide(t, Mirror, Config{Mode: "managed", Mapping: "namespace"})
	got := l.step(Received{1, hello(1)})
	l.expect(got, "cut ShuttingDown")
	if _, open := l.peer.Session(); open {
		t.Error("the session is open")
	}
	l.step(Connected{Session: 2, Store: hubStore})
	l.expect(l.step(Received{2, hello(2)}), "event Opened")
}

func TestHandshake_HubAcceptsOnlyRegisteredAgent(t *testing.T) {
	good := Hello{Epoch: Epoch{1, 2}, Protocol: Range{ProtocolMin, ProtocolMax}, Projection: Range{ProjectionMin, ProjectionMax},
		Mode: "managed", Mapping: "namespace", ClusterUID: "one", Store: agentStore}
	for name, c := range map[string]struct {
		change  func(*Hello)
		session uint64
		want    string
	}{
		"newer session":        {func(*Hello) {}, 2, "event Opened"},
		"older session":        {func(h *Hello) { h.Epoch.Attempt = 0 }, 2, "cut Superseded"},
		"another mode":         {func(h *Hello) { h.Mode = "autonomous" }, 2, "cut WrongMode"},
		"another mapping":      {func(h *Hello) { h.Mapping = "destination" }, 2, "event Opened"},
		"another cluster":      {func(h *Hello) { h.ClusterUID = "two" }, 2, "cut WrongCluster"},
		"no version in common": {func(h *Hello) { h.Protocol = Range{ProtocolMax + 1, ProtocolMax + 2} }, 2, "cut WrongProtocol"},
		"the same word twice":  {func(h *Hello) { h.Epoch.Attempt = 1 }, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newOwnerSide(t, Mirror, Config{Mode: "managed", Mapping: "namespace"})
			first := good
			first.Epoch.Attempt = 1
			l.step(Connected{Session: 1, Store: hubStore})
			l.expect(l.step(Received{1, first}), "event Opened")
			l.step(Begin{})
			h := good
			c.change(&h)
			got := l.step(Received{c.session, h})
			if c.want == "" && len(got) > 0 {
				t.Errorf("answered with %q", got)
			}
			if c.want != "" {
				l.expect(got, c.want)
			}
		})
	}
}
