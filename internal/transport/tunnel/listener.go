package tunnel

import (
	"context"
	"net"
	"sync"
)

// Listener makes tunnels the connections of a server, such as an http.Server. Its Handle is a Handler, and Accept
// returns the tunnels that Handle receives.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewListener returns a listener for Handle.
func NewListener() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Handle passes a tunnel to Accept and waits until the server closes it.
func (l *Listener) Handle(ctx context.Context, conn net.Conn) {
	t, ok := conn.(*Tunnel)
	if !ok {
		return
	}
	select {
	case l.conns <- conn:
		<-t.closed
	case <-l.closed:
		t.Abort("the server of this target has stopped")
	case <-ctx.Done():
	}
}

func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Later tunnels are refused.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *Listener) Addr() net.Addr { return addr("tunnels") }
