package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Events is told what happens on connections. All calls about one Conn come
// from one goroutine, in the order Connected, Received…, Disconnected; calls
// about different ones come at the same time.
type Events interface {
	// Connected says that a session may begin. Conn.Send works from here on.
	Connected(*Conn)

	// Received passes a message on. While it waits, nothing more is read from
	// this peer. It has to return when Conn.Done is closed.
	Received(*Conn, engine.Message)

	// Disconnected says that the connection is gone, and why. A *ByeError tells
	// that one of the two ends wanted it; nil means that the peer simply ended.
	Disconnected(*Conn, error)
}

// Peer is who the transport says is at the other end.
type Peer struct {
	Agent       string
	Fingerprint string    // of its certificate; empty where a mesh vouches for it
	NotAfter    time.Time // when that expires; zero likewise
}

// Authenticate finds out who opened a stream, from what the transport has
// verified: the context has gRPC's peer and metadata.
type Authenticate func(ctx context.Context) (Peer, error)

// ByeError is the reason of a connection that was ended on purpose.
type ByeError struct {
	Code       engine.Code
	Message    string
	RetryAfter time.Duration
	Local      bool // this end ended it, else the peer
}

func (e *ByeError) Error() string {
	by := "the peer"
	if e.Local {
		by = "this side"
	}
	return fmt.Sprintf("ended by %s: %s: %s", by, e.Code, e.Message)
}

// RefusedError is the server's answer to a stream that it did not accept.
type RefusedError struct {
	Code       engine.Code
	Message    string
	RetryAfter time.Duration
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the principal refused the connection: %s: %s", e.Code, e.Message)
}

// ErrSlowReader is the reason of a connection whose peer did not take what was
// sent to it. Nothing is lost: sets are compared when it returns.
var ErrSlowReader = errors.New("the peer reads too slowly")

// ErrClosed is returned by Send on a connection that is closing or gone.
var ErrClosed = errors.New("connection is closed")
