package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"time"
)

// Info describes a certificate for users.
type Info struct {
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	Names       []string  `json:"names,omitempty"` // host names, addresses, URIs
	Key         string    `json:"key"`             // such as ECDSA P-256
	Authority   bool      `json:"authority"`
	NotBefore   time.Time `json:"notBefore"`
	NotAfter    time.Time `json:"notAfter"`
	RenewAt     time.Time `json:"-"`
	Fingerprint string    `json:"fingerprint"` // SHA-256 in upper-case hex, as in the blocklist
	Pin         string    `json:"pin,omitempty"`
}

// Describe describes a certificate.
func Describe(cert *x509.Certificate) Info {
	info := Info{
		Subject: cert.Subject.String(), Issuer: cert.Issuer.String(), Key: keyKind(cert.PublicKey), Authority: cert.IsCA,
		NotBefore: cert.NotBefore, NotAfter: cert.NotAfter, RenewAt: RenewAt(cert),
		Fingerprint: fmt.Sprintf("%X", sha256.Sum256(cert.Raw)), Pin: PinOf(cert).String(),
	}
	info.Names = append(info.Names, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		info.Names = append(info.Names, ip.String())
	}
	for _, uri := range cert.URIs {
		info.Names = append(info.Names, uri.String())
	}
	return info
}

func keyKind(public any) string {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		return "ECDSA " + key.Params().Name
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", key.N.BitLen())
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return "unknown"
}
