package identity

import (
	"crypto"
	"crypto/tls"
	"errors"
	"slices"
)

// ReplicaAuth authenticates the replicas of one server to each other. They share one certificate and key. A peer that
// proves possession of the key is a replica. Signatures of CAs do not count. Replicas negotiate a protocol of their own
// (ALPN), so that a port can identify them before it checks certificates.
type ReplicaAuth struct {
	Source   Source
	Protocol string // ALPN; used by replicas only
}

// Accept makes a port that other clients use accept replicas, too. A client that offers the protocol must be a replica.
func (t ReplicaAuth) Accept(port *tls.Config) {
	others := port.GetConfigForClient
	port.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		switch {
		case slices.Contains(hello.SupportedProtos, t.Protocol):
			return t.serverTLS()
		case others != nil:
			return others(hello)
		}
		return nil, nil //nolint:nilnil // crypto/tls then uses the port's own configuration
	}
}

func (t ReplicaAuth) serverTLS() (*tls.Config, error) {
	m, err := t.Source.Material()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{m.Certificate},
		ClientAuth:             tls.RequireAnyClientCert, // compared with our own
		NextProtos:             []string{t.Protocol},
		SessionTicketsDisabled: true, // each connection proves it again
		VerifyConnection:       func(state tls.ConnectionState) error { return t.Verify(&state) },
	}, nil
}

// ClientTLS returns the configuration for one connection to another replica.
func (t ReplicaAuth) ClientTLS() (*tls.Config, error) {
	m, err := t.Source.Material()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		NextProtos:           []string{t.Protocol},
		InsecureSkipVerify:   true, //nolint:gosec // Verify compares the certificate with our own
		VerifyConnection:     func(state tls.ConnectionState) error { return t.Verify(&state) },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &m.Certificate, nil },
	}, nil
}

// ErrNotReplica means that the peer is not a replica.
var ErrNotReplica = errors.New("the peer does not have this principal's resource proxy certificate: all replicas must use the same Secret")

// Verify fails unless the peer is a replica.
func (t ReplicaAuth) Verify(state *tls.ConnectionState) error {
	m, err := t.Source.Material()
	if err != nil {
		return err
	}
	own, ok := m.Certificate.Leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || state == nil || state.NegotiatedProtocol != t.Protocol || len(state.PeerCertificates) == 0 || !own.Equal(state.PeerCertificates[0].PublicKey) {
		return ErrNotReplica
	}
	return nil
}
