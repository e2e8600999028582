package sharedmode

import (
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/mem"
)

// message is an encoded request or response.
type message []byte

// codec forwards messages unchanged.
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

// Name implements encoding.CodecV2. Clients of Argo CD expect this name.
func (codec) Name() string { return "proto" }

// agentConn is a connection of an agent. The tunnel has authenticated the agent and encrypts the connection.
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

// RemoteAddr implements net.Conn. gRPC passes it to the handler of a request.
func (c *agentConn) RemoteAddr() net.Addr { return agentAddr(c.agent) }

// agentAddr is the name of the agent at the other end of a connection.
type agentAddr string

// Network implements net.Addr.
func (agentAddr) Network() string { return "tunnel" }

// String implements net.Addr.
func (a agentAddr) String() string { return string(a) }
