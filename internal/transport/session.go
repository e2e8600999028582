package transport

import (
	"context"

	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// Session is one open connection between the hub and an agent. It carries messages, as events, and tunnels. A transport
// implements it for both sides. Its errors are fit for users.
type Session interface {
	// Send sends one event and keeps it. It waits while the peer does not read. It returns io.EOF if the session has
	// ended. Receive then returns the reason.
	Send(event []byte) error

	// Receive waits for the next event and passes it to read, which must not keep it. It returns io.EOF if the peer
	// ended the session in order.
	Receive(read func(event []byte)) error

	// CloseSend notifies the peer that no more events follow. It has no effect on the hub.
	CloseSend()

	// OpenTunnel opens the stream of a tunnel, which lives as long as the context. Only agents open streams. The hub's
	// transport passes them to Server.ServeTunnel.
	OpenTunnel(ctx context.Context) (tunnel.Stream, error)

	// Abort ends the session at once and does not wait. All other calls fail.
	Abort()

	// Close aborts the session and waits until its connection is closed. The Dialer calls it last.
	Close()

	// Context ends when the connection breaks, with the reason as its cause. Receive may still return what arrived
	// before.
	Context() context.Context

	RemoteAddr() string
	Traffic() *Traffic // the transport counts the bytes of the network in it
}

// Connector opens sessions with one hub.
type Connector interface {
	Address() string

	// Connect opens a session, which outlives the context. A *RefusedError is the hub's answer. The connector counts
	// the bytes of the network in the counters, and adds its steps to the trace.
	Connect(ctx context.Context, counters *Counters, steps *trace.Steps) (Session, error)
}
