package transport

import (
	"context"
	"net"
	"sync"
)

// TunnelListener makes tunnels the connections of a server, such as an
// http.Server: its Handle is a TunnelHandler, Accept returns what that gets.
type TunnelListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewTunnelListener returns a listener for Handle.
func NewTunnelListener() *TunnelListener {
	return &TunnelListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Handle passes a tunnel to Accept, and waits until it is closed there.
func (l *TunnelListener) Handle(ctx context.Context, conn net.Conn) {
	t, ok := conn.(*Tunnel)
	if !ok {
		return
	}
	select {
	case l.conns <- conn:
		<-t.closed
	case <-l.closed:
		t.Abort("nobody serves it any more")
	case <-ctx.Done():
	}
}

// Accept implements net.Listener.
func (l *TunnelListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Tunnels that come later are refused.
func (l *TunnelListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *TunnelListener) Addr() net.Addr { return tunnelAddr("tunnels") }
