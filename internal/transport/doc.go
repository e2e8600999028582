// Package transport carries engine messages between hub and agent. Each agent has one session, which the agent opens,
// and which carries the messages as CloudEvents (package wire) and tunnels (package tunnel).
//
// Session is the boundary to the network. Package grpc implements it with gRPC over TLS, also inside a WebSocket
// (package websocket). Package memory of the fleet benchmark implements it within one process. Nothing above imports gRPC.
//
// The hub has a Server, an agent has a Dialer. Both make a Conn for each session and call Events from one goroutine per
// Conn: Connected, then Received for each message, then Disconnected. Received may block; the transport then slows the
// peer down. Conn.Send never blocks: a peer that does not read is disconnected, and catches up when it returns.
//
// The transport decides who the peer is, never what a message says. Everything that an unknown client can cause is
// bounded: connections, handshakes, the time for one, streams, sizes and log lines.
package transport
