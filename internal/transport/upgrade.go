package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"

	"github.com/coder/websocket"
	"google.golang.org/grpc/credentials"
)

// webCredentials let agents in by WebSocket too, on the same port. A client that
// begins with TLS and can speak HTTP/2 in it is an agent as ever. Any other, in
// TLS or in the clear, may send one HTTP request, which has to be an upgrade;
// inside, it has to begin as every agent does.
type webCredentials struct {
	credentials.TransportCredentials // of agents
	tls                              *tls.Config
}

// maxUpgrade bounds what a client may say before it is upgraded.
const maxUpgrade = 32 << 10

// tlsHandshake is the first byte of TLS.
const tlsHandshake = 0x16

// ServerHandshake implements credentials.TransportCredentials. All of it has to
// happen within the time for a handshake.
func (c webCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(raw, first); err != nil {
		return nil, nil, err
	}
	conn := net.Conn(&prefixed{Conn: raw, first: first})
	if first[0] == tlsHandshake {
		opened, info, err := c.shake(conn)
		if err != nil || info != nil {
			return opened, info, err
		}
		conn = opened
	}
	ws, err := upgrade(conn)
	if err != nil {
		return nil, nil, err
	}
	return c.TransportCredentials.ServerHandshake(ws)
}

// Clone implements credentials.TransportCredentials.
func (c webCredentials) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// shake shakes hands with an agent, or with what stands between it and us. Of the
// latter nothing is known, and it gets no information about a peer.
func (c webCredentials) shake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
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
			now.MinVersion = tls.VersionTLS12 // it protects nothing: the TLS inside does
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

// upgrade makes a WebSocket of a connection whose client asks for it.
func upgrade(conn net.Conn) (net.Conn, error) {
	limited := &io.LimitedReader{R: conn, N: maxUpgrade}
	reader := bufio.NewReaderSize(limited, 4<<10)
	req, err := http.ReadRequest(reader)
	if err != nil {
		return nil, fmt.Errorf("neither TLS nor HTTP is spoken: %w", err)
	}
	answer := &hijacked{conn: conn, header: http.Header{}, reader: reader}
	if req.URL.Path != webSocketPath {
		http.Error(answer, "Agents connect here: to "+webSocketPath+" by WebSocket, or to the port itself by gRPC and TLS.", http.StatusNotFound)
		return nil, fmt.Errorf("a request for %s, which is not here", readable(req.URL.Path, maxTarget))
	}
	limited.N = 1<<63 - 1
	ws, err := websocket.Accept(answer, req, &websocket.AcceptOptions{
		Subprotocols:       []string{webSocketProtocol},
		InsecureSkipVerify: true, // of the origin: a page in a browser has no certificate to go on with
	})
	if err != nil {
		return nil, err
	}
	if ws.Subprotocol() != webSocketProtocol {
		_ = ws.CloseNow()
		return nil, fmt.Errorf("a WebSocket that is no agent's: it does not offer the protocol %s", webSocketProtocol)
	}
	return newWebSocket(ws, conn), nil
}

// hijacked is the answer to the one request of a connection, and then the
// connection.
type hijacked struct {
	conn   net.Conn
	header http.Header
	reader *bufio.Reader
	wrote  bool
}

// Header implements http.ResponseWriter.
func (h *hijacked) Header() http.Header { return h.header }

// WriteHeader implements http.ResponseWriter.
func (h *hijacked) WriteHeader(code int) {
	if h.wrote {
		return
	}
	h.wrote = true
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", code, http.StatusText(code))
	if code != http.StatusSwitchingProtocols {
		h.header.Set("Connection", "close")
	}
	_ = h.header.Write(&b)
	b.WriteString("\r\n")
	_, _ = h.conn.Write(b.Bytes())
}

// Write implements http.ResponseWriter.
func (h *hijacked) Write(b []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	return h.conn.Write(b)
}

// Hijack implements http.Hijacker.
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(h.reader, bufio.NewWriterSize(h.conn, 4<<10)), nil
}

// prefixed is a connection of which something was read already.
type prefixed struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
