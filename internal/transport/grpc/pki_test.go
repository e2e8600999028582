package grpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"
)

// ca is a certificate authority of a test.
type ca struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t testing.TB, name string) *ca {
	t.Helper()
	c := &ca{t: t}
	c.cert, c.key = c.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return c
}

// issue makes a certificate for a name that is valid from now on for a while.
func (c *ca) issue(name string, valid time.Duration) tls.Certificate {
	c.t.Helper()
	cert, key := c.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotAfter:    time.Now().Add(valid),
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (c *ca) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(c.t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	must(c.t, err)
	template.NotBefore = time.Now().Add(-48 * time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(48 * time.Hour)
	}
	parent, signer := c.cert, c.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	must(c.t, err)
	cert, err := x509.ParseCertificate(der)
	must(c.t, err)
	return cert, key
}

func (c *ca) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

// serverTLS demands certificates of this CA.
func (c *ca) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c.issue("principal", time.Hour)},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.pool(), SessionTicketsDisabled: true,
	}
}

// clientTLS is the configuration of an agent with a certificate of this CA.
func (c *ca) clientTLS(name string) func() (*tls.Config, error) {
	return c.clientWith(c.issue(name, 40*time.Hour))
}

func (c *ca) clientWith(cert tls.Certificate) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.pool(),
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }}, nil
	}
}

func fingerprint(cert tls.Certificate) string {
	return fmt.Sprintf("%X", sha256.Sum256(cert.Certificate[0]))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
