package principal

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

func TestAnAgentsOwnCertificateDoesNotOpenAnothersCluster(t *testing.T) {
	d := newDesk(t)
	d.see(agent("a", 1, "managed"))
	d.see(agent("b", 2, "managed"))
	for title, test := range map[string]struct {
		auth, name, unit string
		want, wrong      string
	}{
		"by its name":                    {auth: "mtls:CN=([^,]+)", name: "a", want: "a"},
		"for Argo CD":                    {auth: "mtls:CN=([^,]+)", name: "b", unit: pki.ProxyClientUnit, want: "b"},
		"another's name":                 {auth: "mtls:OU=([^,]+)", name: "b", unit: "a", wrong: "is agent a's own"},
		"its own name":                   {auth: "mtls:OU=([^,]+)", name: "a", unit: "a", want: "a"},
		"for Argo CD, named by the unit": {auth: "mtls:OU=([^,]+)", name: "b", unit: pki.ProxyClientUnit, want: "b"},
		"no agent's":                     {auth: "mtls:OU=([^,]+)", name: "b", unit: "people", want: "b"},
		"unknown":                        {auth: "mtls:CN=([^,]+)", name: "c", wrong: `"c"`},
	} {
		method, err := identity.ParseMethod(test.auth)
		if err != nil {
			t.Fatal(err)
		}
		p := &principal{registry: d.registry}
		p.cfg.Live.Names = method.AgentFromCertificate
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: test.name}}
		if test.unit != "" {
			cert.Subject.OrganizationalUnit = []string{test.unit}
		}
		got, err := (&live{p: p}).caller(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}})
		if got != test.want || (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %q, %v", title, got, err)
		}
	}
}

func TestACertificateEndsOnConnectionsThatAreOpenToo(t *testing.T) {
	d := newDesk(t)
	d.see(agent("a", 1, "managed"))
	for left, good := range map[time.Duration]bool{time.Hour: true, -time.Second: false} {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: "a"}, NotAfter: time.Now().Add(left)}
		if _, err := (&live{p: &principal{registry: d.registry}}).caller(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}); (err == nil) != good {
			t.Errorf("%s before its end: %v", left, err)
		}
	}
}

// Whoever has one cluster Secret has the certificate of all: it must not open the
// cluster of the agent that happens to be called as it is.
func TestTheCertificateOfAllClusterSecretsIsNamedAfterNobody(t *testing.T) {
	hub := newCA(t)
	issued := func(name string, issue func(context.Context, string) (pki.Issued, error)) (pki.Issued, *tls.ConnectionState) {
		t.Helper()
		made, err := issue(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		certs, err := pki.Certificates(made.Cert)
		if err != nil {
			t.Fatal(err)
		}
		return made, &tls.ConnectionState{PeerCertificates: certs}
	}
	shared, all := issued("a", hub.Client)
	_, renewed := issued("a", hub.Client)
	_, own := issued("a", hub.ProxyClient)
	_, other := issued("b", hub.Client)

	d := newDesk(t)
	d.see(agent("a", 1, "managed"))
	d.see(agent("b", 2, "managed"))
	l := &live{p: &principal{registry: d.registry}}
	reaches := func(when string, want map[*tls.ConnectionState]string) {
		t.Helper()
		for state, agent := range want {
			if got, err := l.caller(state); got != agent || err != nil {
				t.Errorf("%s: a certificate of %s opens %q instead of %q, %v", when, state.PeerCertificates[0].Subject, got, agent, err)
			}
		}
	}
	reaches("none is shared", map[*tls.ConnectionState]string{all: "a", own: "a", other: "b"})
	l.p.cfg.Live.Access = &Access{}
	reaches("which is shared is not known yet", map[*tls.ConnectionState]string{all: "", own: "a", other: ""})
	if err := l.p.cfg.Live.Access.Load(map[string][]byte{"tls.crt": []byte("x"), "tls.key": shared.Key, "ca.crt": shared.Bundle}); err == nil {
		t.Error("something that is no certificate was taken for one")
	}
	if err := l.p.cfg.Live.Access.Load(map[string][]byte{"tls.crt": shared.Cert, "tls.key": shared.Key, "ca.crt": shared.Bundle}); err != nil {
		t.Fatal(err)
	}
	reaches("one is shared", map[*tls.ConnectionState]string{all: "", renewed: "", own: "a", other: "b"})
}
