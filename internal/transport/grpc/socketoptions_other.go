//go:build !linux

package grpc

import (
	"net"
	"time"
)

// setOptions does nothing outside Linux. Keepalive finds broken connections.
func setOptions(net.Conn, time.Duration) {}
