package engine

import "testing"

func outages(effects []Effect) (sent []string) {
	for _, e := range effects {
		if s, ok := e.(Send); ok {
			if m, ok := s.Message.(WriteOutage); ok {
				sent = append(sent, m.Reason)
			}
		}
	}
	return sent
}

func TestWriteOutage_IsSentOnChangeAndWithBeacons(t *testing.T) {
	p := NewPeer(Config{Mode: "managed", Mapping: "namespace"}, nil)
	now := Time(1000)
	step := func(in Input) []string { return outages(p.Step(now, in)) }
	expect := func(what string, got []string, want ...string) {
		t.Helper()
		if len(got) != len(want) || len(want) == 1 && got[0] != want[0] {
			t.Errorf("%s: sent %q, want %q", what, got, want)
		}
	}
	open := func(session uint64) []string {
		epoch := Epoch{Incarnation: 1, Attempt: session}
		sent := step(Connected{Session: session, Epoch: epoch})
		sent = append(sent, step(Received{session, Welcome{Epoch: epoch, Mode: "managed", Mapping: "namespace", Protocol: ProtocolMax, Projection: ProjectionMax}})...)
		return append(sent, step(Begin{})...)
	}
	beacon := func() []string {
		at, ok := p.NextWake()
		if !ok {
			t.Fatal("no beacon is due")
		}
		now = max(at, p.resendHoldsAt)
		return step(Tick{})
	}
	expect("before a session", step(SetWriteOutage{"full"}))
	expect("at the start of a session", open(1), "full")
	expect("without a change", step(SetWriteOutage{"full"}))
	expect("another reason", step(SetWriteOutage{"overloaded"}), "overloaded")
	expect("with a beacon", beacon(), "overloaded")
	expect("at the end", step(SetWriteOutage{}), "")
	expect("with the next beacon", beacon(), "")
	expect("with later beacons", beacon())
	expect("in a session without an outage", open(2))
}

func TestWriteOutage_IsKnownToTheHubInASession(t *testing.T) {
	l := newOwnerSide(t, Mirror, Config{})
	l.open(agentStore)
	l.expect(l.receive(WriteOutage{"full"}), "event WriteOutageSet")
	l.expectNone(l.receive(WriteOutage{"full"}), "event")
	if got := l.peer.Status().WriteOutage; got != "full" {
		t.Errorf("status has %q", got)
	}
	l.expect(l.receive(WriteOutage{}), "event WriteOutageSet")
	l.receive(WriteOutage{"full"})
	l.step(Disconnected{Session: l.peer.session})
	if got := l.peer.Status().WriteOutage; got != "" {
		t.Errorf("after the session, status has %q", got)
	}
}

func TestWriteOutage_AgentIgnoresTheHubs(t *testing.T) {
	l := newReplicaSide(t, Mirror, Config{})
	l.open(hubStore)
	l.expectNone(l.receive(WriteOutage{"full"}), "event")
	if got := l.peer.Status().WriteOutage; got != "" {
		t.Errorf("status has %q", got)
	}
}
