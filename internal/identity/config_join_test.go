package identity

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

func TestAllowAnonymousJoin_OnlyForTheJoinProtocol(t *testing.T) {
	ca := newAuthority(t, "ca")
	hub := ca.issue(template("principal")).store(t) // as others make it: the CA is not part of what it shows
	server := ServerTLS(hub, nil)
	server.NextProtos = []string{"h2"}
	pin := pki.PinOf(ca.cert)
	joiner := func() *tls.Config { return pin.ClientTLS("principal.example", time.Now) }
	if _, onHub, _ := shake(t, server, joiner()); onHub == nil {
		t.Error("joining is not enabled")
	}
	AllowAnonymousJoin(server, hub)
	state, onHub, onEdge := shake(t, server, joiner())
	if onHub != nil || onEdge != nil {
		t.Fatal(onHub, onEdge)
	}
	if len(state.PeerCertificates) != 0 || len(state.VerifiedChains) != 0 || state.NegotiatedProtocol != "h2" {
		t.Errorf("%+v", state)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	without := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "principal.example", RootCAs: pool, NextProtos: []string{"h2"}}
	if _, onHub, _ := shake(t, server, without); onHub == nil || !strings.Contains(ExplainServer(onHub).Error(), "presents no certificate") {
		t.Errorf("error %v", onHub)
	}
	agent := ca.issue(template("agent-a"))
	client, err := ClientTLS(agent.store(t), "principal.example")
	must(t, err)
	if state, onHub, onEdge := shake(t, server, client); onHub != nil || onEdge != nil || len(state.VerifiedChains) == 0 {
		t.Error(onHub, onEdge)
	}
	// The chain that others share has not grown.
	if m, _ := hub.Material(); len(m.Certificate.Certificate) != 1 {
		t.Errorf("%d certificates", len(m.Certificate.Certificate))
	}
}

func TestAuthenticate_RefusesProxyClientCertificate(t *testing.T) {
	ca := newAuthority(t, "ca")
	c := template("agent-a")
	c.Subject.OrganizationalUnit = []string{pki.ProxyClientUnit}
	cert, _ := ca.sign(c)
	method, err := ParseMethod("mtls:CN=([^,]+)")
	must(t, err)
	a := &Authenticator{Method: method}
	if p, err := a.Authenticate(overTLS(cert, ca.cert)); err == nil || !strings.Contains(err.Error(), "not the agent's own") {
		t.Errorf("%+v, %v", p, err)
	}
}
