package identity

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Material is what one side of a connection needs: who it is, and whom it
// believes. It never changes; a Source replaces it as a whole.
type Material struct {
	Certificate tls.Certificate     // with Leaf
	CAs         []*x509.Certificate // several while a CA is being replaced; none: the system's

	pool *x509.CertPool
}

// Source has the newest material.
type Source interface {
	// Material returns what to use for a handshake now.
	Material() (*Material, error)
}

// NotAfter is when the certificate expires.
func (m *Material) NotAfter() time.Time { return m.Certificate.Leaf.NotAfter }

// CAsNotAfter is when the last of the CAs expires; zero if there are none.
func (m *Material) CAsNotAfter() time.Time {
	var last time.Time
	for _, ca := range m.CAs {
		if ca.NotAfter.After(last) {
			last = ca.NotAfter
		}
	}
	return last
}

// parse reads PEM and makes sure that it can be used.
func parse(certPEM, keyPEM, caPEM []byte, now time.Time) (*Material, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, fmt.Errorf("certificate: %w", err)
		}
	}
	if now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("the certificate of %q expired on %s: renew it", pair.Leaf.Subject, day(pair.Leaf.NotAfter))
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

// parseCAs reads a bundle. One broken certificate makes it broken: it may be
// the one that matters. Expired ones may stay, as long as one is not.
func parseCAs(bundle []byte, now time.Time) ([]*x509.Certificate, error) {
	var cas []*x509.Certificate
	valid := false
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue // a key that somebody has left there is none of our business
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("CA certificate %d of the bundle: %w", len(cas)+1, err)
		}
		cas = append(cas, ca)
		valid = valid || !now.After(ca.NotAfter)
	}
	switch {
	case len(cas) == 0:
		return nil, errors.New("the CA bundle has no certificate in PEM form")
	case !valid:
		return nil, fmt.Errorf("the CA certificate of %q expired on %s: replace it", cas[0].Subject, day(cas[0].NotAfter))
	}
	return cas, nil
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
