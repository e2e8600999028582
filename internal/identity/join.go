package identity

import (
	"bytes"
	"crypto/tls"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// AllowAnonymousJoin has a port that demands client certificates (ServerTLS) let in who has
// none yet and says so in the handshake. Such a connection has no identity:
// whatever asks for one refuses it. It is shown the CAs too, so that who knows
// but a pin can recognise us by it.
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
