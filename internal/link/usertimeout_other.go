//go:build !linux

package link

import (
	"net"
	"time"
)

// setUserTimeout is for Linux; elsewhere keepalive has to do.
func setUserTimeout(net.Conn, time.Duration) {}
