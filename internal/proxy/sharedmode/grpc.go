package sharedmode

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
)

// message is a request or an answer, as it travels.
type message []byte

// codec passes messages on as they are.
type codec struct{}

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(message)
	if !ok {
		return nil, errors.New("not a message")
	}
	return mem.BufferSlice{mem.SliceBuffer(m)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return errors.New("not a message")
	}
	*m = data.Materialize()
	return nil
}

// Name implements encoding.CodecV2: it is what Argo CD's clients expect.
func (codec) Name() string { return "proto" }

// agentConn is a connection of an agent, which the tunnel has proven.
type agentConn struct {
	net.Conn
	agent  string
	once   sync.Once
	closed chan struct{}
}

// Close implements net.Conn.
func (c *agentConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// agentInfo says whose a connection is.
type agentInfo struct {
	credentials.CommonAuthInfo
	agent string
}

// AuthType implements credentials.AuthInfo.
func (agentInfo) AuthType() string { return "tunnel" }

// agentCredentials reads off a connection whose it is; the tunnel encrypts.
type agentCredentials struct{}

// ServerHandshake implements credentials.TransportCredentials.
func (agentCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := conn.(*agentConn)
	if !ok {
		return nil, nil, errors.New("not a connection of an agent")
	}
	return conn, agentInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, agent: c.agent}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (agentCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("for servers only")
}

// Info implements credentials.TransportCredentials.
func (agentCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tunnel"}
}

// Clone implements credentials.TransportCredentials.
func (c agentCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials.
func (agentCredentials) OverrideServerName(string) error { return nil }

// listener hands connections to a server.
type listener struct {
	conns chan net.Conn
	done  <-chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (*listener) Close() error { return nil }

// Addr implements net.Listener.
func (*listener) Addr() net.Addr { return &net.UnixAddr{Name: "tunnels", Net: "tunnel"} }
