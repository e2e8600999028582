package tunnel

import (
	"context"
	"errors"
	"net"

	"github.com/argocd-agent/argocd-agent/internal/util/connlistener"
)

// Listener makes tunnels the connections of a server, such as an http.Server. Its Handle is a Handler, and Accept
// returns the tunnels that Handle receives.
type Listener struct{ *connlistener.Listener }

// NewListener returns a listener for Handle.
func NewListener() *Listener { return &Listener{connlistener.New()} }

// Handle passes a tunnel to Accept and waits until the server closes it. After Close, it refuses the tunnel.
func (l *Listener) Handle(ctx context.Context, conn net.Conn) {
	t, ok := conn.(*Tunnel)
	if !ok {
		return
	}
	switch err := l.Offer(ctx, conn); {
	case err == nil:
		<-t.closed
	case errors.Is(err, net.ErrClosed):
		t.Abort("the server of this target has stopped")
	}
}
