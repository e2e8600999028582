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

// explained is an error in words that say who can do what about it. They are
// the same for the same cause, so that it can be logged once.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

// ExplainServer says what a failed handshake means on the hub.
func ExplainServer(err error) error {
	return explain(err, side{
		peer: "the agent", peerSecret: "argocd-agent-client-tls on its cluster",
		self: "the principal", ownCA: "argocd-agent-ca on the hub",
		peerCA: "argocd-agent-ca on its cluster",
	})
}

// ExplainClient says what a failed connection means on an agent.
func ExplainClient(err error) error {
	return explain(err, side{
		peer: "the principal", peerSecret: "argocd-agent-principal-tls on the hub",
		self: "this agent", ownCA: "argocd-agent-ca on this cluster",
		peerCA: "argocd-agent-ca on the hub", ownSecret: "argocd-agent-client-tls on this cluster",
	})
}

// side is who is who, from where the error was seen.
type side struct{ peer, peerSecret, peerCA, self, ownSecret, ownCA string }

func explain(err error, s side) error {
	if text := s.words(err); text != "" {
		return &explained{text, err}
	}
	return err
}

func (s side) words(err error) string {
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
		return s.certificate(verification.UnverifiedCertificates[0], verification.Err)
	case errors.As(err, &record):
		return fmt.Sprintf("%s does not speak TLS on this connection (it begins with %q): is it the right port, is it plaintext, or is there a proxy in between?", s.peer, record.RecordHeader[:])
	case errors.As(err, &remote) && remote.Op == "remote error":
		return s.alert(remote.Err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("%s did not finish the TLS handshake in time", s.peer)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Sprintf("%s closed the connection during the handshake; its own log may say why", s.peer)
	}
	switch text := err.Error(); {
	case strings.Contains(text, "client didn't provide a certificate"):
		return "the agent presents no certificate: give it one in Secret argocd-agent-client-tls on its cluster, and run it with --creds mtls:"
	case strings.Contains(text, "unsupported versions"), strings.Contains(text, "protocol version not supported"):
		return fmt.Sprintf("%s and %s have no TLS version in common: compare --tls-min-version and --tls-max-version (%s)", s.peer, s.self, text)
	case strings.Contains(text, "missing selected ALPN"), strings.Contains(text, "unsupported application protocols"):
		return fmt.Sprintf("%s does not offer HTTP/2 on this connection: is it the right port, or is there a proxy in between that ends TLS?", s.peer)
	}
	return ""
}

// certificate is about one that we do not accept.
func (s side) certificate(cert *x509.Certificate, err error) string {
	who := fmt.Sprintf("the certificate of %s (subject %q, issued by %q, fingerprint %s)", s.peer, clip(cert.Subject.String()), clip(cert.Issuer.String()), Fingerprint(cert))
	var (
		invalid  x509.CertificateInvalidError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("%s is valid from %s to %s, which is not now: renew it (Secret %s), or set the clocks right", who, day(cert.NotBefore), day(cert.NotAfter), s.peerSecret)
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return fmt.Sprintf("%s is not meant for this use: issue one with extended key usage clientAuth for agents, serverAuth for the principal (Secret %s)", who, s.peerSecret)
	case errors.As(err, &unknown):
		return fmt.Sprintf("%s is not signed by a CA that %s believes: add that CA to its bundle (Secret %s), or issue the certificate again (Secret %s)", who, s.self, s.ownCA, s.peerSecret)
	case errors.As(err, &hostname):
		return fmt.Sprintf("%s is for %s, not for %q: use one of those as address, or issue it again with that name (Secret %s)", who, names(cert), hostname.Host, s.peerSecret)
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

// alert is about our certificate, which the other side does not accept. TLS
// tells only a word of it.
func (s side) alert(text string) string {
	own := "the certificate of " + s.self
	if s.ownSecret != "" {
		own += " (Secret " + s.ownSecret + ")"
	}
	switch {
	case strings.Contains(text, "expired certificate"):
		return fmt.Sprintf("%s finds that %s is not valid now: renew it, or set the clocks right", s.peer, own)
	case strings.Contains(text, "unknown certificate authority"):
		return fmt.Sprintf("%s does not believe the CA that signed %s: issue it again, or add that CA to the bundle there (Secret %s)", s.peer, own, s.peerCA)
	case strings.Contains(text, "certificate required"):
		return fmt.Sprintf("%s wants a certificate and %s has presented none", s.peer, s.self)
	case strings.Contains(text, "bad certificate"), strings.Contains(text, "revoked certificate"), strings.Contains(text, "unknown certificate"):
		return fmt.Sprintf("%s does not accept %s: revoked, for another name, or not meant for this use; its log says which (%s)", s.peer, own, text)
	case strings.Contains(text, "protocol version"):
		return fmt.Sprintf("%s and %s have no TLS version in common: compare --tls-min-version and --tls-max-version", s.peer, s.self)
	}
	return fmt.Sprintf("%s ended the TLS handshake: %s", s.peer, text)
}
