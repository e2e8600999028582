package identity

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/spiffetest"
)

// spire is a Workload API for one process, with what a test needs of it.
type spire struct {
	*spiffetest.API
	t *testing.T
}

func newSpire(t *testing.T) *spire {
	t.Helper()
	return &spire{spiffetest.New(t), t}
}

// register gives the process an identity of a domain, with federated domains.
func (s *spire) register(ca *authority, id string, federated map[string]*x509.Certificate) *x509.Certificate {
	s.t.Helper()
	uri, err := url.Parse(id)
	must(s.t, err)
	cert, key := ca.sign(&x509.Certificate{Subject: pkix.Name{Organization: []string{"SPIRE"}}, URIs: []*url.URL{uri}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}})
	s.Register(s.t, id, cert, key, ca.cert, federated)
	return cert
}

// follow runs a Workload until the test ends.
func (s *spire) follow(domains ...string) *SPIFFESource {
	s.t.Helper()
	w, err := NewSPIFFESource(s.Socket, domains, slog.New(slog.DiscardHandler))
	must(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s.t.Cleanup(func() { cancel(); must(s.t, <-done) })
	return w
}

// has waits until a Workload uses a certificate.
func has(t *testing.T, w *SPIFFESource, cert *x509.Certificate) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		m, err := w.Material()
		if err == nil && m.Certificate.Leaf.Equal(cert) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the identity does not arrive: %v", err)
		}
	}
}

func TestSPIFFESource_HandshakeOnBothSides(t *testing.T) {
	ca := newAuthority(t, "example.org")
	onHub, onEdge := newSpire(t), newSpire(t)
	hub, edge := onHub.follow(), onEdge.follow()
	if _, err := edge.Material(); err == nil || !strings.Contains(err.Error(), onEdge.Socket) {
		t.Errorf("error %v", err)
	}
	has(t, hub, onHub.register(ca, "spiffe://example.org/principal", nil))
	has(t, edge, onEdge.register(ca, "spiffe://example.org/agent/w1", nil))
	method, err := ParseMethod("mtls:uri:^spiffe://example.org/agent/([^/]+)$")
	must(t, err)
	server := hub.ServerTLS(nil)
	connect := func(id string) (name string, onHub, onEdge error) {
		t.Helper()
		client, err := edge.ClientTLS(id)
		must(t, err)
		state, onHub, onEdge := shake(t, server, client)
		if onHub == nil && onEdge == nil {
			p, err := (&Authenticator{Method: method}).Authenticate(overTLS(state.VerifiedChains[0]...))
			must(t, err)
			name = p.Agent
		}
		return name, onHub, onEdge
	}
	if name, onHub, onEdge := connect("spiffe://example.org/principal"); name != "w1" {
		t.Errorf("%q, %v, %v", name, onHub, onEdge)
	}
	if _, _, err := connect("spiffe://example.org/other"); err == nil || !strings.Contains(err.Error(), "the principal is spiffe://example.org/principal, but spiffe://example.org/other is expected") {
		t.Errorf("error %v", err)
	}
	// Both are replaced while they run, and so is the CA.
	next := newAuthority(t, "example.org")
	has(t, hub, onHub.register(next, "spiffe://example.org/principal", nil))
	if _, onHub, onEdge := connect("spiffe://example.org/principal"); onHub == nil && onEdge == nil {
		t.Error("a certificate of a removed CA is trusted")
	}
	has(t, edge, onEdge.register(next, "spiffe://example.org/agent/w1", nil))
	if name, onHub, onEdge := connect("spiffe://example.org/principal"); name != "w1" {
		t.Errorf("%q, %v, %v", name, onHub, onEdge)
	}
}

func TestSPIFFESource_FederatedDomainSignsOnlyForItself(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	onHub, onEdge := newSpire(t), newSpire(t)
	hub, edge := onHub.follow("ours.example", "theirs.example"), onEdge.follow("ours.example")
	has(t, hub, onHub.register(ours, "spiffe://ours.example/principal", map[string]*x509.Certificate{"spiffe://theirs.example": theirs.cert}))
	for id, good := range map[string]bool{"spiffe://theirs.example/agent/w1": true, "spiffe://ours.example/agent/w1": false} {
		// The other domain's CA signs whatever it likes.
		has(t, edge, onEdge.register(theirs, id, map[string]*x509.Certificate{"spiffe://ours.example": ours.cert}))
		client, err := edge.ClientTLS("spiffe://ours.example/principal")
		must(t, err)
		client.VerifyConnection = nil // what a liar says is not for the liar to check
		_, err, _ = shake(t, hub.ServerTLS(nil), client)
		if good != (err == nil) {
			t.Errorf("%s: %v", id, err)
		}
		if !good && !strings.Contains(fmt.Sprint(err), "not signed by a trusted trust domain") {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// A Workload API may have the bundles of many federated domains. Only agents of listed domains are accepted.
func TestSPIFFESource_TrustsOnlyListedDomains(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	for title, test := range map[string]struct {
		listed []string
		signer *authority
		id     string
		good   bool
	}{
		"own domain is the default":  {nil, ours, "spiffe://ours.example/agent/w1", true},
		"federated, not listed":      {nil, theirs, "spiffe://theirs.example/agent/w1", false},
		"federated, listed":          {[]string{"theirs.example"}, theirs, "spiffe://theirs.example/agent/w1", true},
		"own domain, another listed": {[]string{"theirs.example"}, ours, "spiffe://ours.example/agent/w1", false},
	} {
		t.Run(title, func(t *testing.T) {
			onHub, onEdge := newSpire(t), newSpire(t)
			hub, edge := onHub.follow(test.listed...), onEdge.follow("ours.example")
			has(t, hub, onHub.register(ours, "spiffe://ours.example/principal", map[string]*x509.Certificate{"spiffe://theirs.example": theirs.cert}))
			has(t, edge, onEdge.register(test.signer, test.id, map[string]*x509.Certificate{"spiffe://ours.example": ours.cert}))
			client, err := edge.ClientTLS("spiffe://ours.example/principal")
			must(t, err)
			if _, err, _ = shake(t, hub.ServerTLS(nil), client); test.good != (err == nil) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestSPIFFESource_RecoversAfterAnOutage(t *testing.T) {
	ca := newAuthority(t, "example.org")
	s := newSpire(t)
	w := s.follow() // nothing is registered yet
	has(t, w, s.register(ca, "spiffe://example.org/agent/w1", nil))
	if err := CheckSocket("/run/x.sock"); err == nil || !strings.Contains(err.Error(), "unix:///") {
		t.Errorf("error %v", err)
	}
	if err := CheckSPIFFEID("https://x"); err == nil {
		t.Error("that is no identity")
	}
}
