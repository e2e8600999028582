package main

import (
	"log/slog"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/identity"
)

// certificateSettings locate a certificate and the trusted CAs, in Secrets or in files. Both are read again when they
// change.
type certificateSettings struct {
	secret, cert, key string
	caSecret, ca      string
}

// certificateFlags are the names and defaults of certificateSettings, which differ between servers.
type certificateFlags struct {
	secret, cert, key string
	caSecret, ca      string

	defaultSecret string
	owner         string // of the certificate
	peer          string // whose certificates the CAs sign
}

var (
	principalCertificates = certificateFlags{"tls-secret-name", "tls-cert", "tls-key", "tls-ca-secret-name", "root-ca-path",
		"argocd-agent-principal-tls", "the principal", "agents"}
	agentCertificates = certificateFlags{"tls-secret-name", "tls-client-cert", "tls-client-key", "root-ca-secret-name", "root-ca-path",
		"argocd-agent-client-tls", "the agent", "the principal"}
	proxyCertificates = certificateFlags{"resource-proxy-secret-name", "resource-proxy-cert-path", "resource-proxy-key-path",
		"resource-proxy-ca-secret-name", "resource-proxy-ca-path", "argocd-agent-resource-proxy-tls", "the resource proxy",
		"clients of the resource proxy"}
)

const defaultCASecret = "argocd-agent-ca"

func (n certificateFlags) flags() []string {
	return []string{n.secret, n.cert, n.key, n.caSecret, n.ca}
}

func (s *certificateSettings) declare(f *flags, n certificateFlags) {
	f.add(n.secret, text(&s.secret, "SECRET", n.defaultSecret), "Secret with the certificate (tls.crt) and key (tls.key) of "+n.owner+".")
	f.add(n.cert, text(&s.cert, "FILE", ""), "PEM file with the certificate of "+n.owner+". Overrides the Secret.")
	f.add(n.key, text(&s.key, "FILE", ""), "PEM file with the key of that certificate.")
	f.add(n.caSecret, text(&s.caSecret, "SECRET", defaultCASecret),
		"Secret with the CA certificates (ca.crt or tls.crt) that sign the certificates of "+n.peer+".")
	f.add(n.ca, text(&s.ca, "FILE", ""), "PEM file with the trusted CA certificates. Overrides the Secret.")
}

func (s *certificateSettings) check(f *flags, n certificateFlags, verify bool) {
	switch {
	case s.cert != "" && s.key == "":
		f.fail("%s without --%s: set both", f.name(n.cert), n.key)
	case s.cert == "" && s.key != "":
		f.fail("%s without --%s: set both", f.name(n.key), n.cert)
	case s.cert != "" && s.ca == "" && verify:
		f.fail("%s without --%s: all certificates come from files or all from Secrets; set the file of the CA certificates", f.name(n.cert), n.ca)
	case s.cert == "" && s.ca != "":
		f.fail("%s without --%s: all certificates come from files or all from Secrets; set the files of certificate and key", f.name(n.ca), n.cert)
	case s.cert != "":
		f.conflicts(true, n.cert, "both locate the same certificate", n.secret)
	}
	f.conflicts(s.ca != "", n.ca, "both locate the same CA certificates", n.caSecret)
	checkSecret(f, n.secret, s.secret)
	checkSecret(f, n.caSecret, s.caSecret)
}

func checkSecret(f *flags, flag, name string) {
	f.failIf(flag, dnsName(name, validation.IsDNS1123Subdomain))
}

// secretHandlers are called with the data of the Secret that they are named by, or with nil if it does not exist.
type secretHandlers = map[string]func(map[string][]byte) error

// source returns where certificates come from: files, or Secrets that the component watches.
func (s *certificateSettings) source(namespace string, verify bool, log *slog.Logger) (identity.Source, secretHandlers, error) {
	if s.cert == "" {
		source := newSecrets(namespace, s.secret, s.caSecret, verify)
		return source, source.handlers(), nil
	}
	files, err := identity.NewFiles(s.cert, s.key, s.ca, log)
	return files, nil, err
}
