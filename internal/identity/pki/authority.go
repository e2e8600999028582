package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Lifetimes of issued certificates.
const (
	CALifetime     = 10 * 365 * 24 * time.Hour
	ServerLifetime = 90 * 24 * time.Hour
	// ClientLifetime is for agents. They renew after two thirds of it, so ten days without the hub do no harm.
	ClientLifetime = 30 * 24 * time.Hour

	// Backdate is how far the clock of a peer may be behind.
	Backdate = time.Hour
)

// Authority is a CA.
type Authority struct {
	Cert *x509.Certificate
	// Bundle has the trusted CAs: Cert and, during a rotation, the previous CA.
	Bundle []*x509.Certificate

	issuers []*x509.Certificate // chain from Cert, which is the first, towards the root
	cross   *x509.Certificate   // Cert, signed by the previous CA; may be nil
	signer  crypto.Signer       // nil if the key is not on this cluster
}

// NewAuthority returns a new self-signed CA.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate CA key: %w", err)
	}
	pin, err := pinOf(key.Public())
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		// The unit distinguishes two CAs for users.
		Subject:               pkix.Name{CommonName: "argocd-agent-ca", OrganizationalUnit: []string{pin.String()[:8]}},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(CALifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: false,
	}
	cert, err := sign(t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Authority{Cert: cert, Bundle: []*x509.Certificate{cert}, issuers: []*x509.Certificate{cert}, signer: key}, nil
}

// ErrNoKey means that this cluster does not have the CA's key.
var ErrNoKey = errors.New("the CA key is not on this cluster: issue certificates where it is, or add it to Secret " + AuthoritySecret + " as " + KeyKey)

// ReadAuthority parses the data of Secret argocd-agent-ca.
func ReadAuthority(data map[string][]byte) (*Authority, error) {
	var a Authority
	var err error
	if len(data[CertKey]) > 0 {
		if a.issuers, err = Certificates(data[CertKey]); err != nil {
			return nil, fmt.Errorf("%s: %w", CertKey, err)
		}
		a.Cert, a.Bundle = a.issuers[0], a.issuers
	}
	if len(data[BundleKey]) > 0 {
		if a.Bundle, err = Certificates(data[BundleKey]); err != nil {
			return nil, fmt.Errorf("%s: %w", BundleKey, err)
		}
	}
	switch {
	case len(a.Bundle) == 0:
		return nil, fmt.Errorf("neither %s nor %s is set", CertKey, BundleKey)
	case a.Cert == nil:
		a.Cert, a.issuers = a.Bundle[0], a.Bundle[:1]
	case !a.Cert.IsCA:
		return nil, fmt.Errorf("the certificate of %q is not a CA certificate", a.Cert.Subject)
	}
	if len(data[KeyKey]) > 0 {
		pair, err := tls.X509KeyPair(data[CertKey], data[KeyKey])
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", CertKey, KeyKey, err)
		}
		a.signer, _ = pair.PrivateKey.(crypto.Signer)
	}
	if len(data[crossKey]) > 0 {
		cross, err := Certificates(data[crossKey])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", crossKey, err)
		}
		a.cross = cross[0]
	}
	return &a, nil
}

// CanIssue reports whether the CA key is available.
func (a *Authority) CanIssue() bool { return a.signer != nil }

// Rotating reports whether the CA replaces another and the rotation is not finished.
func (a *Authority) Rotating() bool { return a.cross != nil }

// BundlePEM returns the trusted CAs.
func (a *Authority) BundlePEM() []byte { return encodeCerts(a.Bundle...) }

// Pin returns the pin of the CA.
func (a *Authority) Pin() Pin { return PinOf(a.Cert) }

// HasIssued reports whether this CA, and not the previous one, signed a certificate.
func (a *Authority) HasIssued(cert *x509.Certificate) bool {
	return bytes.Equal(cert.RawIssuer, a.Cert.RawSubject) && cert.CheckSignatureFrom(a.Cert) == nil
}

// EntryOf returns the entry of a client certificate that an agent presented. Issued is set only if this CA signed the
// certificate or, during a rotation, the previous one did.
func (a *Authority) EntryOf(cert *x509.Certificate) RecordEntry {
	e := entryOf(cert)
	own := a.HasIssued(cert) || slices.ContainsFunc(a.Bundle, func(ca *x509.Certificate) bool {
		return a.Rotating() && a.cross.CheckSignatureFrom(ca) == nil && cert.CheckSignatureFrom(ca) == nil
	})
	if !own {
		e.Issued = time.Time{}
	}
	return e
}

// data returns the content of Secret argocd-agent-ca.
func (a *Authority) data() (map[string][]byte, error) {
	key, err := encodeKey(a.signer)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{CertKey: encodeCerts(a.issuers...), KeyKey: key, BundleKey: a.BundlePEM()}
	if a.cross != nil {
		data[crossKey] = encodeCerts(a.cross)
	}
	return data, nil
}

// replace returns a new CA. A peer that trusts only the old CA trusts certificates of the new one through a cross
// certificate. A peer that trusts the new bundle trusts certificates of both.
func (a *Authority) replace(now time.Time) (*Authority, error) {
	if a.signer == nil {
		return nil, ErrNoKey
	}
	if a.Cert.MaxPathLenZero {
		return nil, errors.New("the CA has path length 0 and cannot sign another CA: " +
			"add both CAs to " + BundleKey + " on the hub and on every cluster, then replace it manually")
	}
	next, err := NewAuthority(now)
	if err != nil {
		return nil, err
	}
	template := *next.Cert
	template.SignatureAlgorithm = x509.UnknownSignatureAlgorithm // the old key's
	template.NotAfter = earliest(template.NotAfter, a.Cert.NotAfter)
	template.AuthorityKeyId = nil
	if next.cross, err = sign(&template, a.Cert, next.Cert.PublicKey, a.signer); err != nil {
		return nil, err
	}
	next.Bundle = append(next.Bundle, a.Bundle...)
	return next, nil
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generate serial number: %w", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate for %q: %w", template.Subject, err)
	}
	return x509.ParseCertificate(der)
}

// Certificates parses the certificates of a PEM bundle. It fails if one is invalid.
func Certificates(bundle []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(all)+1, err)
		}
		all = append(all, cert)
	}
	if len(all) == 0 {
		return nil, errors.New("no certificate in PEM form")
	}
	return all, nil
}

func encodeCerts(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, cert := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return out
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	if key == nil {
		return nil, ErrNoKey
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
