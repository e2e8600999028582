package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// Material is the certificate and the trusted CAs of one side. It is immutable. A Source replaces it as a whole.
type Material struct {
	Certificate tls.Certificate     // with Leaf
	CAs         []*x509.Certificate // several during a CA rotation. If empty, the system's.

	pool *x509.CertPool
}

// Source returns the current material.
type Source interface {
	Material() (*Material, error)
}

// NotAfter returns when the certificate expires.
func (m *Material) NotAfter() time.Time { return m.Certificate.Leaf.NotAfter }

// parse parses and validates PEM.
func parse(certPEM, keyPEM, caPEM []byte, now time.Time) (*Material, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("parse certificate and key: %w", err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}
	}
	if now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("the certificate of %q expired on %s: renew it", pair.Leaf.Subject, formatTime(pair.Leaf.NotAfter))
	}
	m := &Material{Certificate: pair}
	if len(caPEM) > 0 {
		if m.CAs, err = parseCAs(caPEM, now); err != nil {
			return nil, err
		}
		m.pool = x509.NewCertPool()
		for _, ca := range m.CAs {
			m.pool.AddCert(ca)
		}
	}
	return m, nil
}

// parseCAs parses a bundle. One invalid certificate makes the bundle invalid. Expired ones are allowed if another is not
// expired.
func parseCAs(bundle []byte, now time.Time) ([]*x509.Certificate, error) {
	cas, err := pki.Certificates(bundle)
	if err != nil {
		return nil, fmt.Errorf("parse CA bundle: %w", err)
	}
	if !slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return !now.After(ca.NotAfter) }) {
		return nil, fmt.Errorf("the CA certificate of %q expired on %s: replace it", cas[0].Subject, formatTime(cas[0].NotAfter))
	}
	return cas, nil
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
