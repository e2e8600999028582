package main

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// pair starts a principal and an agent that have no certificates yet.
func pair(t *testing.T, more ...string) (*principal.Config, *agent.Config) {
	t.Helper()
	quiet := []string{"--metrics-port", "0", "--healthz-port", "0"}
	p := start(t, nil, append([]string{"principal", "--kubeconfig", kubeconfig(t), "--listen-port", freePort(t)}, quiet...)...)
	a := start(t, nil, append(append(append(agentArgs(t), quiet...), "--server-address", "localhost"), more...)...)
	if p.principal == nil || a.agent == nil {
		t.Fatal(p.stderr, a.stderr)
	}
	return p.principal, a.agent
}

func feed(t *testing.T, secrets map[string]func(map[string][]byte) error, name string, data map[string][]byte) {
	t.Helper()
	if err := secrets[name](data); err != nil {
		t.Fatal(err)
	}
}

// handshake connects the two and returns the common name of the agent's certificate.
func handshake(t *testing.T, p *principal.Config, a *agent.Config) (string, error) {
	t.Helper()
	client, err := a.TLS("localhost:443")
	if err != nil {
		return "", err
	}
	client.NextProtos = []string{"h2"}
	near, far := net.Pipe()
	deadline := time.Now().Add(10 * time.Second)
	_ = near.SetDeadline(deadline)
	_ = far.SetDeadline(deadline)
	ended := make(chan error, 1)
	go func() {
		conn := tls.Client(near, client)
		err := conn.Handshake()
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		_ = near.Close()
		ended <- err
	}()
	server := tls.Server(far, p.TLS)
	err = server.Handshake()
	name := ""
	if err == nil {
		name = server.ConnectionState().PeerCertificates[0].Subject.CommonName
		_, err = server.Write([]byte{1})
	}
	_ = far.Close()
	if other := <-ended; other != nil {
		return "", other
	}
	return name, err
}

func TestSecrets_AreUsedOnceComplete(t *testing.T) {
	ca := newAuthority(t)
	p, a := pair(t)
	cert, key := ca.issue(t, "principal")
	feed(t, p.Secrets, "argocd-agent-principal-tls", map[string][]byte{"tls.crt": cert, "tls.key": key})
	feed(t, p.Secrets, "argocd-agent-ca", map[string][]byte{"tls.crt": ca.pem, "tls.key": nil})
	cert, key = ca.issue(t, "one")
	feed(t, a.Secrets, "argocd-agent-client-tls", map[string][]byte{"tls.crt": cert, "tls.key": key})
	if _, err := a.TLS("localhost:443"); err == nil || !strings.Contains(err.Error(), "argocd/argocd-agent-ca") {
		t.Errorf("without CA certificates the agent must not connect: %v", err)
	}
	feed(t, a.Secrets, "argocd-agent-ca", map[string][]byte{"ca.crt": ca.pem})
	if name, err := handshake(t, p, a); err != nil || name != "one" {
		t.Errorf("first: %s, %v", name, err)
	}

	cert, key = ca.issue(t, "two")
	feed(t, a.Secrets, "argocd-agent-client-tls", map[string][]byte{"tls.crt": cert, "tls.key": key})
	if name, err := handshake(t, p, a); err != nil || name != "two" {
		t.Errorf("after a renewal: %s, %v", name, err)
	}
}

func TestSecrets_InvalidOneDoesNotReplaceValidOne(t *testing.T) {
	ca := newAuthority(t)
	p, a := pair(t)
	cert, key := ca.issue(t, "principal")
	feed(t, p.Secrets, "argocd-agent-principal-tls", map[string][]byte{"tls.crt": cert, "tls.key": key})
	feed(t, p.Secrets, "argocd-agent-ca", map[string][]byte{"ca.crt": ca.pem})
	feed(t, a.Secrets, "argocd-agent-client-tls", map[string][]byte{"tls.crt": cert, "tls.key": key})
	feed(t, a.Secrets, "argocd-agent-ca", map[string][]byte{"ca.crt": ca.pem})
	for want, data := range map[string]map[string][]byte{
		"Secret argocd/argocd-agent-client-tls not found":      nil,
		"Secret argocd/argocd-agent-client-tls has no tls.crt": {},
		"Secret argocd/argocd-agent-client-tls has no tls.key": {"tls.crt": cert},
		"certificate and key":                                  {"tls.crt": cert, "tls.key": []byte("?")},
	} {
		if err := a.Secrets["argocd-agent-client-tls"](data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := handshake(t, p, a); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
	// An invalid certificate does not block a later change of the CA.
	other := newAuthority(t)
	if err := a.Secrets["argocd-agent-ca"](map[string][]byte{"ca.crt": other.pem}); err != nil {
		t.Error(err)
	}
	if _, err := handshake(t, p, a); err == nil {
		t.Error("the principal is still trusted")
	}
}

func TestSecrets_CanBeRepairedOneByOne(t *testing.T) {
	ca := newAuthority(t)
	_, a := pair(t)
	cert, key := ca.issue(t, "one")
	own, trusted := a.Secrets["argocd-agent-client-tls"], a.Secrets["argocd-agent-ca"]
	if err := own(map[string][]byte{"tls.crt": cert, "tls.key": []byte("?")}); err != nil {
		t.Errorf("the Secrets are not complete yet: %v", err)
	}
	for range 2 {
		if err := trusted(map[string][]byte{"ca.crt": ca.pem}); err == nil {
			t.Error("the certificate is still invalid")
		}
	}
	if err := own(map[string][]byte{"tls.crt": cert, "tls.key": key}); err != nil {
		t.Error(err)
	}
	if _, err := a.TLS("localhost:443"); err != nil {
		t.Error(err)
	}
}

func TestSecrets_OneSecretCanHaveAllKeys(t *testing.T) {
	ca := newAuthority(t)
	p, a := pair(t, "--root-ca-secret-name", "argocd-agent-client-tls")
	cert, key := ca.issue(t, "one")
	all := map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.pem}
	feed(t, p.Secrets, "argocd-agent-principal-tls", all)
	feed(t, p.Secrets, "argocd-agent-ca", all)
	feed(t, a.Secrets, "argocd-agent-client-tls", all)
	if len(a.Secrets) != 1 {
		t.Errorf("Secrets %v", a.Secrets)
	}
	if name, err := handshake(t, p, a); err != nil || name != "one" {
		t.Errorf("%s, %v", name, err)
	}
}

func TestSecrets_NoVerificationNeedsNoCA(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	p, a := pair(t, "--insecure-tls")
	cert, key := other.issue(t, "principal")
	feed(t, p.Secrets, "argocd-agent-principal-tls", map[string][]byte{"tls.crt": cert, "tls.key": key})
	feed(t, p.Secrets, "argocd-agent-ca", map[string][]byte{"ca.crt": ca.pem})
	cert, key = ca.issue(t, "one")
	feed(t, a.Secrets, "argocd-agent-client-tls", map[string][]byte{"tls.crt": cert, "tls.key": key})
	if name, err := handshake(t, p, a); err != nil || name != "one" {
		t.Errorf("%s, %v", name, err)
	}
}

func TestFiles_ReplaceSecrets(t *testing.T) {
	ca := newAuthority(t)
	p, _ := pair(t)
	cert, key := ca.issue(t, "one")
	feed(t, p.Secrets, "argocd-agent-principal-tls", map[string][]byte{"tls.crt": cert, "tls.key": key})
	feed(t, p.Secrets, "argocd-agent-ca", map[string][]byte{"ca.crt": ca.pem})
	_, a := pair(t, "--tls-client-cert", write(t, "c", cert), "--tls-client-key", write(t, "k", key), "--root-ca-path", write(t, "a", ca.pem))
	if len(a.Secrets) != 0 {
		t.Errorf("Secrets %v", a.Secrets)
	}
	if name, err := handshake(t, p, a); err != nil || name != "one" {
		t.Errorf("%s, %v", name, err)
	}
}
