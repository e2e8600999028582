package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// explainedError is an error with a remedy. The text is the same for the same cause, so that it can be logged once.
type explainedError struct {
	text string
	err  error
}

func (e *explainedError) Error() string { return e.text }
func (e *explainedError) Unwrap() error { return e.err }

// ExplainServer explains a failed handshake on the hub.
func ExplainServer(err error) error {
	return explain(err, explainer{
		peer: "the agent", peerSecret: "argocd-agent-client-tls on its cluster",
		self: "the principal", ownCA: "argocd-agent-ca on the hub",
		peerCA: "argocd-agent-ca on its cluster",
	})
}

// ExplainClient explains a failed connection of an agent.
func ExplainClient(err error) error {
	return explain(err, explainer{
		peer: "the principal", peerSecret: "argocd-agent-principal-tls on the hub",
		self: "this agent", ownCA: "argocd-agent-ca on this cluster",
		peerCA: "argocd-agent-ca on the hub", ownSecret: "argocd-agent-client-tls on this cluster",
	})
}

// explainer names both ends and their Secrets.
type explainer struct{ peer, peerSecret, peerCA, self, ownSecret, ownCA string }

func explain(err error, s explainer) error {
	if text := s.explain(err); text != "" {
		return &explainedError{text, err}
	}
	return err
}

func (s explainer) explain(err error) string {
	var (
		verification *tls.CertificateVerificationError
		revoked      *RevokedError
		record       tls.RecordHeaderError
		remote       *net.OpError
	)
	switch {
	case errors.As(err, &revoked):
		return revoked.Error()
	case errors.As(err, &verification) && len(verification.UnverifiedCertificates) > 0:
		return s.explainCertificate(verification.UnverifiedCertificates[0], verification.Err)
	case errors.As(err, &record):
		return fmt.Sprintf("%s does not use TLS on this connection (it begins with %q): check the port, plaintext settings and proxies", s.peer, record.RecordHeader[:])
	case errors.As(err, &remote) && remote.Op == "remote error":
		return s.explainAlert(remote.Err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("%s did not finish the TLS handshake in time", s.peer)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Sprintf("%s closed the connection during the handshake: see its log", s.peer)
	}
	switch text := err.Error(); {
	case strings.Contains(text, "client didn't provide a certificate"):
		return "the agent presents no certificate: store one in Secret argocd-agent-client-tls on its cluster and set --creds mtls:"
	case strings.Contains(text, "unsupported versions"), strings.Contains(text, "protocol version not supported"):
		return fmt.Sprintf("%s and %s have no TLS version in common: compare --tls-min-version and --tls-max-version (%s)", s.peer, s.self, text)
	case strings.Contains(text, "missing selected ALPN"), strings.Contains(text, "unsupported application protocols"):
		return fmt.Sprintf("%s does not offer HTTP/2 on this connection: check the port and TLS-terminating proxies", s.peer)
	}
	return ""
}

// explainCertificate explains why this side rejects the peer's certificate.
func (s explainer) explainCertificate(cert *x509.Certificate, err error) string {
	who := fmt.Sprintf("the certificate of %s (subject %q, issued by %q, fingerprint %s)", s.peer, clip(cert.Subject.String()), clip(cert.Issuer.String()), Fingerprint(cert))
	var (
		invalid  x509.CertificateInvalidError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("%s is valid from %s to %s, which is not now: renew it (Secret %s) or synchronize the clocks", who, formatTime(cert.NotBefore), formatTime(cert.NotAfter), s.peerSecret)
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return fmt.Sprintf("%s has the wrong key usage: issue one with extended key usage clientAuth for agents, serverAuth for the principal (Secret %s)", who, s.peerSecret)
	case errors.As(err, &unknown):
		return fmt.Sprintf("%s is not signed by a CA that %s trusts: add that CA to its bundle (Secret %s), or issue the certificate again (Secret %s)", who, s.self, s.ownCA, s.peerSecret)
	case errors.As(err, &hostname):
		return fmt.Sprintf("%s is for %s, not for %q: use one of these names as address, or issue it again with that name (Secret %s)", who, names(cert), hostname.Host, s.peerSecret)
	}
	return fmt.Sprintf("%s is not accepted: %v", who, err)
}

func names(cert *x509.Certificate) string {
	all := append([]string(nil), cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no host at all"
	}
	return clip(strings.Join(all, ", "))
}

// explainAlert explains a TLS alert: the peer rejects this side's certificate.
func (s explainer) explainAlert(text string) string {
	own := "the certificate of " + s.self
	if s.ownSecret != "" {
		own += " (Secret " + s.ownSecret + ")"
	}
	switch {
	case strings.Contains(text, "expired certificate"):
		return fmt.Sprintf("%s rejects %s as expired or not yet valid: renew it or synchronize the clocks", s.peer, own)
	case strings.Contains(text, "unknown certificate authority"):
		return fmt.Sprintf("%s does not trust the CA that signed %s: issue it again, or add that CA to the bundle there (Secret %s)", s.peer, own, s.peerCA)
	case strings.Contains(text, "certificate required"):
		return fmt.Sprintf("%s requires a certificate and %s presented none", s.peer, s.self)
	case strings.Contains(text, "bad certificate"), strings.Contains(text, "revoked certificate"), strings.Contains(text, "unknown certificate"):
		return fmt.Sprintf("%s does not accept %s: it is revoked, for another name, or has the wrong key usage: see its log (%s)", s.peer, own, text)
	case strings.Contains(text, "protocol version"):
		return fmt.Sprintf("%s and %s have no TLS version in common: compare --tls-min-version and --tls-max-version", s.peer, s.self)
	}
	return fmt.Sprintf("%s ended the TLS handshake: %s", s.peer, text)
}
