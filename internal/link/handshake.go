package link

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// serverCredentials shakes hands on accepted connections and keeps the socket
// beside what the handshake found out.
type serverCredentials struct {
	credentials.TransportCredentials
	counters *Counters
	quiet    *quiet
	explain  func(error) error
}

func (s *Server) credentials() serverCredentials {
	inner := insecure.NewCredentials()
	if s.cfg.TLS != nil {
		inner = credentials.NewTLS(s.cfg.TLS)
	}
	return serverCredentials{inner, &s.counters, s.quiet, s.cfg.Explain}
}

// authInfo is what a stream's context knows about its connection.
type authInfo struct {
	credentials.AuthInfo
	socket *socket
}

// ServerHandshake implements credentials.TransportCredentials.
func (c serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	s, ok := raw.(*socket)
	if !ok {
		return nil, nil, fmt.Errorf("a %T did not come from our listener", raw)
	}
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	s.listener.settle(s)
	if err != nil {
		c.counters.refuse(refusedTLS)
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) { // a port check, or evicted
			c.quiet.about(hostOf(s.RemoteAddr()), c.explain(err)).Warn("TLS handshake failed")
		}
		return nil, nil, err
	}
	if fingerprint := peerFingerprint(info); fingerprint != "" && !s.listener.claim(s, fingerprint) {
		err := fmt.Errorf("the certificate with SHA-256 fingerprint %X has %d connections already: an agent needs one; is the same certificate in use elsewhere?",
			fingerprint, s.listener.limits.ConnsPerPeer)
		c.counters.refuse(refusedPeer)
		c.quiet.about(hostOf(s.RemoteAddr()), err).Warn("connection refused")
		return nil, nil, err
	}
	return conn, authInfo{info, s}, nil
}

// Clone implements credentials.TransportCredentials.
func (c serverCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

func peerFingerprint(info credentials.AuthInfo) string {
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 {
		return ""
	}
	sum := sha256.Sum256(t.State.PeerCertificates[0].Raw)
	return string(sum[:])
}

// unwrap takes the socket out of a stream's context, and leaves there what any
// gRPC server would have.
func unwrap(ctx context.Context) (context.Context, *socket, net.Addr) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil, nil
	}
	info, ok := p.AuthInfo.(authInfo)
	if !ok {
		return ctx, nil, p.Addr
	}
	plain := *p
	plain.AuthInfo = info.AuthInfo
	return peer.NewContext(ctx, &plain), info.socket, p.Addr
}

// clientCredentials shakes hands on a dialled connection and remembers what
// went wrong, as an error that one can look into: gRPC makes text of it.
type clientCredentials struct {
	credentials.TransportCredentials
	failed func(error)
}

func newClientCredentials(cfg *tls.Config, failed func(error)) clientCredentials {
	if cfg == nil {
		return clientCredentials{insecure.NewCredentials(), failed}
	}
	return clientCredentials{credentials.NewTLS(cfg), failed}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		c.failed(err)
		return nil, nil, err
	}
	// With TLS 1.3 the server's verdict on our certificate comes with the first read.
	return &watched{Conn: conn, failed: c.failed}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c clientCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// watched tells of the first read that fails.
type watched struct {
	net.Conn
	failed func(error)
}

// Read implements net.Conn.
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.failed(err)
	}
	return n, err
}
