package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// tlsSettings restrict TLS versions and cipher suites.
type tlsSettings struct {
	minVersion tlsVersion
	maxVersion tlsVersion
	suites     []string
}

type tlsVersion string

const (
	tls12 tlsVersion = "tls1.2"
	tls13 tlsVersion = "tls1.3"
)

var tlsVersions = map[tlsVersion]uint16{tls12: tls.VersionTLS12, tls13: tls.VersionTLS13}

// tlsFlags are the flags of tlsSettings.
var tlsFlags = []string{"tls-min-version", "tls-max-version", "tls-ciphersuites"}

func (s *tlsSettings) declare(f *flags) {
	f.add("tls-min-version", cmdline.Choice(&s.minVersion, tls13, tls12, tls13), "Minimum TLS version.")
	f.add("tls-max-version", cmdline.Choice(&s.maxVersion, tls13, tls12, tls13), "Maximum TLS version.")
	f.add("tls-ciphersuites", list(&s.suites, "NAMES"), "Comma-separated cipher suites of TLS 1.2.").
		defaultText("the suites that Go considers secure; TLS 1.3 has no choice")
}

func (s *tlsSettings) check(f *flags) {
	if tlsVersions[s.minVersion] > tlsVersions[s.maxVersion] {
		f.fail("%s (%s) is above %s (%s): lower the minimum or raise the maximum",
			f.name("tls-min-version"), s.minVersion, f.name("tls-max-version"), s.maxVersion)
	}
	f.requires(s.minVersion == tls12, "--tls-min-version "+string(tls12), "tls-ciphersuites")
	known := tls12Suites()
	for _, name := range s.suites {
		if known[strings.ToUpper(name)] == 0 {
			f.fail("%s: %s is not a secure cipher suite of TLS 1.2; choose from %s",
				f.name("tls-ciphersuites"), name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
}

// apply copies the settings to a tls.Config.
func (s *tlsSettings) apply(cfg *tls.Config) {
	cfg.MinVersion = tlsVersions[s.minVersion]
	cfg.MaxVersion = tlsVersions[s.maxVersion]
	known := tls12Suites()
	for _, name := range s.suites {
		cfg.CipherSuites = append(cfg.CipherSuites, known[strings.ToUpper(name)])
	}
}

// tls12Suites returns the suites that Go considers secure and HTTP/2 permits: with an ephemeral key and authenticated
// encryption.
func tls12Suites() map[string]uint16 {
	suites := map[string]uint16{}
	for _, suite := range tls.CipherSuites() {
		if strings.HasPrefix(suite.Name, "TLS_ECDHE_") && !strings.Contains(suite.Name, "_CBC_") {
			suites[suite.Name] = suite.ID
		}
	}
	return suites
}

// clientTLS returns the TLS configuration for a server of Argo CD. If ca is empty, it uses the CAs of the system.
func clientTLS(server, address, ca string, insecure bool, client clientCertificate) (*tls.Config, error) {
	host, _, _ := net.SplitHostPort(address)                                                         // a Unix socket has no host
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: insecure} //nolint:gosec // set by the user
	if client.cert != "" {
		if _, err := client.load(nil); err != nil {
			return nil, fmt.Errorf("read the client certificate for %s: %w", server, err)
		}
		cfg.GetClientCertificate = client.load
	}
	if ca == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("read the CA certificates of %s: %w", server, err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the CA certificates of %s: no certificate in %s", server, ca)
	}
	return cfg, nil
}

// clientCertificate locates the client certificate for a server.
type clientCertificate struct{ cert, key string }

func (c clientCertificate) check(f *flags, cert, key string) {
	f.requires(c.key != "", "--"+key, cert)
	f.requires(c.cert != "", "--"+cert, key)
}

// load reads the files, so that a renewed certificate is used for the next connection.
func (c clientCertificate) load(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	return &pair, err
}
