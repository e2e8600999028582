package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

func TestServer_RefusesUnauthenticatedAgents(t *testing.T) {
	ca, stranger := newCA(t, "ca"), newCA(t, "stranger")
	forged := stranger.issue("agent-a", time.Hour)
	none := func() (*tls.Config, error) {
		return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool()}, nil
	}
	present := func(cert tls.Certificate) func() (*tls.Config, error) {
		return func() (*tls.Config, error) {
			return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool(),
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }}, nil
		}
	}
	for _, test := range []struct {
		title         string
		tls           func() (*tls.Config, error)
		onHub, onEdge string
		reason        string
	}{
		{"no certificate", none, "client didn't provide a certificate", "certificate required", refusedTLS},
		{"unknown CA", present(forged), "certificate signed by unknown authority", "unknown certificate authority", refusedTLS},
		{"expired", present(ca.issue("agent-a", -time.Hour)), "certificate has expired", "expired certificate", refusedTLS},
		{"hub's CA unknown", stranger.clientWith(ca.issue("agent-a", time.Hour)), "bad certificate", "certificate signed by unknown authority", refusedTLS},
		{"name does not match", present(ca.issue("someone", time.Hour)), `subject \"someone\" is not an agent's`, `Forbidden: subject "someone" is not an agent's`, refusedIdentity},
	} {
		t.Run(test.title, func(t *testing.T) {
			leakCheck(t)
			h := startHub(t, hubConfig{TLS: ca.serverTLS()})
			s := dial(t, spokeConfig{Address: h.address, TLS: test.tls})
			for range 3 {
				if err := s.failure(); !strings.Contains(err.Error(), test.onEdge) {
					t.Errorf("the agent learns %v instead of %q", err, test.onEdge)
				}
			}
			eventually(t, "counted", func() bool { return h.Counters().Refused()[test.reason] >= 3 })
			s.stop()
			for side, log := range map[string]*journal{"hub": h.log, "agent": s.log} {
				want := map[string]string{"hub": test.onHub, "agent": strings.ReplaceAll(test.onEdge, `"`, `\"`)}[side]
				if text := log.String(); strings.Count(text, want) != 1 {
					t.Errorf("the %s logs %q %d times instead of once:\n%s", side, want, strings.Count(text, want), text)
				}
			}
			if n := h.Counters().Connects.Load(); n != 0 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

func TestServer_AuthenticatesByHeader(t *testing.T) {
	leakCheck(t)
	h := startHub(t, hubConfig{Authenticate: func(c transport.Credentials) (transport.Peer, error) {
		if v := c.Header("x-agent"); len(v) == 1 {
			return transport.Peer{Agent: v[0]}, nil
		}
		return transport.Peer{}, errors.New("no header x-agent")
	}})
	nameless := dial(t, spokeConfig{Address: h.address})
	if err := nameless.failure(); !strings.Contains(err.Error(), "no header x-agent") {
		t.Error(err)
	}
	nameless.stop()
	s := dial(t, spokeConfig{Address: h.address, Metadata: []string{"x-agent", "agent-a"}})
	agent, hub := s.next("connected").conn, h.next("connected").conn
	if hub.Agent != "agent-a" || hub.Fingerprint != "" {
		t.Errorf("%+v", hub)
	}
	must(t, agent.Send(roots(1)))
	h.next("received")
}

func TestServer_SendsRetryAfterWhileOverloaded(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	full := true
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), Admit: func(transport.Peer) (time.Duration, error) {
		if full {
			full = false
			return 7 * time.Second, errors.New("enough agents for now")
		}
		return 0, nil
	}})
	pauses := make(chan time.Duration, 10)
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a"), Wait: func(_ context.Context, d time.Duration) error {
		pauses <- d
		return nil
	}})
	refused, ok := s.failure().(*transport.RefusedError)
	if !ok || refused.Code != engine.Overloaded || refused.RetryAfter != 7*time.Second || refused.Message != "enough agents for now" {
		t.Errorf("the agent learns %v", refused)
	}
	if pause := <-pauses; pause < 7*time.Second || pause > 8*time.Second {
		t.Errorf("it waits %s", pause)
	}
	s.next("connected")
	if n := h.Counters().Refused()["overloaded"]; n != 1 {
		t.Errorf("counted %d", n)
	}
}

func TestServer_CutEndsConnectionsOfACertificate(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	bad := ca.issue("agent-bad", time.Hour)
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	good := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-good")})
	kept := h.next("connected").conn
	gone := dial(t, spokeConfig{Address: h.address, TLS: ca.clientWith(bad), Wait: stopDialling})
	h.next("connected")

	if n := h.Cut(func(c *transport.Conn) bool { return c.Fingerprint == fingerprint(bad) }, engine.Revoked, "certificate revoked"); n != 1 {
		t.Errorf("%d connections cut", n)
	}
	if bye := gone.bye(); bye.Code != engine.Revoked || bye.Local || bye.Message != "certificate revoked" {
		t.Errorf("the agent learns %v", bye)
	}
	if bye := h.bye(); bye.Code != engine.Revoked || !bye.Local {
		t.Errorf("the hub says %v", bye)
	}
	good.next("connected")
	must(t, kept.Send(roots(1)))
	good.next("received")
}

// stopDialling ends a Dialer after its first connection.
func stopDialling(context.Context, time.Duration) error { return errors.New("enough") }
