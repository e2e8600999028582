package redis

import (
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

// Relay is the agent's end: it lets the hub read, in the spoke's Redis, what Argo CD shows of Applications, and nothing
// else. It does not depend on a hub that keeps to this.
type Relay struct {
	Redis Endpoint
	Idle  time.Duration // a connection that is silent for so long is closed: default 2 min
	Log   *slog.Logger
}

// What the hub may send. Neither requests nor keys need to be long.
var relayLimits = limits{bulk: 4 << 10, elements: 1024, total: 2 << 20}

// Serve carries one connection of the hub until either end closes it, or ctx ends. It owns conn.
func (r *Relay) Serve(ctx context.Context, conn net.Conn) error {
	defer func() { _ = conn.Close() }()
	redis, err := r.Redis.connect(ctx)
	if err != nil {
		r.refuse(conn, "ERR the Redis of the cluster cannot be reached: "+err.Error())
		return err
	}
	defer func() { _ = redis.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = conn.Close()
		_ = redis.Close()
	})
	defer stop()

	var back sync.WaitGroup
	var refusing atomic.Bool
	back.Go(func() {
		_, _ = io.Copy(conn, redis)
		if !refusing.Load() {
			_ = conn.Close() // Redis is gone, and the hub shall know
		}
	})
	err = r.forward(conn, redis)
	if errors.Is(err, errProtocol) || errors.Is(err, errRefused) {
		refusing.Store(true)
		// What was asked before is answered first: Redis ends its side when it has.
		_ = redis.SetReadDeadline(time.Now().Add(dialTimeout))
		if half, ok := redis.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		back.Wait()
		r.refuse(conn, "ERR "+err.Error())
		return err
	}
	_ = redis.Close()
	_ = conn.Close()
	back.Wait()
	return err
}

func (r *Relay) refuse(conn net.Conn, message string) {
	_ = conn.SetWriteDeadline(time.Now().Add(dialTimeout))
	_, _ = conn.Write(errorReply(message))
}

var errRefused = errors.New("refused by the agent")

// forward passes on the requests that the hub may make, in as few writes as they came.
func (r *Relay) forward(conn, redis net.Conn) error {
	idle := r.Idle
	if idle == 0 {
		idle = 2 * time.Minute
	}
	var in buffer
	var args [][]byte
	for {
		unread := in.unread()
		var pass, need int
		for {
			c, more, err := readCommand(unread[pass:], args[:0], relayLimits)
			if err == nil && c.length > 0 && len(c.args) > 0 {
				err = permit(c)
			}
			if err != nil {
				if pass > 0 {
					_, _ = redis.Write(unread[:pass])
				}
				return err
			}
			if c.length == 0 {
				need = more
				break
			}
			args = c.args
			pass += c.length
		}
		if pass > 0 {
			if _, err := redis.Write(unread[:pass]); err != nil {
				return fmt.Errorf("write to the Redis of the cluster: %w", err)
			}
			in.r += pass
		}
		_ = conn.SetReadDeadline(time.Now().Add(idle))
		if err := in.fill(conn, need); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read from the hub: %w", err)
		}
	}
}

// Names that the hub may read. A key of an Application is not enough: it has to be one that Argo CD shows.
var (
	readable = [][]byte{[]byte("app|managed-resources|"), []byte("app|resources-tree|"), []byte("cluster|info|")}
	channels = [][]byte{[]byte("app|managed-resources|")}
)

// permit reports whether the hub may make a request. Whatever is not listed is refused.
func permit(c command) error {
	if c.length > 0 && len(c.raw) != c.length {
		return fmt.Errorf("%w: an inline request", errRefused)
	}
	var room [16]byte
	name, names, prefixes := upper(c.args[0], &room), c.args[1:], readable
	switch string(name) {
	case "GET", "TTL", "STRLEN":
		if len(names) != 1 {
			return fmt.Errorf("%w: %s of %d keys", errRefused, name, len(names))
		}
	case "MGET", "EXISTS":
	case "SUBSCRIBE", "UNSUBSCRIBE":
		prefixes = channels
	case "PING":
		if len(names) == 0 {
			return nil
		}
		prefixes = nil
	default:
		return fmt.Errorf("%w: %s is not among the commands that a hub may use", errRefused, name)
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: %s of nothing", errRefused, name)
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
