package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
)

// MaxRequest is the maximum size of a certificate request.
const MaxRequest = 16 << 10

// NewRequest returns a certificate request for an agent. If key (PEM) is empty, it generates one.
func NewRequest(agent string, key []byte) (request, keyPEM []byte, err error) {
	if len(key) == 0 {
		signer, err := newKey()
		if err != nil {
			return nil, nil, err
		}
		if key, err = encodeKey(signer); err != nil {
			return nil, nil, err
		}
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, nil, errors.New("the key is not in PEM form")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("parse key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: agent}}, parsed)
	if err != nil {
		return nil, nil, fmt.Errorf("create certificate request for %s: %w", agent, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), key, nil
}

// ReadRequest parses a request. It fails unless the request is for exactly this agent and has an accepted key.
func ReadRequest(request []byte, agent string) (*x509.CertificateRequest, error) {
	r, err := readRequest(request, agent)
	if err != nil {
		return nil, &RequestError{err}
	}
	return r, nil
}

// RequestError says why a certificate request is rejected.
type RequestError struct{ err error }

func (e *RequestError) Error() string { return "invalid certificate request: " + e.err.Error() }

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.err }

func readRequest(request []byte, agent string) (*x509.CertificateRequest, error) {
	if len(request) > MaxRequest {
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed", len(request), MaxRequest)
	}
	block, _ := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("it is not a certificate request in PEM form")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("check signature: %w", err)
	}
	if err := checkKey(r.PublicKey); err != nil {
		return nil, err
	}
	return r, checkNames(r, agent)
}

func checkKey(public any) error {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521() {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= 2048 && bits <= 8192 {
			return nil
		}
		return fmt.Errorf("an RSA key of %d bits: 2048 to 8192 are accepted", key.N.BitLen())
	}
	return errors.New("key type is not accepted: use ECDSA (P-256, P-384, P-521), Ed25519 or RSA")
}

// basicConstraints is the extension that marks a CA certificate.
var basicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}

// checkNames rejects a request that has other names than the agent's.
func checkNames(r *x509.CertificateRequest, agent string) error {
	if r.Subject.CommonName != agent {
		return fmt.Errorf("it is for %.80q, but this agent is %q: make it with that common name", r.Subject.CommonName, agent)
	}
	if len(r.Subject.Names) != 1 {
		return fmt.Errorf("its subject %.200q has more than the common name: leave the rest out", r.Subject)
	}
	for _, name := range r.DNSNames {
		if name != agent {
			return fmt.Errorf("it is also for the host %.80q: leave that out", name)
		}
	}
	if n := len(r.IPAddresses) + len(r.URIs) + len(r.EmailAddresses); n > 0 {
		return errors.New("it has addresses or URIs: leave them out")
	}
	for _, extension := range r.Extensions {
		if extension.Id.Equal(basicConstraints) {
			return errors.New("it has basic constraints: leave them out, an agent is not a CA")
		}
	}
	return nil
}
