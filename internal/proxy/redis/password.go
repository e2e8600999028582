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
		reply, forward, accepted := checkPassword(args, password)
		if len(reply) > 0 {
			if _, err := conn.Write(reply); err != nil {
				return nil, err
			}
		}
		if accepted {
			return &prefixedConn{conn, io.MultiReader(bytes.NewReader(forward), requests.r)}, nil
		}
		if isWord(args[0], "QUIT") {
			return nil, errQuit
		}
	}
}

// checkPassword answers one request of a client that has not authenticated. forward is the part of it for the hub.
func checkPassword(args [][]byte, password string) (reply, forward []byte, accepted bool) {
	matches := func(given []byte) bool { return subtle.ConstantTimeCompare(given, []byte(password)) == 1 }
	wrong := errorReply("WRONGPASS invalid username-password pair or user is disabled.")
	switch {
	case isWord(args[0], "AUTH") && (len(args) == 2 || len(args) == 3):
		if !matches(args[len(args)-1]) {
			return wrong, nil, false
		}
		return []byte("+OK\r\n"), nil, true
	case isWord(args[0], "HELLO") && len(args) >= 5 && isWord(args[2], "AUTH"):
		if !matches(args[4]) {
			return wrong, nil, false
		}
		return nil, appendCommand(nil, args[0], args[1]), true
	case isWord(args[0], "QUIT"):
		return []byte("+OK\r\n"), nil, false
	}
	return errorReply("NOAUTH Authentication required."), nil, false
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
