package redis

import (
	"context"
	"crypto/tls"
	"net"
)

// tlsConn is a client with TLS. Close does not send the alert that ends TLS: a client that does not read would delay it.
type tlsConn struct{ *tls.Conn }

func (c tlsConn) Close() error { return c.NetConn().Close() }

// secure adds TLS to the connection of a client, if the Server uses it. The handshake is not done yet.
func (srv *Server) secure(conn net.Conn) net.Conn {
	if srv.cfg.TLS == nil {
		return conn
	}
	return tlsConn{tls.Server(conn, srv.cfg.TLS)}
}

// tlsHandshake completes the TLS handshake of the client, within the time for the first request.
func (c *clientConn) tlsHandshake() error {
	conn, ok := c.conn.(tlsConn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.server.agents.ctx, c.server.cfg.FirstRequest)
	defer cancel()
	err := conn.HandshakeContext(ctx)
	switch {
	case err == nil:
		c.server.handshakes.Reset()
	case c.server.agents.ctx.Err() == nil && c.server.handshakes.Changed(err.Error()):
		c.server.cfg.Log.WarnContext(ctx, "TLS handshake with a client of the Redis proxy failed", "client", conn.RemoteAddr().String(), "error", err)
	}
	return err
}
