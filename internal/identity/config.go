package identity

import (
	"bytes"
	"crypto/tls"
	"errors"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// ServerTLS returns the TLS configuration of a port that requires client certificates. Each handshake uses the current
// material of the Source. The caller may change other settings, such as versions and cipher suites, before first use. The
// default minimum version is TLS 1.3.
func ServerTLS(from Source, revoked *Revocations) *tls.Config {
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"h2"},
		// A resumed session would skip the check for revocation.
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			for _, cert := range state.PeerCertificates {
				if id := Fingerprint(cert); revoked.Revoked(id) {
					return &RevokedError{Fingerprint: id, Subject: clip(cert.Subject.String())}
				}
			}
			return nil
		},
	}
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m, err := from.Material()
		if err != nil {
			return nil, err
		}
		if m.pool == nil {
			return nil, errors.New("no CA to verify agents: set the CA bundle")
		}
		now := cfg.Clone()
		now.GetConfigForClient = nil
		now.Certificates = []tls.Certificate{m.Certificate}
		now.ClientCAs = m.pool
		return now, nil
	}
	return cfg
}

// AnonymousServerTLS returns the TLS configuration of a port that asks for no client certificates. Each handshake uses the
// current certificate of the Source.
func AnonymousServerTLS(from Source) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			m, err := from.Material()
			if err != nil {
				return nil, err
			}
			return &m.Certificate, nil
		},
	}
}

// ClientTLS returns the TLS configuration for one connection to a server. It has the current material of the Source.
func ClientTLS(from Source, serverName string) (*tls.Config, error) {
	m, err := from.Material()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: serverName,
		RootCAs:    m.pool, // if nil, the system's
		// Not Certificates: these are omitted silently if the server's list of CAs lacks the issuer.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &m.Certificate, nil
		},
	}, nil
}

// AllowAnonymousJoin lets a ServerTLS port accept connections without a client certificate if the client offers the join
// protocol. Such a connection has no identity, so every call that needs one is refused. The server also presents its CAs,
// so that a client with a pin can verify it.
func AllowAnonymousJoin(cfg *tls.Config, from Source) {
	inner := cfg.GetConfigForClient
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		now, err := inner(hello)
		if err != nil || !slices.Contains(hello.SupportedProtos, pki.JoinProtocol) {
			return now, err
		}
		m, err := from.Material()
		if err != nil {
			return nil, err
		}
		shown := m.Certificate
		for _, ca := range m.CAs {
			if !slices.ContainsFunc(shown.Certificate, func(der []byte) bool { return bytes.Equal(der, ca.Raw) }) {
				shown.Certificate = append(slices.Clip(shown.Certificate), ca.Raw)
			}
		}
		now.Certificates = []tls.Certificate{shown}
		now.ClientAuth = tls.NoClientCert
		return now, nil
	}
}
