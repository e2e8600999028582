package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"
)

// verify verifies a chain with a bundle.
func verify(t *testing.T, bundle []*x509.Certificate, chain []byte, use x509.ExtKeyUsage, host string, now time.Time) error {
	t.Helper()
	certs, err := Certificates(chain)
	must(t, err)
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	for _, ca := range bundle {
		roots.AddCert(ca)
	}
	for _, cert := range certs[1:] {
		others.AddCert(cert)
	}
	_, err = certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use}})
	return err
}

func TestInit_CreatesTheCAOnce(t *testing.T) {
	b := newBench(t)
	if _, err := b.Authority(t.Context()); !errors.Is(err, ErrNoAuthority) {
		t.Fatalf("error %v", err)
	}
	first, made, err := b.Init(t.Context())
	if err != nil || !made {
		t.Fatal(made, err)
	}
	again, made, err := b.Init(t.Context())
	if err != nil || made || again.Pin() != first.Pin() || !again.CanIssue() {
		t.Errorf("made %v, %v", made, err)
	}
	pair, err := again.Server([]string{"hub.example", "127.0.0.1"}, ServerLifetime, b.clock)
	must(t, err)
	for _, host := range []string{"hub.example", "127.0.0.1"} {
		must(t, verify(t, first.Bundle, pair.Cert, x509.ExtKeyUsageServerAuth, host, b.clock))
	}
	if verify(t, first.Bundle, pair.Cert, x509.ExtKeyUsageClientAuth, "", b.clock) == nil {
		t.Error("a server's certificate is valid for an agent")
	}
	client, err := again.Client("w1", ClientLifetime, b.clock)
	must(t, err)
	must(t, verify(t, first.Bundle, client.Cert, x509.ExtKeyUsageClientAuth, "", b.clock))
	must(t, verify(t, first.Bundle, client.Cert, x509.ExtKeyUsageClientAuth, "", b.clock.Add(-Backdate+time.Minute))) // a clock that is behind
	if verify(t, first.Bundle, client.Cert, x509.ExtKeyUsageServerAuth, "", b.clock) == nil {
		t.Error("an agent's certificate is valid for a server")
	}
}

func TestAuthority_UsesAForeignCA(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	now := time.Now()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "argocd-agent-ca"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	cert, err := sign(template, template, key.Public(), key)
	must(t, err)
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	b := newBench(t)
	err = b.Put(t.Context(), &Secret{Name: AuthoritySecret, Type: typeTLS, Data: map[string][]byte{CertKey: encodeCerts(cert), KeyKey: pkcs1}})
	must(t, err)
	issued, err := b.Client(t.Context(), "w1")
	must(t, err)
	must(t, verify(t, []*x509.Certificate{cert}, issued.Cert, x509.ExtKeyUsageClientAuth, "", now))
	certs, _ := Certificates(issued.Cert)
	if !certs[0].NotAfter.Equal(cert.NotAfter) {
		t.Errorf("the certificate outlives its CA: %s", certs[0].NotAfter)
	}
	s, _ := b.Get(t.Context(), AuthoritySecret)
	if s.Revision != "1" {
		t.Error("a Secret that is not ours was written")
	}
	// A user may rotate it. When its certificates expire is unknown.
	_, err = b.Rotate(t.Context())
	must(t, err)
	if _, err := b.Finish(t.Context(), false); !errors.As(err, new(*TooEarlyError)) {
		t.Errorf("error %v", err)
	}
	b.clock = now.Add(72 * time.Hour)
	foreign := newBench(t)
	err = foreign.Put(t.Context(), &Secret{Name: AuthoritySecret, Annotations: map[string]string{"cert-manager.io/certificate-name": "x"},
		Data: map[string][]byte{CertKey: encodeCerts(cert), KeyKey: pkcs1}})
	must(t, err)
	if _, err := foreign.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "managed by cert-manager") {
		t.Errorf("error %v", err)
	}
	foreign.clock = b.clock
	if _, err := foreign.Client(t.Context(), "w1"); err == nil || !strings.Contains(err.Error(), "expired on") {
		t.Errorf("error %v", err)
	}
}

func TestAuthority_WithoutKeyIssuesNothing(t *testing.T) {
	b := newBench(t)
	a := b.authorityNow()
	err := b.Put(t.Context(), &Secret{Name: "x"})
	must(t, err)
	only := newBench(t)
	err = only.Put(t.Context(), &Secret{Name: AuthoritySecret, Data: map[string][]byte{BundleKey: a.BundlePEM()}})
	must(t, err)
	for title, err := range map[string]error{
		"client": second(only.Client(t.Context(), "w1")),
		"token":  second(only.CreateToken(t.Context(), "hub:1", JoinGrant{Agent: "w1", Mode: "managed"}, time.Hour)),
		"rotate": second(only.Rotate(t.Context())),
	} {
		if !errors.Is(err, ErrNoKey) {
			t.Errorf("%s: error %v", title, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestRotate_EveryPairOfSidesStaysConnected looks at each pair of a side that
// knows of the change and one that does not, at each step.
func TestRotate_EveryPairOfSidesStaysConnected(t *testing.T) {
	b := newBench(t)
	old := b.authorityNow()
	oldServer, err := old.Server([]string{"hub"}, ServerLifetime, b.clock)
	must(t, err)
	oldClient, err := b.Client(t.Context(), "w1")
	must(t, err)
	both, err := b.Rotate(t.Context())
	must(t, err)
	if _, err := b.Rotate(t.Context()); err == nil {
		t.Error("it is replaced twice at once")
	}
	newServer, err := both.Server([]string{"hub"}, ServerLifetime, b.clock)
	must(t, err)
	newClient, err := b.Client(t.Context(), "w1")
	must(t, err)
	for title, err := range map[string]error{
		"agent of before, server of before": verify(t, old.Bundle, oldServer.Cert, x509.ExtKeyUsageServerAuth, "hub", b.clock),
		"agent of before, server of after":  verify(t, old.Bundle, newServer.Cert, x509.ExtKeyUsageServerAuth, "hub", b.clock),
		"agent of after, server of before":  verify(t, both.Bundle, oldServer.Cert, x509.ExtKeyUsageServerAuth, "hub", b.clock),
		"agent of after, server of after":   verify(t, both.Bundle, newServer.Cert, x509.ExtKeyUsageServerAuth, "hub", b.clock),
		"hub, certificate of before":        verify(t, both.Bundle, oldClient.Cert, x509.ExtKeyUsageClientAuth, "", b.clock),
		"hub, certificate of after":         verify(t, both.Bundle, newClient.Cert, x509.ExtKeyUsageClientAuth, "", b.clock),
		"pin of before":                     pinned(t, old.Pin(), newServer.Cert, b.clock),
		"pin of after":                      pinned(t, both.Pin(), newServer.Cert, b.clock),
	} {
		if err != nil {
			t.Errorf("%s: %v", title, err)
		}
	}
	if !both.NeedsRenewal(oldClient.Cert, b.clock) || both.NeedsRenewal(newClient.Cert, b.clock) {
		t.Error("the previous CA is not reported")
	}
	var early *TooEarlyError
	if _, err := b.Finish(t.Context(), false); !errors.As(err, &early) || early.Until.Before(b.clock.Add(ClientLifetime)) {
		t.Fatalf("error %v", err)
	}
	b.clock = early.Until
	done, err := b.Finish(t.Context(), false)
	must(t, err)
	if err := verify(t, done.Bundle, newClient.Cert, x509.ExtKeyUsageClientAuth, "", b.clock.Add(-48*time.Hour)); err != nil || len(done.Bundle) != 1 {
		t.Errorf("%d CAs, %v", len(done.Bundle), err)
	}
	if _, err := b.Finish(t.Context(), true); err == nil {
		t.Error("there is nothing to finish")
	}
}

func pinned(t *testing.T, pin Pin, chain []byte, now time.Time) error {
	t.Helper()
	certs, err := Certificates(chain)
	must(t, err)
	return pin.verify(certs, "hub", now)
}

func TestReadRequest_OnlyForExactlyOneAgent(t *testing.T) {
	b := newBench(t)
	a := b.authorityNow()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	must(t, err)
	uri, _ := url.Parse("spiffe://x/y")
	csr := func(r *x509.CertificateRequest, key any) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
		must(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	w1 := pkix.Name{CommonName: "w1"}
	forged := csr(&x509.CertificateRequest{Subject: w1}, key)
	block, _ := pem.Decode(forged)
	block.Bytes[len(block.Bytes)-1] ^= 1
	forged = pem.EncodeToMemory(block)
	for title, test := range map[string]struct {
		request []byte
		problem string
	}{
		"another name":     {csr(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "w2"}}, key), `it is for "w2", but this agent is "w1"`},
		"no name":          {csr(&x509.CertificateRequest{}, key), `it is for ""`},
		"more of a name":   {csr(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "w1", OrganizationalUnit: []string{"admins"}}}, key), "more than the common name"},
		"two common names": {csr(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "w1", ExtraNames: []pkix.AttributeTypeAndValue{{Type: []int{2, 5, 4, 3}, Value: "w2"}, {Type: []int{2, 5, 4, 3}, Value: "w1"}}}}, key), "more than the common name"},
		"a host":           {csr(&x509.CertificateRequest{Subject: w1, DNSNames: []string{"hub.example"}}, key), `also for the host "hub.example"`},
		"a URI":            {csr(&x509.CertificateRequest{Subject: w1, URIs: []*url.URL{uri}}, key), "addresses or URIs"},
		"a CA":             {csr(&x509.CertificateRequest{Subject: w1, ExtraExtensions: []pkix.Extension{{Id: basicConstraints, Value: []byte{0x30, 3, 1, 1, 0xff}}}}, key), "an agent is not a CA"},
		"a weak key":       {csr(&x509.CertificateRequest{Subject: w1}, weak), "key type is not accepted"},
		"forged":           {forged, "check signature"},
		"not a request":    {[]byte("hello"), "not a certificate request"},
		"too large":        {[]byte(strings.Repeat("x", MaxRequest+1)), "at most"},
	} {
		_, err := b.Sign(t.Context(), test.request, "w1")
		if err == nil || !strings.Contains(err.Error(), test.problem) || !errors.As(err, new(*RequestError)) {
			t.Errorf("%s: error %v instead of one with %q", title, err, test.problem)
		}
	}
	request, keyPEM, err := NewRequest("w1", nil)
	must(t, err)
	issued, err := b.Sign(t.Context(), request, "w1")
	must(t, err)
	must(t, verify(t, a.Bundle, issued.Cert, x509.ExtKeyUsageClientAuth, "", b.clock))
	again, sameKey, err := NewRequest("w1", keyPEM)
	must(t, err)
	first, err := ReadRequest(request, "w1")
	must(t, err)
	next, err := ReadRequest(again, "w1")
	must(t, err)
	if !bytes.Equal(first.RawSubjectPublicKeyInfo, next.RawSubjectPublicKeyInfo) || !bytes.Equal(sameKey, keyPEM) {
		t.Error("a second request has another key")
	}
}

func TestProxyClient_HasItsOwnUnit(t *testing.T) {
	b := newBench(t)
	b.authorityNow()
	issued, err := b.ProxyClient(t.Context(), "w1")
	must(t, err)
	certs, err := Certificates(issued.Cert)
	must(t, err)
	if s := certs[0].Subject; s.CommonName != "w1" || len(s.OrganizationalUnit) != 1 || s.OrganizationalUnit[0] != ProxyClientUnit {
		t.Errorf("subject %s", s)
	}
}

func TestRenewAt_AfterTwoThirdsOfTheLifetime(t *testing.T) {
	b := newBench(t)
	a := b.authorityNow()
	for _, life := range []time.Duration{10 * time.Minute, time.Hour, ClientLifetime} {
		pair, err := a.Client("w1", life, b.clock)
		must(t, err)
		certs, err := Certificates(pair.Cert)
		must(t, err)
		if off := RenewAt(certs[0]).Sub(b.clock) - life/3*2; off.Abs() > 2*time.Second {
			t.Errorf("%s: renewed after %s", life, RenewAt(certs[0]).Sub(b.clock))
		}
	}
}
