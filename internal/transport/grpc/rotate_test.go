package grpc

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

func TestDialer_UsesNewCertificates(t *testing.T) {
	leakCheck(t)
	old, next := newCA(t, "old"), newCA(t, "new")
	var server, client atomic.Pointer[tls.Config]
	server.Store(old.serverTLS())
	agentCert := old.issue("agent-a", time.Hour)
	cfg, err := old.clientWith(agentCert)()
	must(t, err)
	client.Store(cfg)

	dynamic := &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return server.Load(), nil }}
	h := startHub(t, hubConfig{TLS: dynamic})
	s := dial(t, spokeConfig{Address: h.address, TLS: func() (*tls.Config, error) { return client.Load(), nil }})
	first, onHub := s.next("connected").conn, h.next("connected").conn
	if onHub.Fingerprint != fingerprint(agentCert) {
		t.Fatal("not the agent's certificate")
	}

	// Everything is new now, and the old stream lives on.
	server.Store(next.serverTLS())
	renewed := next.issue("agent-a", 2*time.Hour)
	cfg, err = next.clientWith(renewed)()
	must(t, err)
	client.Store(cfg)
	must(t, first.Send(roots(1)))
	h.next("received")
	must(t, onHub.Send(roots(2)))
	s.next("received")

	// The next handshake is by the new ones.
	onHub.Close(engine.ShuttingDown, "come back")
	_ = s.bye()
	_ = h.bye()
	s.next("connected")
	if again := h.next("connected").conn; again.Fingerprint != fingerprint(renewed) || !again.NotAfter.Equal(renewed.Leaf.NotAfter) {
		t.Error("the new connection is not by the new certificate")
	}
}

func TestDialer_ReturnsAfterARestartOfTheHub(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a")})
	s.next("connected")
	h.stop()
	if bye := s.bye(); bye.Code != engine.ShuttingDown || bye.Local {
		t.Errorf("the agent learns %v", bye)
	}
	_ = s.failure() // the hub is not running
	again := startHub(t, hubConfig{TLS: ca.serverTLS()}, h.address)
	again.next("connected")
	s.next("connected")
}

func TestServer_SendsTheQueueBeforeAShutdown(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a")})
	agent, hub := s.next("connected").conn, h.next("connected").conn
	const n = 1000
	for i := range n {
		must(t, agent.Send(roots(i)))
	}
	s.stop()
	for i := range n {
		if got := numberOf(t, h.next("received").message); got != i {
			t.Fatalf("got %d instead of %d", got, i)
		}
	}
	if bye := h.bye(); bye.Code != engine.ShuttingDown {
		t.Errorf("the hub learns %v", bye)
	}
	if err := agent.Send(roots(1)); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("sending after the end: %v", err)
	}
	<-hub.Done()
}
