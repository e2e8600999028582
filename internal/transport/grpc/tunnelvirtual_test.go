package grpc

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// connectInMemory is connect under virtual time.
func connectInMemory(t testing.TB, limits tunnel.Limits, delay time.Duration) (*line, *cable) {
	t.Helper()
	ca := newCA(t, "ca")
	c := newCable()
	c.delay = delay
	l := &line{hub: startHubOn(t, hubConfig{TLS: ca.serverTLS(), Tunnels: limits}, c), accepted: tunnel.NewListener()}
	l.spoke = dial(t, spokeConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Dial: c.dial,
		Tunnels: map[string]tunnel.Handler{"api": l.accepted.Handle}, TunnelLimits: limits})
	l.conn = l.welcome("agent-a")
	return l, c
}

func TestTunnel_BreaksWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := connectInMemory(t, tunnel.Limits{}, 0)
		hub, agent := l.open(t)
		begin := time.Now()
		for range 3 { // a word now and then is enough
			time.Sleep(55 * time.Minute)
			_, err := agent.Write([]byte("x"))
			must(t, err)
			_, err = hub.Read(make([]byte, 1))
			must(t, err)
		}
		_, err := hub.Read(make([]byte, 1))
		<-agent.Done()
		if !errors.Is(err, tunnel.ErrIdle) && !errors.Is(agent.Cause(), tunnel.ErrIdle) { // either end may be the first
			t.Errorf("the hub gets %v, the agent %v", err, agent.Cause())
		}
		if after := time.Since(begin); after != 3*55*time.Minute+time.Hour {
			t.Errorf("given up after %s", after)
		}
		must(t, agent.Close())
		must(t, hub.Close())
		l.quiet(t)
	})
}

func TestStandbyTunnels_EndWhenUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := connectInMemory(t, tunnel.Limits{}, 0)
		hub, agent := l.open(t)
		synctest.Wait()
		now, there := &l.Counters().Tunnels, &l.spoke.Counters().Tunnels
		if now.Standby.Load() != 2 || there.Standby.Load() != 2 {
			t.Errorf("%d and %d spares", now.Standby.Load(), there.Standby.Load())
		}
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if now.Standby.Load() != 0 || there.Standby.Load() != 0 {
			t.Errorf("%d and %d spares are left", now.Standby.Load(), there.Standby.Load())
		}
		_, err := hub.Write([]byte("x")) // the one in use stays
		must(t, err)
		_, err = agent.Read(make([]byte, 1))
		must(t, err)
	})
}

func TestTunnels_EndWithABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := connectInMemory(t, tunnel.Limits{}, 0)
		hub, agent := l.open(t)
		c.cut.Store(true)
		begin := time.Now()
		for _, end := range []*tunnel.Tunnel{agent, hub} {
			_, err := io.Copy(io.Discard, struct{ io.Reader }{end})
			if err == nil || errors.Is(err, net.ErrClosed) {
				t.Errorf("it ends by %v", err)
			}
			must(t, end.Close())
		}
		if after := time.Since(begin); after > time.Minute {
			t.Errorf("found after %s", after)
		}
		c.cut.Store(false)
	})
}
