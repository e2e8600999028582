//go:build !linux

package grpc

import (
	"net"
	"time"
)

// setOptions does nothing outside Linux. Keepalive finds broken connections.
func setOptions(net.Conn, time.Duration) {}

// openFiles returns false: the limit is not known.
func openFiles() (int, bool) { return 0, false }
