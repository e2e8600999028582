package redis

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Target is where the cache of an Application of the hub is kept.
type Target struct {
	Agent   string
	Local   string // its name in the agent's keys: "<namespace>_<name>", or "<name>" in the agent's Argo CD namespace
	Rewrite bool   // values pass through Config.Rewrite

	// Frozen says why no agent answers for an Application although one of them has its namespace; then nothing else is
	// set. Only the hub's own controller may have written a tree for it: what the hub's Redis has is the answer. If it
	// has none the answer is an error with this reason, because Argo CD would wait for a refresh that nobody carries out.
	Frozen string
}

// Resolver knows whose an Application is. It is asked for every key and must not wait. The namespace is empty for
// Applications in Argo CD's own namespace on the hub.
type Resolver interface {
	Resolve(namespace, name string) (Target, bool)
}

// Dialer opens a connection to the Relay of an agent. It fails at once, with a NotConnectedError, while the agent is away.
type Dialer interface {
	Dial(ctx context.Context, agent string) (net.Conn, error)
}

// NotConnectedError says that an agent is away.
type NotConnectedError struct {
	Agent string
	Since time.Time // zero: it has not been here since the principal started
}

func (e *NotConnectedError) Error() string {
	if e.Since.IsZero() {
		return fmt.Sprintf("agent %s is not connected", e.Agent)
	}
	return fmt.Sprintf("agent %s is not connected since %s", e.Agent, e.Since.UTC().Format(time.RFC3339))
}

// Config is what a Server needs. Zero durations and numbers mean the default.
type Config struct {
	Hub     Endpoint // the Redis behind the proxy. Its credentials are not used: clients bring theirs
	Agents  Resolver
	Tunnels Dialer

	// Rewrite changes a value that came from an agent before the hub sees it. It is called for Targets that ask for it.
	Rewrite func(agent string, kind Kind, json []byte) []byte

	// Patience is how long a client waits for an agent while there is a last known value, Timeout if there is none.
	// Timeout has to be below the read timeout of clients (3 s in go-redis).
	Patience time.Duration // 500 ms
	Timeout  time.Duration // 2 s

	CacheBytes int           // bound of all cached values: 256 MiB
	CacheIdle  time.Duration // a value that nobody read for so long is not kept fresh: 2 min
	CacheAge   time.Duration // a fresh value is asked for again after: 10 min
	MaxValue   int           // largest value taken from an agent, uncompressed: 64 MiB

	MaxClients   int           // 20,000
	MaxPipeline  int           // requests of one client that are under way: 1,024
	MaxOutput    int           // bytes a client may leave unread before it is read from no further: 64 MiB
	MaxRequest   int           // bytes of one request: 512 MiB
	FirstRequest time.Duration // a client has to say something within: 10 s
	Idle         time.Duration // a client that is silent for so long, and not subscribed, is cut: 10 min
	Stall        time.Duration // a client that does not take a byte for so long is cut: 30 s

	// Answer is how long the hub's Redis may leave a request of a shared connection, or of a handshake, without an answer
	// before the connection is given up: 10 s. It may hang, or be another one now.
	Answer time.Duration

	Lanes int // shared connections to Redis for each identity: 1

	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	orDefault(&c.Patience, 500*time.Millisecond)
	orDefault(&c.Timeout, 2*time.Second)
	orDefault(&c.CacheBytes, 256<<20)
	orDefault(&c.CacheIdle, 2*time.Minute)
	orDefault(&c.CacheAge, 10*time.Minute)
	orDefault(&c.MaxValue, 64<<20)
	orDefault(&c.MaxClients, 20_000)
	orDefault(&c.MaxPipeline, 1024)
	orDefault(&c.MaxOutput, 64<<20)
	orDefault(&c.MaxRequest, 512<<20)
	orDefault(&c.FirstRequest, 10*time.Second)
	orDefault(&c.Idle, 10*time.Minute)
	orDefault(&c.Stall, 30*time.Second)
	orDefault(&c.Answer, 10*time.Second)
	orDefault(&c.Lanes, 1)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}
