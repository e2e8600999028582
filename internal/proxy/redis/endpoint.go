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
	"strconv"
	"strings"
	"time"
)

// Credentials are what Redis knows a client by. Both empty: no authentication.
type Credentials struct {
	Username string
	Password string
}

// Endpoint is a Redis and how it is reached.
type Endpoint struct {
	Address string      // host:port, or the path of a socket
	TLS     *tls.Config // nil: none

	// Credentials are asked for at every new connection, so that they can change. nil: none.
	Credentials func() (Credentials, error)
}

// Fixed are credentials that never change.
func Fixed(username, password string) func() (Credentials, error) {
	return func() (Credentials, error) { return Credentials{Username: username, Password: password}, nil }
}

// FromDirectory reads credentials from the files of a mounted Secret, named as Argo CD names them: auth (the password)
// and auth_username, which may be missing.
func FromDirectory(dir string) func() (Credentials, error) {
	read := func(name string) (string, error) {
		content, err := os.ReadFile(filepath.Join(dir, name))
		return strings.TrimSpace(string(content)), err
	}
	return func() (Credentials, error) {
		password, err := read("auth")
		if err != nil {
			return Credentials{}, fmt.Errorf("read the password of Redis: %w", err)
		}
		username, err := read("auth_username")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Credentials{}, fmt.Errorf("read the user name of Redis: %w", err)
		}
		return Credentials{Username: username, Password: password}, nil
	}
}

const dialTimeout = 5 * time.Second

// dial connects without authenticating.
func (e *Endpoint) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	network := "tcp"
	if strings.HasPrefix(e.Address, "/") {
		network = "unix"
	}
	dialer := &net.Dialer{}
	if e.TLS == nil {
		conn, err := dialer.DialContext(ctx, network, e.Address)
		if err != nil {
			return nil, fmt.Errorf("connect to Redis at %s: %w", e.Address, err)
		}
		return conn, nil
	}
	conn, err := (&tls.Dialer{NetDialer: dialer, Config: e.TLS}).DialContext(ctx, network, e.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to Redis at %s with TLS: %w", e.Address, err)
	}
	return conn, nil
}

// connect dials and authenticates with the endpoint's own credentials.
func (e *Endpoint) connect(ctx context.Context) (net.Conn, error) {
	var as Credentials
	if e.Credentials != nil {
		var err error
		if as, err = e.Credentials(); err != nil {
			return nil, err
		}
	}
	return e.connectAs(ctx, state{as: as, proto: 2})
}

// state is what a connection to Redis has besides its commands: who it is, which protocol, which database.
type state struct {
	as    Credentials
	known bool // Redis has accepted as
	proto int
	db    int
}

// connectAs dials and brings the connection into a state.
func (e *Endpoint) connectAs(ctx context.Context, want state) (net.Conn, error) {
	conn, err := e.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := greet(conn, want); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("authenticate to Redis at %s: %w", e.Address, err)
	}
	return conn, nil
}

// greet sends what brings a new connection into a state, and reads the answers.
func greet(conn net.Conn, want state) error {
	var out []byte
	expect := 0
	if want.as.Password != "" || want.as.Username != "" {
		args := []string{"AUTH", want.as.Password}
		if want.as.Username != "" {
			args = []string{"AUTH", want.as.Username, want.as.Password}
		}
		out = appendCommand(out, args...)
		expect++
	}
	if want.proto >= 3 {
		out = appendCommand(out, "HELLO", strconv.Itoa(want.proto))
		expect++
	}
	if want.db != 0 {
		out = appendCommand(out, "SELECT", strconv.Itoa(want.db))
		expect++
	}
	if expect == 0 {
		return nil
	}
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(out); err != nil {
		return err
	}
	replies := newReader(conn, limits{bulk: maxLine, elements: 1024, total: maxLine})
	for range expect {
		reply, err := replies.next()
		if err != nil {
			return err
		}
		if reply[0] == '-' {
			return replyError(strings.TrimSpace(string(reply[1:])))
		}
	}
	return conn.SetDeadline(time.Time{})
}

// Ping connects and authenticates as everybody here does, and asks for a sign of life.
func (e *Endpoint) Ping(ctx context.Context) error {
	conn, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(appendCommand(nil, "PING")); err != nil {
		return fmt.Errorf("ask Redis for a sign of life: %w", err)
	}
	answer := make([]byte, 128)
	n, err := conn.Read(answer)
	switch text := strings.TrimSpace(string(answer[:n])); {
	case err != nil:
		return fmt.Errorf("wait for a sign of life of Redis: %w", err)
	case strings.HasPrefix(text, "-"):
		return fmt.Errorf("the answer of Redis: %s", text[1:])
	case text != "+PONG":
		return fmt.Errorf("whoever answers is not Redis: %q", text)
	}
	return nil
}
