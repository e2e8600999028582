package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Credentials authenticate a client of Redis. If both fields are empty, the client does not authenticate.
type Credentials struct {
	Username string
	Password string
}

// Endpoint is the address of a Redis server and how to connect to it.
type Endpoint struct {
	Address string // host:port, or the path of a socket

	// TLS is called for every new connection, because CA certificates can be renewed. If nil, TLS is not used.
	TLS func() (*tls.Config, error)

	// Credentials is called for every new connection. If nil, connections do not authenticate.
	Credentials func() (Credentials, error)
}

// Fixed returns credentials that do not change.
func Fixed(username, password string) func() (Credentials, error) {
	return func() (Credentials, error) { return Credentials{Username: username, Password: password}, nil }
}

// FromDirectory reads credentials from the files of a mounted Secret with Argo CD's names: auth (the password) and
// auth_username (optional).
func FromDirectory(dir string) func() (Credentials, error) {
	read := func(name string) (string, error) {
		content, err := os.ReadFile(filepath.Join(dir, name))
		return strings.TrimSpace(string(content)), err
	}
	return func() (Credentials, error) {
		password, err := read("auth")
		if err != nil {
			return Credentials{}, fmt.Errorf("read Redis password: %w", err)
		}
		username, err := read("auth_username")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Credentials{}, fmt.Errorf("read Redis user name: %w", err)
		}
		return Credentials{Username: username, Password: password}, nil
	}
}

const dialTimeout = 5 * time.Second

// dial connects without authentication.
func (e *Endpoint) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	network := "tcp"
	if strings.HasPrefix(e.Address, "/") {
		network = "unix"
	}
	dial, with := (&net.Dialer{}).DialContext, ""
	if e.TLS != nil {
		cfg, err := e.TLS()
		if err != nil {
			return nil, fmt.Errorf("connect to Redis at %s with TLS: %w", e.Address, err)
		}
		dial, with = (&tls.Dialer{Config: cfg}).DialContext, " with TLS"
	}
	conn, err := dial(ctx, network, e.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to Redis at %s%s: %w", e.Address, with, err)
	}
	return conn, nil
}

// connect dials and authenticates with the endpoint's credentials.
func (e *Endpoint) connect(ctx context.Context) (net.Conn, error) {
	var as Credentials
	if e.Credentials != nil {
		var err error
		if as, err = e.Credentials(); err != nil {
			return nil, err
		}
	}
	conn, err := e.dial(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"AUTH", as.Username, as.Password}
	switch {
	case as == Credentials{}:
		return conn, nil
	case as.Username == "":
		args = []string{"AUTH", as.Password}
	}
	if _, err := newRequestConn(conn, shortReply).do(ctx, args...); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("authenticate to Redis at %s: %w", e.Address, err)
	}
	return conn, nil
}

// shortReply bounds a reply without a value.
var shortReply = limits{bulk: maxLine, elements: 16, total: maxLine}

// Ping connects, authenticates and sends PING.
func (e *Endpoint) Ping(ctx context.Context) error {
	conn, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	reply, err := newRequestConn(conn, shortReply).do(ctx, "PING")
	if err != nil {
		return fmt.Errorf("ping Redis: %w", err)
	}
	if len(reply) != 1 || string(reply[0]) != "PONG" {
		return fmt.Errorf("not a Redis server: reply to PING is %q", reply)
	}
	return nil
}
