// Package pki creates the certificates of one lab: one CA per cluster, and the certificates that it signs.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime is longer than any soak test.
const lifetime = 365 * 24 * time.Hour

// Authority signs certificates and stores them as files in one directory.
type Authority struct {
	folder string
	cert   *x509.Certificate
	key    crypto.Signer
}

// Pair is a certificate and its key, as PEM files.
type Pair struct{ Cert, Key string }

// NewAuthority creates an authority. Its certificate is ca.crt in directory.
func NewAuthority(folder, name string) (*Authority, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("create the certificate directory: %w", err)
	}
	key, err := NewKey(filepath.Join(folder, "ca.key"))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := sign(template, nil, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the authority %s: %w", name, err)
	}
	authority := &Authority{folder: folder, cert: cert, key: key}
	return authority, writePEM(authority.CertFile(), "CERTIFICATE", der)
}

// LoadAuthority returns an existing authority. Issued certificates are written to directory.
func LoadAuthority(certFile, keyFile, folder string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load the authority %s: %w", certFile, err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("load the authority %s: its key cannot sign", certFile)
	}
	return &Authority{folder: folder, cert: pair.Leaf, key: key}, nil
}

// CertFile returns the PEM file that clients trust.
func (a *Authority) CertFile() string { return filepath.Join(a.folder, "ca.crt") }

// KeyFile returns the PEM file of the authority's key.
func (a *Authority) KeyFile() string { return filepath.Join(a.folder, "ca.key") }

// Client issues a client certificate. Kubernetes uses the common name as user and the organizations as groups.
func (a *Authority) Client(name string, groups ...string) (Pair, error) {
	return a.issue(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// ProxyClient issues a client certificate for the resource proxy, which accepts none of an agent itself.
func (a *Authority) ProxyClient(agent string) (Pair, error) {
	return a.issue(agent, &x509.Certificate{
		Subject:     pkix.Name{CommonName: agent, OrganizationalUnit: []string{"resource-proxy-client"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Server issues a serving certificate for loopback addresses and DNS names.
func (a *Authority) Server(name string, dnsNames ...string) (Pair, error) {
	return a.issue(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    append([]string{"localhost"}, dnsNames...),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *Authority) issue(name string, template *x509.Certificate) (Pair, error) {
	base := filepath.Join(a.folder, fileName(name))
	pair := Pair{Cert: base + ".crt", Key: base + ".key"}
	key, err := NewKey(pair.Key)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	der, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue the certificate %s: %w", name, err)
	}
	return pair, writePEM(pair.Cert, "CERTIFICATE", der)
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(lifetime)
	if parent == nil {
		parent = template
	}
	return x509.CreateCertificate(rand.Reader, template, parent, public, signer)
}

// NewKey creates a private key in file and its public key in file + ".pub".
func NewKey(file string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create the key %s: %w", file, err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key %s: %w", file, err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode the public key %s: %w", file, err)
	}
	if err := writePEM(file+".pub", "PUBLIC KEY", public); err != nil {
		return nil, err
	}
	return key, writePEM(file, "EC PRIVATE KEY", private)
}

func writePEM(file, kind string, der []byte) error {
	content := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// fileName returns a file name for a name such as system:kube-scheduler.
func fileName(name string) string {
	clean := []rune(name)
	for i, r := range clean {
		if r == ':' || r == '/' {
			clean[i] = '-'
		}
	}
	return string(clean)
}
