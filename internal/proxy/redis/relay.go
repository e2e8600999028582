package redis

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Relay is the agent's side. It lets the hub read Argo CD's cached data about Applications from the cluster's Redis, and
// nothing else. It checks every request of the hub.
type Relay struct {
	Redis Endpoint
	Idle  time.Duration // a silent connection is closed after this time: default 2 min
	Log   *slog.Logger
}

// relayLimits bound the hub's requests.
var relayLimits = limits{bulk: 4 << 10, elements: 1024, total: 2 << 20}

// Serve serves one connection of the hub until either end closes it, or ctx ends. It takes ownership of conn.
func (r *Relay) Serve(ctx context.Context, conn net.Conn) error {
	defer func() { _ = conn.Close() }()
	redis, err := r.Redis.connect(ctx)
	if err != nil {
		r.refuse(conn, "cannot reach the cluster's Redis: "+err.Error())
		return err
	}
	defer func() { _ = redis.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = conn.Close()
		_ = redis.Close()
	})
	defer stop()

	var replies sync.WaitGroup
	var refusing atomic.Bool
	replies.Go(func() {
		_, _ = io.Copy(conn, redis)
		if !refusing.Load() {
			_ = conn.Close()
		}
	})
	err = r.forward(conn, redis)
	if errors.Is(err, errProtocol) || errors.Is(err, errRefused) {
		refusing.Store(true)
		// Redis replies to the earlier requests and then ends its side.
		_ = redis.SetReadDeadline(time.Now().Add(dialTimeout))
		if half, ok := redis.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		replies.Wait()
		r.refuse(conn, err.Error())
		return err
	}
	_ = redis.Close()
	_ = conn.Close()
	replies.Wait()
	return err
}

func (r *Relay) refuse(conn net.Conn, message string) {
	_ = conn.SetWriteDeadline(time.Now().Add(dialTimeout))
	_, _ = conn.Write(errorReply("ERR " + message))
}

var errRefused = errors.New("refused by the agent")

// forward passes on the requests that the hub can make.
func (r *Relay) forward(conn, redis net.Conn) error {
	idle := r.Idle
	orDefault(&idle, 2*time.Minute)
	out := bufio.NewWriterSize(redis, bufferSize)
	requests := newCommandReader(readFunc(func(b []byte) (int, error) {
		if err := out.Flush(); err != nil {
			return 0, fmt.Errorf("write to the cluster's Redis: %w", err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(idle))
		return conn.Read(b)
	}), relayLimits)
	for {
		cmd, err := requests.next()
		if err == nil {
			err = permit(cmd)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			_ = out.Flush()
			return err
		}
		_, _ = out.Write(cmd.raw) // Flush returns the error
	}
}

// readFunc implements io.Reader.
type readFunc func(b []byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// Prefixes of the keys and channels that the hub can read.
var (
	readableKeys     = [][]byte{[]byte("app|managed-resources|"), []byte("app|resources-tree|"), []byte("cluster|info|")}
	readableChannels = [][]byte{[]byte("app|managed-resources|")}
)

// permit returns an error unless the hub can make a request.
func permit(c command) error {
	if c.inline {
		return fmt.Errorf("%w: inline request", errRefused)
	}
	var room [16]byte
	name, names, prefixes := upper(c.args[0], &room), c.args[1:], readableKeys
	switch string(name) {
	case "GET", "TTL", "STRLEN":
		if len(names) != 1 {
			return fmt.Errorf("%w: %s with %d keys", errRefused, name, len(names))
		}
	case "MGET", "EXISTS":
	case "SUBSCRIBE", "UNSUBSCRIBE":
		prefixes = readableChannels
	case "PING":
		if len(names) == 0 {
			return nil
		}
		prefixes = nil
	default:
		return fmt.Errorf("%w: command %s is not allowed", errRefused, name)
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: %s without keys", errRefused, name)
	}
	for _, key := range names {
		if !hasAnyPrefix(key, prefixes) {
			return fmt.Errorf("%w: %s of a name that is not Argo CD's state of an Application", errRefused, name)
		}
	}
	return nil
}

func hasAnyPrefix(key []byte, prefixes [][]byte) bool {
	for _, prefix := range prefixes {
		if bytes.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
