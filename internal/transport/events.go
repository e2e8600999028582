package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Events receives what happens to connections. All calls for one Conn come from one goroutine, in the order Connected,
// Received, Disconnected. Calls for different connections are concurrent.
type Events interface {
	// Connected reports that a session can begin. Conn.Send works from here on.
	Connected(*Conn)

	// Received passes a message on. While it blocks, nothing more is read from this peer. It must return when Conn.Done
	// is closed.
	Received(*Conn, engine.Message)

	// Disconnected reports that the connection is gone, and why. A *ByeError means that one side ended it on purpose.
	// Nil means that the peer ended it without a reason.
	Disconnected(*Conn, error)
}

// Peer is the client that the transport has authenticated.
type Peer struct {
	Agent       string
	Fingerprint string    // of its certificate; empty if a service mesh authenticates it
	NotAfter    time.Time // expiry of the certificate; zero if there is none
}

// Credentials are what a transport knows about a client.
type Credentials struct {
	TLS        *tls.ConnectionState // nil on a plaintext connection
	RemoteAddr net.Addr
	Header     func(name string) []string // unverified
}

// Authenticate returns the agent with these credentials.
type Authenticate func(Credentials) (Peer, error)

// ByeError is the reason of a connection that one side ended on purpose.
type ByeError struct {
	Code       engine.Code
	Message    string
	RetryAfter time.Duration
	Local      bool // this side ended it
}

func (e *ByeError) Error() string {
	by := "the peer"
	if e.Local {
		by = "this side"
	}
	return fmt.Sprintf("ended by %s: %s: %s", by, e.Code, e.Message)
}

// RefusedError is the principal's answer to a session that it did not accept.
type RefusedError struct {
	Code       engine.Code
	Message    string
	RetryAfter time.Duration
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the principal refused the connection: %s: %s", e.Code, e.Message)
}

// ErrSlowReader is the reason of a connection whose peer did not read what was sent. Nothing is lost: the sides compare
// their digests when the peer returns.
var ErrSlowReader = errors.New("the peer reads too slowly")

// ErrClosed is returned by Send on a connection that is closing or closed.
var ErrClosed = errors.New("connection is closed")
