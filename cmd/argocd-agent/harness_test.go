package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/principal"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// started is the result of a command whose components only record their configuration.
type started struct {
	code      int
	stdout    string
	stderr    string
	principal *principal.Config
	agent     *agent.Config
}

// start runs the command as a shell does.
func start(t *testing.T, env []string, args ...string) started {
	t.Helper()
	var s started
	var stdout, stderr bytes.Buffer
	p := &program{env: env, stdout: &stdout, stderr: &stderr, start: components{
		principal: func(_ context.Context, cfg principal.Config) error { s.principal = &cfg; return nil },
		agent:     func(_ context.Context, cfg agent.Config) error { s.agent = &cfg; return nil },
	}}
	s.code = cmdline.Report(&stderr, programName, p.run(t.Context(), args))
	s.stdout, s.stderr = stdout.String(), stderr.String()
	return s
}

// kubeconfig writes a kubeconfig with two contexts and returns its path. There are no API servers at its addresses.
func kubeconfig(t *testing.T) string {
	t.Helper()
	return write(t, "kubeconfig", []byte(`apiVersion: v1
kind: Config
current-context: first
clusters:
- name: here
  cluster: {server: "https://127.0.0.1:1"}
- name: there
  cluster: {server: "https://127.0.0.2:1"}
contexts:
- name: first
  context: {cluster: here}
- name: second
  context: {cluster: there, namespace: elsewhere}
`))
}

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// authority issues certificates as PEM.
type authority struct {
	pem  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.pem, _, a.cert, a.key = a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) issue(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	cert, key, _, _ = a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}})
	return cert, key
}

func (a *authority) sign(t *testing.T, template *x509.Certificate) (certPEM, keyPEM []byte, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), cert, key
}

// freePort returns an unused port, a different one in each call.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		_ = l.Close()
		if !handedOut[port] {
			handedOut[port] = true
			return port
		}
	}
}

var handedOut = map[string]bool{}
