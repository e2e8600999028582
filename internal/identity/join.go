package identity

import (
	"bytes"
	"crypto/tls"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

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
