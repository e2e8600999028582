//go:build !linux

package transport

import (
	"net"
	"time"
)

// setOptions is for Linux; elsewhere keepalive has to do.
func setOptions(net.Conn, time.Duration) {}
