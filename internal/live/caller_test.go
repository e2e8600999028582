package live

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/fleet/fleettest"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

func TestCaller_RefusesCertificateOfAgent(t *testing.T) {
	registry := fleettest.NewRegistry(t, fleettest.Agent("a", 1), fleettest.Agent("b", 2))
	for title, test := range map[string]struct {
		auth, name, unit string
		want, wrong      string
	}{
		"its own":                        {auth: "mtls:CN=([^,]+)", name: "a", wrong: "that of agent a itself"},
		"for Argo CD":                    {auth: "mtls:CN=([^,]+)", name: "b", unit: pki.ProxyClientUnit, want: "b"},
		"another's name":                 {auth: "mtls:^CN=[^,]+,OU=([^,]+)$", name: "b", unit: "a", wrong: "that of agent a itself"},
		"its own name":                   {auth: "mtls:^CN=[^,]+,OU=([^,]+)$", name: "a", unit: "a", wrong: "that of agent a itself"},
		"for Argo CD, named by the unit": {auth: "mtls:^CN=[^,]+,OU=([^,]+)$", name: "b", unit: pki.ProxyClientUnit, want: "b"},
		"no agent's":                     {auth: "mtls:^CN=[^,]+,OU=([^,]+)$", name: "b", unit: "users", want: "b"},
		"unknown":                        {auth: "mtls:CN=([^,]+)", name: "c", wrong: `"c"`},
	} {
		method, err := identity.ParseMethod(test.auth)
		if err != nil {
			t.Fatal(err)
		}
		l := &Live{cfg: Config{Registry: registry, Settings: Settings{Names: method.AgentFromCertificate}}}
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: test.name}}
		if test.unit != "" {
			cert.Subject.OrganizationalUnit = []string{test.unit}
		}
		got, err := l.caller(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}})
		if got != test.want || (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %q, %v", title, got, err)
		}
	}
}

func TestCaller_ExpiredCertificateOnOpenConnection(t *testing.T) {
	registry := fleettest.NewRegistry(t, fleettest.Agent("a", 1))
	for left, good := range map[time.Duration]bool{time.Hour: true, -time.Second: false} {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: "a"}, NotAfter: time.Now().Add(left)}
		if _, err := (&Live{cfg: Config{Registry: registry}}).caller(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}); (err == nil) != good {
			t.Errorf("%s before its end: %v", left, err)
		}
	}
}

// All cluster Secrets contain the shared certificate. It must not be valid for an agent that has its name.
func TestCaller_SharedCertificateNamesNoAgent(t *testing.T) {
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

	registry := fleettest.NewRegistry(t, fleettest.Agent("a", 1), fleettest.Agent("b", 2))
	l := &Live{cfg: Config{Registry: registry}}
	reaches := func(when string, want map[*tls.ConnectionState]string) {
		t.Helper()
		for state, agent := range want {
			if got, err := l.caller(state); got != agent || err != nil {
				t.Errorf("%s: a certificate of %s opens %q instead of %q, %v", when, state.PeerCertificates[0].Subject, got, agent, err)
			}
		}
	}
	reaches("none is shared", map[*tls.ConnectionState]string{all: "a", own: "a", other: "b"})
	l.cfg.Access = &Access{}
	reaches("which is shared is not known yet", map[*tls.ConnectionState]string{all: "", own: "a", other: ""})
	if err := l.cfg.Access.Load(map[string][]byte{"tls.crt": []byte("x"), "tls.key": shared.Key, "ca.crt": shared.Bundle}); err == nil {
		t.Error("something that is no certificate was taken for one")
	}
	if err := l.cfg.Access.Load(map[string][]byte{"tls.crt": shared.Cert, "tls.key": shared.Key, "ca.crt": shared.Bundle}); err != nil {
		t.Fatal(err)
	}
	reaches("one is shared", map[*tls.ConnectionState]string{all: "", renewed: "", own: "a", other: "b"})
}

// A kubeconfig for the cluster of a deleted agent must not be valid for a new agent with the same name.
func TestCaller_CertificateOfDeletedAgentIsInvalidForNextAgent(t *testing.T) {
	hub := newCA(t)
	l := &Live{cfg: Config{Registry: fleettest.NewRegistry(t, fleettest.Agent("w1", 1), fleettest.Agent("w2", 2)), Revocations: &identity.Revocations{}}}
	reaches := func(name string, at time.Time) error {
		t.Helper()
		hub.Now = func() time.Time { return at }
		issued, err := hub.ProxyClient(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		certs, err := pki.Certificates(issued.Cert)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.caller(&tls.ConnectionState{PeerCertificates: certs})
		return err
	}
	deleted := time.Now()
	if err := reaches("w1", deleted.Add(-time.Hour)); err != nil {
		t.Error(err)
	}
	l.cfg.Revocations.SetBefore(map[string]time.Time{"w1": deleted.Add(-5 * time.Minute)})
	if err := reaches("w1", deleted.Add(-time.Hour)); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("certificate older than the agent: %v", err)
	}
	for name, at := range map[string]time.Time{"w1": deleted.Add(-time.Minute), "w2": deleted.Add(-time.Hour)} {
		if err := reaches(name, at); err != nil { // within the clock tolerance; of another agent
			t.Error(err)
		}
	}
}

// newCA returns a CA with its Secrets in memory.
func newCA(t *testing.T) *pki.Manager {
	t.Helper()
	hub := &pki.Manager{Secrets: &pki.FakeSecrets{}}
	if _, _, err := hub.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return hub
}

func TestUser_NamesClientOfResourceProxy(t *testing.T) {
	hub := newCA(t)
	l := &Live{}
	state := func(issued pki.Issued, err error) *tls.ConnectionState {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		certs, err := pki.Certificates(issued.Cert)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.ConnectionState{PeerCertificates: certs}
	}
	user := pki.User{Name: "alice", Groups: []string{"dev"}}
	shared := state(hub.Client(t.Context(), "argocd-server"))
	for title, c := range map[string]struct {
		state      *tls.ConnectionState
		user, from string
	}{
		"kubeconfig":                   {state(hub.ProxyUser(t.Context(), "w1", user)), "alice", "kubeconfig"},
		"kubeconfig without user":      {state(hub.ProxyUser(t.Context(), "w1", pki.User{})), "", "kubeconfig"},
		"cluster Secret":               {state(hub.ProxyClient(t.Context(), "w1")), "", "cluster-secret"},
		"certificate of another owner": {state(hub.Client(t.Context(), "w1")), "CN=w1", "certificate"},
	} {
		if got := l.user(c.state); got.User != c.user || got.From != c.from {
			t.Errorf("%s: %+v", title, got)
		}
	}
	l.cfg.Access = &Access{subject: shared.PeerCertificates[0].RawSubject}
	if got := l.user(shared); got.User != "" || got.From != "cluster-secret" {
		t.Errorf("shared certificate: %+v", got)
	}
}
