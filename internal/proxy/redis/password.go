package redis

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"io"
	"net"
)

// RequirePassword waits until a client has authenticated with the agent's password. The client's later bytes are read
// from the returned connection. It protects the hub's Redis, where the agent's identity is enough.
func RequirePassword(conn net.Conn, password string) (net.Conn, error) {
	requests := newCommandReader(conn, firstLimits)
	for {
		args, err := requests.next()
		if err != nil {
			if errors.Is(err, errProtocol) {
				_, _ = conn.Write(errorReply("ERR " + err.Error()))
			}
			return nil, err
		}
		given, reply, forward := []byte(nil), "+OK\r\n", []byte(nil)
		switch {
		case isWord(args[0], "AUTH") && (len(args) == 2 || len(args) == 3):
			given = args[len(args)-1]
		case isWord(args[0], "HELLO") && len(args) >= 5 && isWord(args[2], "AUTH"):
			given, reply, forward = args[4], "", appendCommand(nil, args[0], args[1])
		}
		accepted := given != nil && subtle.ConstantTimeCompare(given, []byte(password)) == 1
		quit := isWord(args[0], "QUIT")
		switch {
		case accepted, quit:
		case given != nil:
			reply = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
		default:
			reply = "-NOAUTH Authentication required.\r\n"
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return nil, err
		}
		switch {
		case accepted:
			return &prefixedConn{conn, io.MultiReader(bytes.NewReader(forward), requests.r)}, nil
		case quit:
			return nil, errQuit
		}
	}
}

// prefixedConn is a connection of which some bytes were read already.
type prefixedConn struct {
	net.Conn
	from io.Reader
}

// Read implements net.Conn.
func (c *prefixedConn) Read(b []byte) (int, error) { return c.from.Read(b) }

// WriteError reports to a client of an agent why it is not connected to the hub's Redis.
func WriteError(conn net.Conn, err error) {
	_, _ = conn.Write(errorReply("ERR no connection to the hub's Redis: " + err.Error()))
}
