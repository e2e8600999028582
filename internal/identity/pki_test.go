package identity

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
	"net/url"
	"testing"
	"time"
)

// authority is a CA of a test.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// template is a certificate that is valid for both ends.
func template(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{"principal.example"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	must(a.t, err)
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-48 * time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(48 * time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	must(a.t, err)
	cert, err := x509.ParseCertificate(der)
	must(a.t, err)
	return cert, key
}

// pems are a certificate, its key and a CA bundle.
type pems struct{ cert, key, ca []byte }

func (a *authority) issue(template *x509.Certificate, others ...*authority) pems {
	a.t.Helper()
	cert, key := a.sign(template)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(a.t, err)
	p := pems{cert: encodeCert(cert), key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), ca: encodeCert(a.cert)}
	for _, other := range others {
		p.ca = append(p.ca, encodeCert(other.cert)...)
	}
	return p
}

func encodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func (p pems) leaf(t testing.TB) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(p.cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return cert
}

// store is a Store with these.
func (p pems) store(t testing.TB) *Store {
	t.Helper()
	s := NewStore("test")
	must(t, s.Update(p.cert, p.key, p.ca))
	return s
}

func withURIs(t testing.TB, uris ...string) *x509.Certificate {
	t.Helper()
	c := template("any")
	for _, text := range uris {
		u, err := url.Parse(text)
		must(t, err)
		c.URIs = append(c.URIs, u)
	}
	return c
}

// shake makes two ends shake hands over TCP and returns what either thinks of
// it, and what the server knows of the client.
func shake(t testing.TB, server, client *tls.Config) (state tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := l.Accept()
		if err != nil {
			serverErr = err
			return
		}
		defer raw.Close()
		conn := tls.Server(raw, server)
		if serverErr = conn.Handshake(); serverErr == nil {
			state = conn.ConnectionState()
			_, serverErr = conn.Write([]byte("x"))
		}
		if serverErr != nil { // let the client read the alert before the connection is reset
			_ = raw.(*net.TCPConn).CloseWrite()
			_, _ = raw.Read(make([]byte, 1<<10))
		}
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	conn := tls.Client(raw, client)
	if clientErr = conn.Handshake(); clientErr == nil {
		_, clientErr = conn.Read(make([]byte, 1))
	}
	_ = conn.Close()
	<-done
	return state, serverErr, clientErr
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
