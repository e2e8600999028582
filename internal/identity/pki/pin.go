package pki

import (
	"crypto"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Pin is the SHA-256 of a CA's public key (subjectPublicKeyInfo).
type Pin [sha256.Size]byte

// PinOf returns the pin of a CA.
func PinOf(cert *x509.Certificate) Pin { return sha256.Sum256(cert.RawSubjectPublicKeyInfo) }

func pinOf(public crypto.PublicKey) (Pin, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return Pin{}, fmt.Errorf("encode public key: %w", err)
	}
	return sha256.Sum256(der), nil
}

// String returns the pin as 43 characters that need no quotes in a shell.
func (p Pin) String() string { return base64.RawURLEncoding.EncodeToString(p[:]) }

// ParsePin parses the form of String.
func ParsePin(text string) (Pin, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != len(Pin{}) {
		return Pin{}, fmt.Errorf("invalid CA pin %.80q: it must have 43 characters of base64", text)
	}
	return Pin(b), nil
}

// JoinProtocol is the ALPN protocol that a client without a certificate offers in addition to h2. It can only join.
const JoinProtocol = "argocd-agent-join"

// ClientTLS returns the configuration of a client that knows only the hub's address and the pin of its CA.
func (p Pin) ClientTLS(host string, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		ServerName:         host,
		NextProtos:         []string{"h2", JoinProtocol},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies the server by the pin
		VerifyConnection:   func(state tls.ConnectionState) error { return p.verify(state.PeerCertificates, host, now()) },
	}
}

// verify finds the pinned CA in the server's chain and verifies the server with it.
func (p Pin) verify(chain []*x509.Certificate, host string, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("the hub presented no certificate")
	}
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, cert := range chain[1:] {
		pin := PinOf(cert)
		if cert.IsCA && subtle.ConstantTimeCompare(pin[:], p[:]) == 1 {
			found = true
			roots.AddCert(cert)
		}
		others.AddCert(cert)
	}
	if !found {
		return &PinError{Want: p, Presented: chain[0]}
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, DNSName: host, CurrentTime: now}); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

// PinError means that the server is not the hub of the pin.
type PinError struct {
	Want      Pin
	Presented *x509.Certificate
}

func (e *PinError) Error() string {
	return fmt.Sprintf("the pinned CA (%s) did not sign the certificate at the hub's address (subject %q, issuer %q): "+
		"check that the address is the principal's port, that no proxy or load balancer terminates TLS, "+
		"and that the hub's CA was not replaced since the token was created",
		e.Want, text.Truncate(e.Presented.Subject.String(), 200), text.Truncate(e.Presented.Issuer.String(), 200))
}
