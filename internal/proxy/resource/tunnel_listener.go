package resource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// Serve answers requests that arrive on a tunnel, until it is closed. It returns as soon as Run has taken the tunnel;
// when Run has ended it closes the tunnel.
func (a *Agent) Serve(conn net.Conn) { a.door.enter(conn) }

// Run answers the requests of all tunnels until the context ends, then closes what is open. It runs once.
func (a *Agent) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:                      a,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            a.config.Idle, // of tunnels that are opened before they are needed
		IdleTimeout:                  a.config.Idle,
		MaxHeaderBytes:               maxHeaders + 4<<10, // what passes the hub passes here
		ErrorLog:                     errorLog(a.config.Log),
	}
	defer a.door.shut()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(a.door); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the resource proxy's tunnels: %w", err)
	}
	return nil
}

// tunnelListener is a listener whose connections are handed in.
type tunnelListener struct {
	conns  chan net.Conn
	closed chan struct{}
	shut   func()
}

func newDoor() *tunnelListener {
	closed := make(chan struct{})
	return &tunnelListener{conns: make(chan net.Conn), closed: closed, shut: sync.OnceFunc(func() { close(closed) })}
}

func (d *tunnelListener) enter(conn net.Conn) {
	select {
	case d.conns <- conn:
	case <-d.closed:
		_ = conn.Close()
	}
}

func (d *tunnelListener) Accept() (net.Conn, error) {
	select {
	case conn := <-d.conns:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d *tunnelListener) Close() error {
	d.shut()
	return nil
}

func (d *tunnelListener) Addr() net.Addr { return tunnelAddr{} }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "tunnel" }
func (tunnelAddr) String() string  { return "tunnel" }
