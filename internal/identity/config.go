package identity

import (
	"crypto/tls"
	"errors"
)

// ServerTLS returns the configuration of a port that demands client
// certificates. Each handshake uses what the Source has by then; other settings
// of the configuration (versions, cipher suites) may be changed before it is
// used, and hold too. By default it is TLS 1.3 and nothing older.
func ServerTLS(from Source, revoked *Revocations) *tls.Config {
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"h2"},
		// A resumed session would not look at certificates again.
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
			return nil, errors.New("there is no CA to verify agents with: set the CA bundle")
		}
		now := cfg.Clone()
		now.GetConfigForClient = nil
		now.Certificates = []tls.Certificate{m.Certificate}
		now.ClientCAs = m.pool
		return now, nil
	}
	return cfg
}

// ClientTLS returns the configuration of the next connection to a server of
// that name. It holds what the Source has now, so ask again for each one.
func ClientTLS(from Source, serverName string) (*tls.Config, error) {
	m, err := from.Material()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: serverName,
		RootCAs:    m.pool, // nil: the system's
		// Not Certificates: that one is left out silently when the server's list of
		// CAs lacks its issuer, and nobody would learn why.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &m.Certificate, nil
		},
	}, nil
}
