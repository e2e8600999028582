package grpc

import (
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

func TestSession_DeliversMessagesInOrder(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	cert := ca.issue("agent-a", time.Hour)
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientWith(cert)})

	agent, hub := s.next("connected").conn, h.next("connected").conn
	if hub.Agent != "agent-a" || hub.Fingerprint != fingerprint(cert) || !hub.NotAfter.Equal(cert.Leaf.NotAfter) || hub.RemoteAddr == "" {
		t.Errorf("the hub sees %+v", hub)
	}
	if agent.ID == hub.ID || agent.RemoteAddr != h.address {
		t.Errorf("the agent sees %+v", agent)
	}
	const n = 200
	for i := range n {
		must(t, agent.Send(roots(i)))
		must(t, hub.Send(roots(n+i)))
	}
	for i := range n {
		if got := numberOf(t, h.next("received").message); got != i {
			t.Fatalf("the hub got %d instead of %d", got, i)
		}
		if got := numberOf(t, s.next("received").message); got != n+i {
			t.Fatalf("the agent got %d instead of %d", got, n+i)
		}
	}
	if in, out := hub.Traffic.BytesIn.Load(), agent.Traffic.BytesOut.Load(); in != out || in == 0 {
		t.Errorf("%d bytes went out and %d came in", out, in)
	}
	if got := h.Counters().MessagesOut.Load(); got != n {
		t.Errorf("the hub counts %d messages out", got)
	}
	s.stop()
	h.next("received") // the goodbye
	if bye, ok := h.next("disconnected").err.(*transport.ByeError); !ok || bye.Code != engine.ShuttingDown || bye.Local {
		t.Errorf("the hub learns %v", bye)
	}
}
