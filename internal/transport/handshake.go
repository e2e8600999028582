package transport

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// serverCredentials shakes hands on accepted connections and keeps the socket
// beside what the handshake found out.
type serverCredentials struct {
	credentials.TransportCredentials
	counters *Counters
	quiet    *dedupLogger
	explain  func(error) error
}

func (s *Server) credentials() serverCredentials {
	inner := insecure.NewCredentials()
	if s.cfg.TLS != nil {
		inner = credentials.NewTLS(s.cfg.TLS)
		if s.cfg.WebSocket {
			inner = webCredentials{inner, s.cfg.TLS}
		}
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
	s.handshakeDoneAt.Store(time.Now().UnixNano())
	s.listener.settle(s)
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) { // somebody looks whether the port is open, or had to make way
			c.counters.refuse(refusedTLS)
			c.quiet.with(hostOf(s.RemoteAddr()), c.explain(err)).Warn("TLS handshake failed")
		}
		return nil, nil, err
	}
	fingerprint, encrypted := peerFingerprint(info)
	if encrypted && fingerprint == "" {
		return c.anonymous(conn, info, s)
	}
	if fingerprint != "" && !s.listener.claim(s, fingerprint, s.listener.limits.ConnsPerPeer) {
		err := fmt.Errorf("the certificate with SHA-256 fingerprint %X has %d connections already: an agent needs one; is the same certificate in use elsewhere?",
			fingerprint, s.listener.limits.ConnsPerPeer)
		c.counters.refuse(refusedPeer)
		c.quiet.with(hostOf(s.RemoteAddr()), err).Warn("connection refused")
		return nil, nil, err
	}
	return conn, authInfo{info, s}, nil
}

// Clone implements credentials.TransportCredentials.
func (c serverCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// anonymous is for who wants to join, and has no certificate yet: there may be
// few of them, and not for long.
func (c serverCredentials) anonymous(conn net.Conn, info credentials.AuthInfo, s *socket) (net.Conn, credentials.AuthInfo, error) {
	if !s.listener.claim(s, "anonymous", anonymousConns) {
		err := errors.New("too many clients without a certificate at once: those that want to join have to wait a moment")
		c.counters.refuse(refusedPeer)
		c.quiet.with(hostOf(s.RemoteAddr()), err).Warn("connection refused")
		return nil, nil, err
	}
	time.AfterFunc(anonymousLife, func() { _ = s.Close() })
	return conn, authInfo{info, s}, nil
}

func peerFingerprint(info credentials.AuthInfo) (fingerprint string, encrypted bool) {
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 {
		return "", ok
	}
	sum := sha256.Sum256(t.State.PeerCertificates[0].Raw)
	return string(sum[:]), true
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
	failed  func(error)
	verdict time.Duration
}

func newClientCredentials(cfg *tls.Config, failed func(error), verdict time.Duration) clientCredentials {
	if cfg == nil {
		return clientCredentials{insecure.NewCredentials(), failed, verdict}
	}
	return clientCredentials{credentials.NewTLS(cfg), failed, verdict}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		c.failed(err)
		return nil, nil, err
	}
	w := &reportingConn{prefixed{Conn: conn}, c.failed}
	if _, encrypted := info.(credentials.TLSInfo); encrypted {
		if err := w.waitFirstByte(ctx, c.verdict); err != nil {
			_ = conn.Close()
			return nil, nil, err
		}
	}
	return w, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c clientCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// reportingConn tells of reads that fail.
type reportingConn struct {
	prefixed // with what was read by listen
	failed   func(error)
}

// firstByteTimeout is how long listen waits. A server that speaks HTTP/2 speaks at once;
// one that does not gets the benefit of the doubt.
const firstByteTimeout = 2 * time.Second

// waitFirstByte waits for the server's first byte. With TLS 1.3 a client has shaken
// hands before the server has looked at its certificate; the verdict comes
// after that. Whoever sends meanwhile to a server that has hung up may be
// answered by a reset, and never read the reason.
func (w *reportingConn) waitFirstByte(ctx context.Context, verdict time.Duration) error {
	deadline := time.Now().Add(verdict)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	_ = w.SetReadDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = w.SetReadDeadline(time.Unix(1, 0)) })
	first := make([]byte, 1)
	n, err := w.Conn.Read(first)
	if !stop() {
		return context.Cause(ctx)
	}
	_ = w.SetReadDeadline(time.Time{})
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		w.failed(err)
		return err
	}
	w.first = first[:n]
	return nil
}

// Read implements net.Conn.
func (w *reportingConn) Read(b []byte) (int, error) {
	n, err := w.prefixed.Read(b)
	if err != nil {
		w.failed(err)
	}
	return n, err
}
