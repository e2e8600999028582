package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Pair is a certificate with its chain, and its key.
type Pair struct{ Cert, Key []byte } // PEM

// ProxyClientUnit is the organizational unit of resource proxy client certificates. Their common name is the agent's, so
// the unit keeps them from being accepted as the agent's own.
const ProxyClientUnit = "resource-proxy-client"

// ProxyClientLifetime is the maximum lifetime of a resource proxy client certificate. The revocation of a deleted agent
// is kept as long.
const ProxyClientLifetime = 365 * 24 * time.Hour

// IssuedAt returns when a certificate of this CA was issued.
func IssuedAt(cert *x509.Certificate) time.Time { return cert.NotBefore.Add(Backdate) }

// Server issues a server certificate for these host names and addresses.
func (a *Authority) Server(names []string, life time.Duration, now time.Time) (Pair, error) {
	if len(names) == 0 {
		return Pair{}, errors.New("a server certificate needs a host name or an address")
	}
	t := leaf(names[0], life, now)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(strings.Trim(name, "[]")); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	// The chain includes all CAs: a client with a pin needs the pinned CA, and a client that trusts only the previous CA
	// needs the cross certificate.
	chain := slices.Clone(a.issuers)
	if a.cross != nil {
		chain = append(chain, a.cross)
	}
	for _, ca := range a.Bundle {
		if !slices.ContainsFunc(chain, ca.Equal) {
			chain = append(chain, ca)
		}
	}
	return a.issue(t, chain)
}

// Client issues a certificate for an agent.
func (a *Authority) Client(agent string, life time.Duration, now time.Time) (Pair, error) {
	return a.issue(client(agent, life, now), a.intermediates())
}

// ProxyClient issues a resource proxy client certificate for Argo CD.
func (a *Authority) ProxyClient(agent string, life time.Duration, now time.Time) (Pair, error) {
	return a.issue(proxyClient(agent, life, now), a.intermediates())
}

func proxyClient(agent string, life time.Duration, now time.Time) *x509.Certificate {
	t := client(agent, min(life, ProxyClientLifetime), now)
	t.Subject.OrganizationalUnit = []string{ProxyClientUnit}
	return t
}

// Sign checks and signs an agent's request. Only the key of the request is used.
func (a *Authority) Sign(request []byte, agent string, life time.Duration, now time.Time) (chain []byte, err error) {
	r, err := ReadRequest(request, agent)
	if err != nil {
		return nil, err
	}
	cert, err := a.sign(client(agent, life, now), r.PublicKey)
	if err != nil {
		return nil, err
	}
	return encodeCerts(append([]*x509.Certificate{cert}, a.intermediates()...)...), nil
}

func (a *Authority) issue(t *x509.Certificate, chain []*x509.Certificate) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	cert, err := a.sign(t, key.Public())
	if err != nil {
		return Pair{}, err
	}
	text, err := encodeKey(key)
	return Pair{Cert: encodeCerts(append([]*x509.Certificate{cert}, chain...)...), Key: text}, err
}

func (a *Authority) sign(t *x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error) {
	if a.signer == nil {
		return nil, ErrNoKey
	}
	now := t.NotBefore.Add(Backdate)
	if now.After(a.Cert.NotAfter) {
		return nil, fmt.Errorf("the CA of %q expired on %s: replace it with `argocd-agentctl pki rotate`", a.Cert.Subject, formatTime(a.Cert.NotAfter))
	}
	t.NotAfter = earliest(t.NotAfter, a.Cert.NotAfter)
	return sign(t, a.Cert, public, a.signer)
}

// intermediates returns the chain that a peer needs that trusts only the root.
func (a *Authority) intermediates() []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(a.issuers), selfSigned)
}

func selfSigned(c *x509.Certificate) bool { return bytes.Equal(c.RawIssuer, c.RawSubject) }

func client(agent string, life time.Duration, now time.Time) *x509.Certificate {
	t := leaf(agent, life, now)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return t
}

func leaf(name string, life time.Duration, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-Backdate), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return key, nil
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
