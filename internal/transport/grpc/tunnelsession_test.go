package grpc

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

func TestTunnels_EndWithTheirSession(t *testing.T) {
	leakCheck(t)
	l := connect(t, tunnel.Limits{}, nil)
	hub, agent := l.open(t)
	var work sync.WaitGroup
	work.Go(func() { _, _ = agent.Write(make([]byte, 64<<20)) }) // the hub does not read
	eventually(t, "it stalls", func() bool { return agent.IdleFor() > 20*time.Millisecond })
	l.conn.Close(engine.Revoked, "go away")
	for _, end := range []*tunnel.Tunnel{hub, agent} {
		<-end.Done()
		if _, err := end.Write([]byte("x")); err == nil {
			t.Error("something was written")
		}
	}
	if _, err := io.Copy(io.Discard, hub); !errors.As(err, new(*tunnel.NotConnectedError)) {
		t.Errorf("the hub reads %v", err)
	}
	work.Wait()
	must(t, agent.Close())
	must(t, hub.Close())
	_, err := l.OpenTunnel(t.Context(), "agent-a", "api")
	if away, ok := err.(*tunnel.NotConnectedError); !ok || away.Since.IsZero() || !strings.Contains(err.Error(), "agent-a is not connected since ") {
		t.Errorf("the next: %v", err)
	}
	if _, err := l.OpenTunnel(t.Context(), "agent-b", "api"); err == nil || err.Error() != "agent agent-b is not connected" {
		t.Errorf("an agent that never came: %v", err)
	}
	_ = l.bye()
	l.welcome("agent-a") // it comes back, and works
	l.open(t)
}

func TestTunnels_OpenWhileSyncIsBusy(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	l := &line{hub: startHub(t, hubConfig{TLS: ca.serverTLS()}), accepted: tunnel.NewListener()}
	events, busy := newRecorder(t), make(chan struct{})
	events.received = func(c *transport.Conn, m engine.Message) {
		if _, ok := m.(engine.Roots); ok {
			close(busy)
			<-c.Done()
		}
	}
	l.spoke = dial(t, spokeConfig{Address: l.address, TLS: ca.clientTLS("agent-a"), Events: events,
		Tunnels: map[string]tunnel.Handler{"api": l.accepted.Handle}})
	l.conn = l.welcome("agent-a")
	l.open(t) // so that there are spares
	ready := func() bool { return l.Counters().Tunnels.Standby.Load() == 2 }
	eventually(t, "two are ready", ready)
	must(t, l.conn.Send(roots(1)))
	<-busy // and takes nothing more from the hub
	for range 10 {
		l.open(t)
		eventually(t, "another is ready", ready)
	}
}
