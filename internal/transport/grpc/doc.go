// Package grpc implements transport.Session with gRPC: one HTTP/2 connection per agent, on it one Sync stream for
// messages, one Tunnel stream for each tunnel, and calls of Enroll for certificates. The agent's connection may run
// inside a WebSocket.
//
// Data frames of tunnels are written and read without the generated type. The data is then copied once instead of
// twice, and its memory comes from gRPC's buffer pool. With the generated type, which allocates memory for each frame,
// BenchmarkTunnelThroughput reaches a fifth of the rate. All other frames use the generated type.
package grpc
