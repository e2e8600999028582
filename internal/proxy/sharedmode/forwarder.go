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
)

// Forwarder is the spoke's end: it listens for Argo CD's controllers and carries their connections to the hub.
type Forwarder struct {
	// Open opens a tunnel to the hub.
	Open func(ctx context.Context) (net.Conn, error)

	// TLS is for clients that begin with TLS; those that do not are served in plaintext, so that either setting of Argo
	// CD's works.
	TLS *tls.Config

	// Greet may change a connection before it is carried; nil: it stays as it is.
	Greet func(conn net.Conn) (net.Conn, error)

	// Sorry tells a client why there is no connection, in its own language; nil: it is closed without a word.
	Sorry func(conn net.Conn, why error)

	Most int // connections at the same time: 64; more are closed
	Log  *slog.Logger
}

const (
	firstByte   = 10 * time.Second // until a client has said something, and has done so by TLS
	openTimeout = 10 * time.Second
)

// Run serves until the context ends. It closes the listener.
func (d *Forwarder) Run(ctx context.Context, l net.Listener) error {
	most := d.Most
	orDefault(&most, 64)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	room := make(chan struct{}, most)
	var carrying sync.WaitGroup
	defer carrying.Wait()
	said := &changeLogger{log: d.Log}
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
			said.about(ctx, errors.New("there are too many connections"))
			_ = conn.Close()
			continue
		}
		carrying.Go(func() {
			defer func() { <-room }()
			said.about(ctx, d.serve(ctx, conn))
		})
	}
}

// serve carries one connection. Its error is why it could not be carried.
func (d *Forwarder) serve(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(firstByte))
	client, err := d.begin(ctx, conn)
	if err != nil {
		return nil // nothing that our user could mend: it did not come to use us
	}
	_ = conn.SetDeadline(time.Time{})
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	tunnel, err := d.Open(opening)
	cancel()
	if err != nil {
		if d.Sorry != nil {
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			d.Sorry(client, err)
			_, _ = io.CopyN(io.Discard, client, 64<<10) // closed with something unread, it might not be heard
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

// begin finds out how a client speaks.
func (d *Forwarder) begin(ctx context.Context, conn net.Conn) (net.Conn, error) {
	peeked := &peekedConn{Conn: conn, in: bufio.NewReaderSize(conn, 4<<10)}
	first, err := peeked.in.Peek(1)
	if err != nil {
		return nil, err
	}
	var client net.Conn = peeked
	if first[0] == 0x16 && d.TLS != nil { // the record type of a TLS handshake; neither HTTP/2 nor RESP begins like this
		secure := tls.Server(peeked, d.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		client = secure
	}
	if d.Greet != nil {
		return d.Greet(client)
	}
	return client, nil
}

// peekedConn is a connection of which something has been read ahead.
type peekedConn struct {
	net.Conn
	in *bufio.Reader
}

// Read implements net.Conn.
func (c *peekedConn) Read(b []byte) (int, error) { return c.in.Read(b) }

// changeLogger logs a reason when it is a new one, and when it is over.
type changeLogger struct {
	log *slog.Logger
	mu  sync.Mutex
	why string
}

func (o *changeLogger) about(ctx context.Context, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	o.mu.Lock()
	changed := o.why != why
	o.why = why
	o.mu.Unlock()
	switch {
	case o.log == nil || !changed || ctx.Err() != nil:
	case err != nil:
		o.log.WarnContext(ctx, "cannot connect Argo CD to the hub", "error", err)
	default:
		o.log.InfoContext(ctx, "Argo CD is connected to the hub again")
	}
}
