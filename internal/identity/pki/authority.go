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
	"time"
)

// Lives of certificates that we make.
const (
	AuthorityLife = 10 * 365 * 24 * time.Hour
	ServerLife    = 90 * 24 * time.Hour
	// ClientLife is an agent's. It is renewed after two thirds, so that ten days
	// without the hub cost nothing.
	ClientLife = 30 * 24 * time.Hour

	// Backdate is how far behind ours the clock of whoever reads a certificate may
	// be.
	Backdate = time.Hour
)

// Authority is a CA.
type Authority struct {
	Cert *x509.Certificate
	// Bundle is what to believe: Cert and, while it replaces another, that one too.
	Bundle []*x509.Certificate

	issuers []*x509.Certificate // between Cert, which is the first, and a root
	cross   *x509.Certificate   // Cert, as signed by the authority that it replaces; may be nil
	signer  crypto.Signer       // nil: the key is elsewhere
}

// NewAuthority makes a CA with a key of its own.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for the CA: %w", err)
	}
	pin, err := pinOf(key.Public())
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		// People have to tell two of them apart.
		Subject:               pkix.Name{CommonName: "argocd-agent-ca", OrganizationalUnit: []string{pin.String()[:8]}},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(AuthorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: false,
	}
	cert, err := sign(t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Authority{Cert: cert, Bundle: []*x509.Certificate{cert}, issuers: []*x509.Certificate{cert}, signer: key}, nil
}

// ErrNoKey says that this cluster does not hold the CA's key.
var ErrNoKey = errors.New("the CA's key is not here: issue certificates where it is, or put it into Secret " + AuthoritySecret + " as " + KeyKey)

// ReadAuthority reads the data of Secret argocd-agent-ca, of whoever's making.
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
		return nil, fmt.Errorf("it has neither %s nor %s", CertKey, BundleKey)
	case a.Cert == nil:
		a.Cert, a.issuers = a.Bundle[0], a.Bundle[:1]
	case !a.Cert.IsCA:
		return nil, fmt.Errorf("the certificate of %q is not a CA's", a.Cert.Subject)
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

// Issues reports whether the authority can sign.
func (a *Authority) Issues() bool { return a.signer != nil }

// Replaces reports whether the authority is taking another's place.
func (a *Authority) Replaces() bool { return a.cross != nil }

// BundlePEM is what agents shall believe.
func (a *Authority) BundlePEM() []byte { return encodeCerts(a.Bundle...) }

// Pin identifies the authority.
func (a *Authority) Pin() Pin { return PinOf(a.Cert) }

// Issued reports whether a certificate is this authority's work, rather than that
// of one that it replaces.
func (a *Authority) Issued(cert *x509.Certificate) bool {
	return bytes.Equal(cert.RawIssuer, a.Cert.RawSubject) && cert.CheckSignatureFrom(a.Cert) == nil
}

// data is the authority as Secret argocd-agent-ca holds it.
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

// replace makes an authority that takes this one's place. Who believes only this
// one believes what the new one issues, by way of a cross certificate; and who
// believes the bundle of the new one believes what this one has issued.
func (a *Authority) replace(now time.Time) (*Authority, error) {
	if a.signer == nil {
		return nil, ErrNoKey
	}
	if a.Cert.MaxPathLenZero {
		return nil, errors.New("the CA may not have another CA below it (path length 0), so nothing leads from it to a new one: " +
			"put both into " + BundleKey + " on the hub and on every cluster, then replace it by hand")
	}
	next, err := NewAuthority(now)
	if err != nil {
		return nil, err
	}
	template := *next.Cert
	template.SignatureAlgorithm = x509.UnknownSignatureAlgorithm // the old key's
	template.NotAfter = earlier(template.NotAfter, a.Cert.NotAfter)
	template.AuthorityKeyId = nil
	if next.cross, err = sign(&template, a.Cert, next.Cert.PublicKey, a.signer); err != nil {
		return nil, err
	}
	next.Bundle = append(next.Bundle, a.Bundle...)
	return next, nil
}

// sign makes a certificate.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %q: %w", template.Subject, err)
	}
	return x509.ParseCertificate(der)
}

// Certificates reads a bundle of PEM. One that is broken makes it broken.
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
		return nil, errors.New("there is no certificate in PEM form")
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
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
