package main

import (
	"crypto/tls"
	"strings"
)

// tlsSettings say how connections are encrypted. Where certificates come from
// differs between principal and agent.
type tlsSettings struct {
	least  tlsVersion
	most   tlsVersion
	suites []string
}

type tlsVersion string

const (
	tls12 tlsVersion = "tls1.2"
	tls13 tlsVersion = "tls1.3"
)

var tlsVersions = map[tlsVersion]uint16{tls12: tls.VersionTLS12, tls13: tls.VersionTLS13}

// tlsFlags are those of tlsSettings.
var tlsFlags = []string{"tls-min-version", "tls-max-version", "tls-ciphersuites"}

func (s *tlsSettings) declare(f *flags) {
	f.add("tls-min-version", choice(&s.least, tls13, tls12, tls13), "The oldest version of TLS that is spoken.")
	f.add("tls-max-version", choice(&s.most, tls13, tls12, tls13), "The newest version of TLS that is spoken.")
	f.add("tls-ciphersuites", list(&s.suites, "NAMES"),
		"Cipher suites of TLS 1.2, separated by commas.")
	f.defaultText("tls-ciphersuites", "those that Go considers secure; TLS 1.3 has no choice")
}

func (s *tlsSettings) check(f *flags, bad *validationErrors) {
	if tlsVersions[s.least] > tlsVersions[s.most] {
		bad.add("%s (%s) is above %s (%s): lower the minimum or raise the maximum",
			f.name("tls-min-version"), s.least, f.name("tls-max-version"), s.most)
	}
	if len(s.suites) == 0 {
		return
	}
	if s.least == tls13 {
		bad.add("%s has no effect on TLS 1.3, which has no choice of suites: remove it, or set --tls-min-version to %s",
			f.name("tls-ciphersuites"), tls12)
	}
	if _, unknown := cipherSuites(s.suites); len(unknown) > 0 {
		bad.add("%s: %s: not a secure cipher suite of TLS 1.2; choose from %s",
			f.name("tls-ciphersuites"), strings.Join(unknown, ", "), strings.Join(secureSuites(), ", "))
	}
}

// apply puts the settings into a tls.Config.
func (s *tlsSettings) apply(cfg *tls.Config) {
	cfg.MinVersion = tlsVersions[s.least]
	cfg.MaxVersion = tlsVersions[s.most]
	if len(s.suites) > 0 {
		cfg.CipherSuites, _ = cipherSuites(s.suites)
	}
}

// cipherSuites finds suites by their names.
func cipherSuites(names []string) (ids []uint16, unknown []string) {
	known := map[string]uint16{}
	for _, suite := range suitesOfTLS12() {
		known[suite.Name] = suite.ID
	}
	for _, name := range names {
		id, ok := known[strings.ToUpper(name)]
		if !ok {
			unknown = append(unknown, name)
			continue
		}
		ids = append(ids, id)
	}
	return ids, unknown
}

func secureSuites() []string {
	var names []string
	for _, suite := range suitesOfTLS12() {
		names = append(names, suite.Name)
	}
	return names
}

// suitesOfTLS12 are those that Go considers secure and that HTTP/2, which the
// connection is made of, permits: with an ephemeral key and authenticated
// encryption.
func suitesOfTLS12() []*tls.CipherSuite {
	var suites []*tls.CipherSuite
	for _, suite := range tls.CipherSuites() {
		if strings.HasPrefix(suite.Name, "TLS_ECDHE_") && !strings.Contains(suite.Name, "_CBC_") {
			suites = append(suites, suite)
		}
	}
	return suites
}
