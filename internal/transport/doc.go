// Package link carries engine messages between hub and agent: one connection
// per agent, dialled by the agent, and on it one gRPC stream of CloudEvents
// (package wire). What the messages mean is not its business.
//
// The hub runs a Server, an agent a Dialer. Either makes a Conn for each
// session and tells its Events about it, from one goroutine per Conn: Connected,
// then Received for each message, then Disconnected. Received may wait; the peer
// is then slowed down by the transport. Conn.Send never waits: a peer that does
// not read is cut, and catches up when it returns.
//
// On the same connection there are tunnels: byte streams from the hub to targets
// of the agent, such as its API server, each a gRPC stream and on both ends a
// net.Conn (Server.OpenTunnel, DialerConfig.Tunnels). They end with the session.
//
// Who is at the other end is decided by the transport (Authenticate), never by
// what a message says. Everything that a stranger can cause is bounded:
// connections, handshakes, time to finish one, streams, sizes, log lines.
//
// A Server or Dialer lives from Run's beginning to its end. Run returns when its
// context is cancelled, after it has said goodbye, and leaves no goroutine
// behind.
package transport
