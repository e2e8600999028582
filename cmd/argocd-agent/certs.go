package main

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// certificateSettings say where a program finds its certificate, and the
// authorities that it trusts: in Secrets or in files. Both are read again when
// they change.
type certificateSettings struct {
	secret string
	cert   string
	key    string

	caSecret string
	ca       string
}

// certificateFlags are the names of those settings, which differ between the
// programs.
type certificateFlags struct {
	secret, cert, key string
	caSecret, ca      string

	usualSecret string
	peer        string // whom the authorities vouch for
}

var (
	principalCertificates = certificateFlags{"tls-secret-name", "tls-cert", "tls-key", "tls-ca-secret-name", "root-ca-path",
		"argocd-agent-principal-tls", "agents"}
	agentCertificates = certificateFlags{"tls-secret-name", "tls-client-cert", "tls-client-key", "root-ca-secret-name", "root-ca-path",
		"argocd-agent-client-tls", "the principal"}
)

const usualCASecret = "argocd-agent-ca"

func (n certificateFlags) flags() []string {
	return []string{n.secret, n.cert, n.key, n.caSecret, n.ca}
}

func (s *certificateSettings) declare(f *flags, n certificateFlags) {
	f.add(n.secret, text(&s.secret, "SECRET", n.usualSecret), "Secret with the certificate (tls.crt) and key (tls.key) of this program.")
	f.add(n.cert, text(&s.cert, "FILE", ""), "Certificate of this program as a PEM file, instead of the Secret.")
	f.add(n.key, text(&s.key, "FILE", ""), "Key of that certificate as a PEM file.")
	f.add(n.caSecret, text(&s.caSecret, "SECRET", usualCASecret),
		"Secret with the certificates (ca.crt or tls.crt) of the authorities that vouch for "+n.peer+".")
	f.add(n.ca, text(&s.ca, "FILE", ""), "Certificates of those authorities as a PEM file, instead of the Secret.")
}

func (s *certificateSettings) check(f *flags, bad *validationErrors, n certificateFlags, verify bool) {
	switch {
	case s.cert != "" && s.key == "":
		bad.add("%s without --%s: a certificate is of no use without its key; give both", f.name(n.cert), n.key)
	case s.cert == "" && s.key != "":
		bad.add("%s without --%s: a key is of no use without its certificate; give both", f.name(n.key), n.cert)
	case s.cert != "" && s.ca == "" && verify:
		bad.add("%s without --%s: certificates come either from files or from Secrets; give the file of the authorities too", f.name(n.cert), n.ca)
	case s.cert == "" && s.ca != "":
		bad.add("%s without --%s: certificates come either from files or from Secrets; give certificate and key as files too", f.name(n.ca), n.cert)
	case s.cert != "" && f.changed(n.secret):
		bad.add("%s and %s are two places for the same certificate: remove one", f.name(n.cert), f.name(n.secret))
	}
	if s.ca != "" && f.changed(n.caSecret) {
		bad.add("%s and %s are two places for the same authorities: remove one", f.name(n.ca), f.name(n.caSecret))
	}
	s.checkSecret(f, bad, n.secret, s.secret)
	s.checkSecret(f, bad, n.caSecret, s.caSecret)
}

func (s *certificateSettings) checkSecret(f *flags, bad *validationErrors, flag, name string) {
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		bad.add("%s %q cannot be the name of a Secret: %s", f.name(flag), name, strings.Join(wrong, "; "))
	}
}
