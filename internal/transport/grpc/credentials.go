package grpc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/websocket"
)

// serverCredentials handles the handshake of accepted connections, and adds the socket to its result.
type serverCredentials struct {
	credentials.TransportCredentials
	counters     *transport.Counters
	dedupLog     *transport.DedupLogger
	explain      func(error) error
	authenticate transport.Authenticate
	current      func(agent string) *transport.Conn
}

func (s *Server) credentials() serverCredentials {
	inner := insecure.NewCredentials()
	if s.cfg.TLS != nil {
		inner = credentials.NewTLS(s.cfg.TLS)
		if s.cfg.WebSocket {
			inner = webSocketCredentials{inner, s.cfg.TLS}
		}
	}
	return serverCredentials{inner, s.counters, s.dedupLog, s.cfg.Explain, s.cfg.Authenticate, s.hub.Current}
}

// authInfo is the result of a handshake.
type authInfo struct {
	credentials.AuthInfo
	socket *socket
}

func (c serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	s, ok := raw.(*socket)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is not a connection of this listener", raw)
	}
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	s.handshakeDoneAt.Store(time.Now().UnixNano())
	s.listener.handshakeDone(s)
	if err != nil {
		s.listener.addresses.Take(s.address)
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) { // a port check, or an evicted handshake
			c.counters.Refuse(refusedTLS)
			c.dedupLog.With(transport.HostOf(s.RemoteAddr().String()), c.explain(err)).Warn("TLS handshake failed")
		}
		return nil, nil, err
	}
	if t, encrypted := info.(credentials.TLSInfo); encrypted {
		admit := c.admitAgent
		if len(t.State.PeerCertificates) == 0 {
			admit = c.admitAnonymous
		}
		if err := admit(s, t.State); err != nil {
			s.listener.addresses.Take(s.address)
			c.dedupLog.With(transport.HostOf(s.RemoteAddr().String()), err).Warn("Connection refused")
			return nil, nil, err
		}
		if len(t.State.PeerCertificates) > 0 {
			s.listener.addresses.Give(s.address)
		}
	}
	return conn, authInfo{info, s}, nil
}

// admitAgent counts a connection of an agent. A certificate that names no agent counts by itself. Its calls are refused.
func (c serverCredentials) admitAgent(s *socket, state tls.ConnectionState) error {
	agent := fmt.Sprintf("%X", sha256.Sum256(state.PeerCertificates[0].Raw))
	noHeader := func(string) []string { return nil }
	if p, err := c.authenticate(transport.Credentials{TLS: &state, RemoteAddr: s.RemoteAddr(), Header: noHeader}); err == nil && p.Agent != "" {
		agent = p.Agent
	}
	if wait := s.listener.agents.Take(agent); wait > 0 {
		c.counters.Refuse(refusedAgentRate)
		return fmt.Errorf("agent %s connects too often: does another agent use the same name?", agent)
	}
	if old := s.listener.countAgent(s, agent, c.current(agent)); old != nil {
		c.counters.Refuse(refusedPeer)
		c.dedupLog.With(agent, fmt.Errorf("agent %s has %d connections already: does another agent use the same name?",
			agent, s.listener.limits.ConnsPerAgent)).Warn("Closed the oldest connection without a session")
		_ = old.Close()
	}
	return nil
}

func (c serverCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

const (
	// anonymousTimeout is how long a connection without a certificate may last, and anonymousConns how many there may
	// be. A join takes one call.
	anonymousTimeout = 20 * time.Second
	anonymousConns   = 256
)

// admitAnonymous counts a client without a certificate, which wants to join.
func (c serverCredentials) admitAnonymous(s *socket, _ tls.ConnectionState) error {
	s.listener.addresses.Take(s.address)
	if !s.listener.countAnonymous(s) {
		c.counters.Refuse(refusedPeer)
		return errors.New("too many clients without a certificate: try to join again later")
	}
	time.AfterFunc(anonymousTimeout, func() { _ = s.Close() })
	return nil
}

// unwrap returns the TLS state, if there is one, the socket and the remote address of a stream.
func unwrap(ctx context.Context) (*tls.ConnectionState, *socket, net.Addr) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, nil, nil
	}
	info, ok := p.AuthInfo.(authInfo)
	if !ok {
		return nil, nil, p.Addr
	}
	if t, ok := info.AuthInfo.(credentials.TLSInfo); ok {
		return &t.State, info.socket, p.Addr
	}
	return nil, info.socket, p.Addr
}

// clientCredentials handles the handshake of a dialled connection, and reports errors, which gRPC would turn into text.
type clientCredentials struct {
	credentials.TransportCredentials
	failed           func(error)
	firstByteTimeout time.Duration
}

func newClientCredentials(cfg *tls.Config, failed func(error), firstByteTimeout time.Duration) clientCredentials {
	if cfg == nil {
		return clientCredentials{insecure.NewCredentials(), failed, firstByteTimeout}
	}
	return clientCredentials{credentials.NewTLS(cfg), failed, firstByteTimeout}
}

func (c clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		c.failed(err)
		return nil, nil, err
	}
	w := &reportingConn{conn, c.failed}
	if _, encrypted := info.(credentials.TLSInfo); encrypted {
		if err := w.waitFirstByte(ctx, c.firstByteTimeout); err != nil {
			_ = conn.Close()
			return nil, nil, err
		}
	}
	return w, info, nil
}

func (c clientCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// reportingConn reports reads that fail.
type reportingConn struct {
	net.Conn
	failed func(error)
}

// defaultFirstByteTimeout is how long waitFirstByte waits. An HTTP/2 server sends at once. A server that does not is
// accepted as well.
const defaultFirstByteTimeout = 2 * time.Second

// waitFirstByte waits for the server's first byte. With TLS 1.3 the client's handshake ends before the server has
// verified its certificate. If the client then sends to a server that has closed the connection, it may get a reset and
// never read the reason.
func (w *reportingConn) waitFirstByte(ctx context.Context, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
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
	w.Conn = withPrefix(w.Conn, first[:n])
	return nil
}

func (w *reportingConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.failed(err)
	}
	return n, err
}

// webSocketCredentials also accept agents inside a WebSocket, on the same port. A client that starts TLS and offers
// HTTP/2 is an agent without WebSocket. Any other client, with TLS or without, may send one HTTP request, which must
// ask for a WebSocket. Inside it, the agent starts TLS as usual.
type webSocketCredentials struct {
	credentials.TransportCredentials // of agents
	tls                              *tls.Config
}

// tlsHandshake is the first byte of a TLS connection.
const tlsHandshake = 0x16

// ServerHandshake implements credentials.TransportCredentials. Limits.HandshakeTimeout bounds all of it.
func (c webSocketCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(raw, first); err != nil {
		return nil, nil, err
	}
	conn := withPrefix(raw, first)
	if first[0] == tlsHandshake {
		opened, info, err := c.handshake(conn)
		if err != nil || info != nil {
			return opened, info, err
		}
		conn = opened
	}
	ws, err := websocket.Accept(conn)
	if err != nil {
		return nil, nil, err
	}
	return c.TransportCredentials.ServerHandshake(ws)
}

func (c webSocketCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// handshake starts TLS with an agent, or with a proxy. A proxy is not authenticated, so the result has no AuthInfo.
func (c webSocketCredentials) handshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	outer := false
	cfg := c.tls.Clone()
	cfg.NextProtos = []string{"h2"}
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.tls
		if c.tls.GetConfigForClient != nil {
			var err error
			if now, err = c.tls.GetConfigForClient(hello); err != nil {
				return nil, err
			}
		}
		now = now.Clone()
		now.GetConfigForClient = nil
		now.NextProtos = []string{"h2"}
		if outer = !slices.Contains(hello.SupportedProtos, "h2"); outer {
			now.NextProtos = []string{"http/1.1"}
			now.MinVersion = tls.VersionTLS12 // the TLS inside protects the connection
			now.ClientAuth = tls.NoClientCert
			now.VerifyConnection = nil
		}
		return now, nil
	}
	secure := tls.Server(conn, cfg)
	if err := secure.HandshakeContext(context.Background()); err != nil { // gRPC has set a deadline
		return nil, nil, err
	}
	if outer {
		return secure, nil, nil
	}
	return secure, credentials.TLSInfo{
		State:          secure.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// readerConn is a connection whose data was read in part before.
type readerConn struct {
	net.Conn
	reader io.Reader
}

func (c *readerConn) Read(b []byte) (int, error) { return c.reader.Read(b) }

// withPrefix returns a connection with data that was read before.
func withPrefix(conn net.Conn, data []byte) net.Conn {
	return &readerConn{conn, io.MultiReader(bytes.NewReader(data), conn)}
}
