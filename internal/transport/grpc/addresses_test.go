package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// The addresses of an agent lead to hubs on real listeners. One of them has a certificate of another CA.
func TestDialer_MovesToTheNextAddress(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	first := startHub(t, hubConfig{TLS: ca.serverTLS()})
	stranger := startHub(t, hubConfig{TLS: newCA(t, "another").serverTLS()})
	last := startHub(t, hubConfig{TLS: ca.serverTLS()})
	to := func(address string) transport.Connector {
		return NewConnector(ClientConfig{Address: address, TLS: ca.clientTLS("agent-a")})
	}
	s := dial(t, spokeConfig{Address: first.address, TLS: ca.clientTLS("agent-a"), Others: []transport.Connector{to(stranger.address), to(last.address)}})
	c := s.next("connected").conn
	c.Established()
	if c.Address != first.address {
		t.Errorf("connected to %s first", c.Address)
	}
	first.next("connected")

	first.stop()
	if s.bye().Code != engine.ShuttingDown {
		t.Error("the first hub did not end the session")
	}
	if c = s.next("connected").conn; c.Address != last.address {
		t.Errorf("connected to %s instead of %s", c.Address, last.address)
	}
	last.next("connected")
	if err := s.failure(); !strings.Contains(err.Error(), first.address) {
		t.Errorf("the first failure does not name the first address: %v", err)
	}
	if err := s.failure(); !strings.Contains(err.Error(), stranger.address) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the hub of another CA was not refused: %v", err)
	}
	if len(stranger.calls) > 0 {
		t.Error("the hub of another CA got a session")
	}
}

// switchboard connects addresses with cables. An address without a cable cannot be reached.
type switchboard struct{ first, second *cable }

func (b *switchboard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	to := b.second
	if strings.HasPrefix(address, "localhost:1") {
		to = b.first
	}
	if to == nil {
		return nil, errors.New("no route to host")
	}
	return to.dial(ctx, network, address)
}

func (b *switchboard) spoke(t *testing.T, issuer *ca) *spoke {
	t.Helper()
	second := NewConnector(ClientConfig{Address: "localhost:2", TLS: issuer.clientTLS("agent-a"), Dial: b.dial})
	return dial(t, spokeConfig{Address: "localhost:1", TLS: issuer.clientTLS("agent-a"), Dial: b.dial, Others: []transport.Connector{second}})
}

// longServerTLS is serverTLS with a certificate that is valid for longer than these tests take in virtual time.
func (c *ca) longServerTLS() *tls.Config {
	cfg := c.serverTLS()
	cfg.Certificates = []tls.Certificate{c.issue("principal", 40*time.Hour)}
	return cfg
}

func TestDialer_ReturnsToTheFirstAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		b := &switchboard{second: newCable()}
		second := startHubOn(t, hubConfig{TLS: ca.longServerTLS()}, b.second)
		s := b.spoke(t, ca)
		c := s.next("connected").conn
		c.Established()
		second.next("connected")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(s.calls) > 0 || c.Address != "localhost:2" {
			t.Fatal("the session with the second hub did not last while the first cannot be reached")
		}

		b.first = newCable()
		first := startHubOn(t, hubConfig{TLS: ca.longServerTLS()}, b.first)
		back := time.Now()
		for range 120 {
			if synctest.Wait(); len(s.calls) > 0 {
				break
			}
			time.Sleep(time.Minute)
		}
		if after := time.Since(back); after > time.Hour {
			t.Errorf("returned after %s", after)
		}
		if bye := s.bye(); !bye.Local || bye.Code != engine.Reconnect {
			t.Errorf("ended by %v", bye)
		}
		if c := s.next("connected").conn; c.Address != "localhost:1" {
			t.Errorf("connected to %s", c.Address)
		}
		if second.bye().Code != engine.Reconnect {
			t.Error("the second hub does not know why the session ended")
		}
		first.next("connected") // the attempt during the other session
		first.next("disconnected")
		first.next("connected")
	})
}

// A first hub that refuses agents, such as a standby, does not disturb the session with the second.
func TestDialer_StaysWhileTheFirstAddressRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		b := &switchboard{first: newCable(), second: newCable()}
		asked := 0
		startHubOn(t, hubConfig{TLS: ca.longServerTLS(), Admit: func(transport.Peer) (time.Duration, error) {
			asked++
			return time.Second, errors.New("not now")
		}}, b.first)
		second := startHubOn(t, hubConfig{TLS: ca.longServerTLS()}, b.second)
		s := b.spoke(t, ca)
		s.next("connected").conn.Established()
		second.next("connected")
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		if len(s.calls) > 0 {
			t.Error("the session did not last")
		}
		// Once at first, after 5, 10 and 20 minutes, then every half hour, because there is no jitter in this test.
		if asked != 42 {
			t.Errorf("the first hub was asked %d times", asked)
		}
	})
}
