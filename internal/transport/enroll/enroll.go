// Package enroll issues certificates of the hub's CA to agents, and keeps them current. A cluster without a certificate
// exchanges a join token for its first one (ClusterJoin). An agent with a session renews it (Client).
package enroll

import (
	"context"
	"crypto/x509"
	"errors"
	"time"
)

// Issuer issues certificates on the hub. An *Error is sent to the caller. For any other error, the caller gets a
// general message.
type Issuer interface {
	// Join issues the first certificate to a cluster that has a token.
	Join(ctx context.Context, r JoinRequest) (Joined, error)

	// Renew issues the next certificate to an agent.
	Renew(ctx context.Context, r RenewRequest) (Certificate, error)

	// Trust returns the CAs that agents must trust. The channel is closed when they have changed.
	Trust() (Trust, <-chan struct{})
}

// Client renews the certificate of an agent during a session. An *Error is the hub's answer.
type Client interface {
	// Renew requests the next certificate. The key of the request must be stored before, so that a call whose answer is
	// lost is repeated with the same key. The session must have the newest certificate of the agent.
	Renew(ctx context.Context, request []byte, clock time.Time) (Certificate, error)

	// Fingerprint returns the SHA-256 of the certificate of this session in upper-case hex, or "" if it has none.
	Fingerprint() string

	// WatchTrust calls f with the CAs to trust, now and after each change, until the context or the session ends.
	WatchTrust(ctx context.Context, f func(Trust)) error
}

// JoinRequest is the request of a cluster without a certificate.
type JoinRequest struct {
	Agent               string
	TokenID, TokenValue string
	Request             []byte // for a certificate, PEM
	Clock               time.Time
	Remote              string // address of the cluster; set by the hub
}

// RenewRequest is the request of an agent with a session.
type RenewRequest struct {
	Agent       string
	Fingerprint string            // of the certificate that it connected with
	Certificate *x509.Certificate // that it connected with; may be nil
	Request     []byte            // for a certificate, PEM
	KeyStored   bool              // the agent has stored the key of the request
	Clock       time.Time
}

// ErrReconnect ends a session, because the agent has a newer certificate than the session.
var ErrReconnect = errors.New("reconnecting with the renewed certificate")

// Joined is the hub's answer to a JoinRequest.
type Joined struct {
	Certificate
	Mode string
}

// Certificate is a certificate that the hub has issued.
type Certificate struct {
	Chain, Bundle []byte    // PEM
	Clock         time.Time // of the hub
}

// Trust has the CAs that an agent must trust.
type Trust struct {
	Bundle []byte // PEM
	Issuer []byte // SHA-256 of the public key of the CA that issues now; empty if none does
}

// Error is the reason why there is no certificate, for the client.
type Error struct {
	Message    string
	Temporary  bool // the client should retry
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Message }
