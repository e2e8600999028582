package sharedmode

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// Forwarder runs on the spoke and forwards connections of Argo CD's controllers to the hub.
type Forwarder struct {
	// Open opens a tunnel to the hub.
	Open func(ctx context.Context) (net.Conn, error)

	// TLS is for clients that use TLS. Other clients are served in plaintext.
	TLS *tls.Config

	// Authenticate may authenticate or wrap a connection. May be nil.
	Authenticate func(conn net.Conn) (net.Conn, error)

	// WriteError reports an error in the client's protocol before the connection is closed. May be nil.
	WriteError func(conn net.Conn, why error)

	MaxConns int // connections at the same time; more are closed
	Log      *slog.Logger

	failure logonce.One
}

const (
	firstByte   = 10 * time.Second // until the first byte of a client, including the TLS handshake
	openTimeout = 10 * time.Second
)

// Run serves until the context ends. It closes the listener.
func (d *Forwarder) Run(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	room := make(chan struct{}, d.MaxConns)
	var carrying sync.WaitGroup
	defer carrying.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
				continue
			}
			return err
		}
		select {
		case room <- struct{}{}:
		default:
			d.report(ctx, errors.New("too many connections"))
			_ = conn.Close()
			continue
		}
		carrying.Go(func() {
			defer func() { <-room }()
			d.report(ctx, d.serve(ctx, conn))
		})
	}
}

// serve forwards one connection. It returns an error if there is no tunnel.
func (d *Forwarder) serve(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(firstByte))
	client, err := d.accept(ctx, conn)
	if err != nil {
		return nil // the client's fault
	}
	_ = conn.SetDeadline(time.Time{})
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	tunnel, err := d.Open(opening)
	cancel()
	if err != nil {
		if d.WriteError != nil {
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			d.WriteError(client, err)
			_, _ = io.CopyN(io.Discard, client, 64<<10) // unread data could reset the connection before the client reads the error
		}
		return err
	}
	defer func() { _ = tunnel.Close() }()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		_, err := io.Copy(tunnel, client)
		if half, ok := tunnel.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
		} else {
			_ = tunnel.Close()
		}
	})
	_, _ = io.Copy(client, tunnel)
	_ = client.Close()
	_ = conn.Close()
	return nil
}

// accept detects TLS and authenticates a client.
func (d *Forwarder) accept(ctx context.Context, conn net.Conn) (net.Conn, error) {
	peeked := &peekedConn{Conn: conn, in: bufio.NewReaderSize(conn, 4<<10)}
	first, err := peeked.in.Peek(1)
	if err != nil {
		return nil, err
	}
	var client net.Conn = peeked
	if first[0] == 0x16 && d.TLS != nil { // TLS handshake record; neither HTTP/2 nor RESP begins with it
		secure := tls.Server(peeked, d.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		client = secure
	}
	if d.Authenticate != nil {
		return d.Authenticate(client)
	}
	return client, nil
}

// peekedConn is a connection with buffered input.
type peekedConn struct {
	net.Conn
	in *bufio.Reader
}

// Read implements net.Conn.
func (c *peekedConn) Read(b []byte) (int, error) { return c.in.Read(b) }

// report logs a failure when it changes and when it ends.
func (d *Forwarder) report(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && d.failure.Changed(err.Error()):
		d.Log.WarnContext(ctx, "Failed to connect Argo CD to the hub", "error", err)
	case err == nil && d.failure.Reset():
		d.Log.InfoContext(ctx, "Connected Argo CD to the hub again")
	}
}
