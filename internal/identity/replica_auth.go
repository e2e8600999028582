package identity

import (
	"crypto"
	"crypto/tls"
	"errors"
	"slices"
)

// ReplicaAuth is one of several processes that have the same certificate and key, as
// the replicas of one server do. They recognise each other by that: whoever
// proves to have the key is one of them, and nobody else is, whatever any CA has
// signed. Twins name a protocol of their own in the handshake, so that a port
// tells them from everybody else before it looks at certificates.
type ReplicaAuth struct {
	From     Source
	Protocol string // in ALPN; nobody else's
}

// Join lets twins in by a port that others use too. They alone can have
// negotiated the protocol; whoever offers it is let in as a twin or not at all.
func (t ReplicaAuth) Join(port *tls.Config) {
	others := port.GetConfigForClient
	port.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		switch {
		case slices.Contains(hello.SupportedProtos, t.Protocol):
			return t.serverTLS()
		case others != nil:
			return others(hello)
		}
		return nil, nil //nolint:nilnil // the port's own, as crypto/tls has it
	}
}

func (t ReplicaAuth) serverTLS() (*tls.Config, error) {
	m, err := t.From.Material()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{m.Certificate},
		ClientAuth:             tls.RequireAnyClientCert, // it is compared, not vouched for
		NextProtos:             []string{t.Protocol},
		SessionTicketsDisabled: true, // each proves it again
		VerifyConnection:       func(state tls.ConnectionState) error { return t.Verify(&state) },
	}, nil
}

// ClientTLS is for a connection to a twin.
func (t ReplicaAuth) ClientTLS() (*tls.Config, error) {
	m, err := t.From.Material()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		NextProtos:           []string{t.Protocol},
		InsecureSkipVerify:   true, //nolint:gosec // the certificate has to be our own, which says more than any name in it
		VerifyConnection:     func(state tls.ConnectionState) error { return t.Verify(&state) },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &m.Certificate, nil },
	}, nil
}

// ErrNotReplica is the verdict on anybody else.
var ErrNotReplica = errors.New("the other end does not have this principal's own certificate for the resource proxy: all replicas need the same, from one Secret")

// Verify fails for a connection to anybody but a twin.
func (t ReplicaAuth) Verify(state *tls.ConnectionState) error {
	m, err := t.From.Material()
	if err != nil {
		return err
	}
	own, ok := m.Certificate.Leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || state == nil || state.NegotiatedProtocol != t.Protocol || len(state.PeerCertificates) == 0 || !own.Equal(state.PeerCertificates[0].PublicKey) {
		return ErrNotReplica
	}
	return nil
}
