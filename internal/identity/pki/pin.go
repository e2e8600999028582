package pki

import (
	"crypto"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Pin identifies an authority by its public key: SHA-256 of it, in the form that
// certificates have it (subjectPublicKeyInfo).
type Pin [sha256.Size]byte

// PinOf returns the pin of an authority.
func PinOf(cert *x509.Certificate) Pin { return sha256.Sum256(cert.RawSubjectPublicKeyInfo) }

func pinOf(public crypto.PublicKey) (Pin, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return Pin{}, fmt.Errorf("encode a public key: %w", err)
	}
	return sha256.Sum256(der), nil
}

// String is what people copy: 43 characters that no shell touches.
func (p Pin) String() string { return base64.RawURLEncoding.EncodeToString(p[:]) }

// ParsePin reads a pin, in our form or in hexadecimal digits.
func ParsePin(text string) (Pin, error) {
	var p Pin
	text = strings.TrimPrefix(text, "sha256:")
	b, err := base64.RawURLEncoding.DecodeString(text)
	if len(text) == hex.EncodedLen(len(p)) {
		b, err = hex.DecodeString(text)
	}
	if err != nil || len(b) != len(p) {
		return p, fmt.Errorf("%.80q is no pin of a CA: 43 characters of base64 or 64 hexadecimal digits are needed", text)
	}
	return Pin(b), nil
}

// JoinProtocol is what a client says, beside h2, that has no certificate yet. It
// is let in for joining alone.
const JoinProtocol = "argocd-agent-join"

// ClientTLS is the configuration of a client that knows no more of the hub than
// its address and the pin of its CA.
func (p Pin) ClientTLS(host string, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: host,
		NextProtos: []string{"h2", JoinProtocol},
		// VerifyConnection does it: by the pin instead of by CAs.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection:   func(state tls.ConnectionState) error { return p.verify(state.PeerCertificates, host, now()) },
	}
}

// verify finds the pinned authority among what the server has presented, and
// verifies the server by it.
func (p Pin) verify(chain []*x509.Certificate, host string, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("the hub has presented no certificate")
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

// PinError says that whoever answers is not the hub that the pin is of.
type PinError struct {
	Want      Pin
	Presented *x509.Certificate
}

func (e *PinError) Error() string {
	return fmt.Sprintf("the CA that is pinned (%s) did not sign what the hub's address presents, a certificate of %q issued by %q: "+
		"is the address the principal's own port; is there a TLS-terminating proxy or load balancer between (it must pass TLS through); "+
		"or was the hub's CA replaced since the token was made (make a new one)?",
		e.Want, clip(e.Presented.Subject.String()), clip(e.Presented.Issuer.String()))
}

// clip keeps what a stranger has sent to a readable length.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
