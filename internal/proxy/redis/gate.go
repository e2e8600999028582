package redis

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"io"
	"net"
)

// Gate asks a client of an agent for the agent's own password before anything of it is carried to the hub, which knows
// clients by their agent. The connection that it returns goes on after that.
func Gate(conn net.Conn, password string) (net.Conn, error) {
	var in buffer
	for {
		c, need, err := readCommand(in.unread(), nil, limits{bulk: firstBulk, elements: firstElements, total: maxLine})
		if err != nil {
			_, _ = conn.Write(errorReply("ERR " + err.Error()))
			return nil, err
		}
		if c.length == 0 {
			if err := in.fill(conn, need); err != nil {
				return nil, err
			}
			continue
		}
		in.r += c.length
		if len(c.args) == 0 {
			continue
		}
		reply, forward, passed := knock(c.args, password)
		if len(reply) > 0 {
			if _, err := conn.Write(reply); err != nil {
				return nil, err
			}
		}
		if passed {
			return &resumed{Conn: conn, first: append(forward, in.unread()...)}, nil
		}
		if isWord(c.args[0], "QUIT") {
			return nil, errors.New("the client has left")
		}
	}
}

// knock answers one request of a client that has not authenticated. forward is what is left of it for the hub.
func knock(args [][]byte, password string) (reply, forward []byte, passed bool) {
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

// resumed is a connection whose first bytes have been read already.
type resumed struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (r *resumed) Read(b []byte) (int, error) {
	if len(r.first) == 0 {
		return r.Conn.Read(b)
	}
	n, err := bytes.NewReader(r.first).Read(b)
	r.first = r.first[n:]
	return n, err
}

// Sorry tells a client of an agent why it is not connected to the hub's Redis.
func Sorry(conn net.Conn, why error) {
	_, _ = io.Copy(conn, bytes.NewReader(errorReply("ERR no connection to the hub's Redis: "+why.Error())))
}
