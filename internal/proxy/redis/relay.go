package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Relay is the agent's side. It lets the hub read Argo CD's cached data about Applications from the cluster's Redis, and
// nothing else. It checks every request of the hub.
type Relay struct {
	Redis Endpoint
}

const (
	relayIdle    = 2 * time.Minute  // a silent connection is closed
	relayTimeout = 10 * time.Second // for a reply of Redis, and for bytes that the hub takes
	relayPending = 512              // requests without a reply
)

// relayLimits bound the hub's requests.
var relayLimits = limits{bulk: 4 << 10, elements: 1024, total: 2 << 20}

// Serve serves one connection of the hub until either end closes it, or ctx ends. It takes ownership of conn.
func (r *Relay) Serve(ctx context.Context, conn net.Conn) error {
	f := newReplyForwarder(conn, relayTimeout, relayTimeout)
	f.message = func(frame []byte, _ message) error { return f.write(frame, false) }
	redis, err := r.Redis.connect(ctx)
	if err != nil {
		_ = f.answer(errorReply("ERR cannot reach the cluster's Redis: " + err.Error()))
		f.fail(err)
		return err
	}
	f.connect(redis)
	stop := context.AfterFunc(ctx, func() { f.fail(ctx.Err()) })
	defer stop()
	var replies sync.WaitGroup
	replies.Go(func() { f.receive(hubReplyLimits) })
	err = r.forward(conn, f)
	if errors.Is(err, errProtocol) || errors.Is(err, errRefused) {
		_ = f.answer(errorReply("ERR " + err.Error()))
	}
	f.fail(err)
	replies.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

var errRefused = errors.New("refused by the agent")

// forward forwards the requests that the hub can make.
func (r *Relay) forward(conn net.Conn, f *replyForwarder) error {
	requests := newCommandReader(readFunc(func(b []byte) (int, error) {
		if err := f.waitRoom(relayPending); err != nil {
			return 0, err
		}
		_ = conn.SetReadDeadline(time.Now().Add(relayIdle))
		return conn.Read(b)
	}), relayLimits)
	for {
		args, err := requests.next()
		if err == nil {
			err = permit(args)
		}
		switch {
		case err != nil:
		case classes[commandName(args)] == subscribe:
			err = f.subscribe(args, "")
		default:
			f.forward(requests.raw)
		}
		if err != nil {
			return err
		}
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
func permit(args [][]byte) error {
	name, names, prefixes := commandName(args), args[1:], readableKeys
	switch name {
	case "GET", "TTL":
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
		if !slices.ContainsFunc(prefixes, func(prefix []byte) bool { return bytes.HasPrefix(key, prefix) }) {
			return fmt.Errorf("%w: %s of a name that is not Argo CD's state of an Application", errRefused, name)
		}
	}
	return nil
}
