package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs the certificates of a test for principal and agents.
type authority struct {
	folder string
	file   string // its own certificate
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

// pair is a certificate and its key, as files.
type pair struct{ cert, key string }

func newAuthority(t testing.TB, folder, name string) *authority {
	t.Helper()
	a := &authority{folder: folder, serial: 1}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.file = filepath.Join(folder, name+".crt")
	a.cert = a.sign(t, template, template, a.key, a.file)
	return a
}

// issue returns a certificate for a name, for both ends of a connection, with an expiry.
func (a *authority) issue(t testing.TB, name string, until time.Time) pair {
	t.Helper()
	return a.issueFor(t, pkix.Name{CommonName: name}, until)
}

func (a *authority) issueFor(t testing.TB, subject pkix.Name, until time.Time) pair {
	t.Helper()
	a.serial++
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: subject,
		NotBefore: earlier(time.Now(), until).Add(-time.Hour), NotAfter: until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	p := pair{cert: filepath.Join(a.folder, subject.CommonName+".crt"), key: filepath.Join(a.folder, subject.CommonName+".key")}
	a.sign(t, template, a.cert, key, p.cert)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, p.key, "EC PRIVATE KEY", der)
	return p
}

// forADay returns a certificate that is valid for one day.
func (a *authority) forADay(t testing.TB, name string) pair {
	t.Helper()
	return a.issue(t, name, time.Now().Add(24*time.Hour))
}

// forProxy returns a certificate for the resource proxy that is valid for the cluster of an agent.
func (a *authority) forProxy(t testing.TB, agent string) pair {
	t.Helper()
	return a.issueFor(t, pkix.Name{CommonName: agent, OrganizationalUnit: []string{"resource-proxy-client"}}, time.Now().Add(24*time.Hour))
}

func (a *authority) sign(t testing.TB, template, parent *x509.Certificate, key *ecdsa.PrivateKey, file string) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		t.Fatalf("sign a certificate: %v", err)
	}
	writePEM(t, file, "CERTIFICATE", der)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// client returns the TLS configuration of a client with the pair. If nil, without a certificate.
func (a *authority) client(t testing.TB, p *pair) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	config := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
	if p == nil {
		return config
	}
	cert, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{cert}
	return config
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
