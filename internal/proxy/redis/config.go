package redis

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"
)

// Target says which agent has the cache of an Application of the hub.
type Target struct {
	Agent   string
	Local   string // name in the agent's keys: "<namespace>_<name>", or "<name>" in the agent's Argo CD namespace
	Rewrite bool   // the agent's Applications have other names on the hub

	// Frozen is the reason why no agent answers for an Application in an agent's namespace. The other fields are empty
	// then. The hub's controller can have written a tree, so the hub's Redis answers. If it has no value, the reply is
	// an error with this reason, because Argo CD would wait for a refresh that does not happen.
	Frozen string
}

// Resolver finds the agent of an Application. It is called for every key and must not block. The namespace is empty for
// Applications in Argo CD's namespace on the hub.
type Resolver interface {
	Resolve(namespace, name string) (Target, bool)
}

// DialFunc opens a connection to the Relay of an agent. It fails immediately if the agent is not connected.
type DialFunc func(ctx context.Context, agent string) (net.Conn, error)

// Config configures a Server. Zero durations and numbers select the default.
type Config struct {
	Hub    Endpoint // the hub's Redis. Its credentials are not used, because clients authenticate themselves.
	Agents Resolver
	Dial   DialFunc
	TLS    *tls.Config // for clients; if nil, they connect without TLS

	// Rewrite changes a value of an agent before the hub receives it: for Targets with Rewrite, and managed resources of
	// an Application that has another name in the agent's keys (local) than in the hub's (hub). It fails if the result would
	// have more than most bytes.
	Rewrite func(t Target, kind Kind, hub string, json []byte, most int) ([]byte, error)

	// A client waits for an agent for at most StaleAfter if there is a last known value, and for Timeout otherwise.
	// Timeout must be below the read timeout of clients (3 s in go-redis).
	StaleAfter time.Duration // 500 ms
	Timeout    time.Duration // 2 s

	CacheBytes int // of all cached values: 256 MiB

	// ValueBytes limits the memory for large values of all agents while they are read and converted: 256 MiB. One agent
	// can use a quarter.
	ValueBytes int

	CacheIdle time.Duration // a value that is not read for this time is not kept fresh: 2 min

	// MaxClients limits the clients, and with them the connections to the hub's Redis: 5,000. Redis accepts 10,000 by
	// default.
	MaxClients   int
	MaxPipeline  int           // requests of one client without a reply above which no more are read: 1,024
	FirstRequest time.Duration // time for the TLS handshake, and for the first request: 10 s
	IdleTimeout  time.Duration // a silent client that is not subscribed is disconnected: 10 min
	WriteTimeout time.Duration // a client that takes no bytes is disconnected: 30 s

	ReplyTimeout time.Duration // a client to which Redis does not reply is disconnected: 10 s

	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	orDefault(&c.StaleAfter, 500*time.Millisecond)
	orDefault(&c.Timeout, 2*time.Second)
	orDefault(&c.CacheBytes, 256<<20)
	orDefault(&c.ValueBytes, 256<<20)
	orDefault(&c.CacheIdle, 2*time.Minute)
	orDefault(&c.MaxClients, 5_000)
	orDefault(&c.MaxPipeline, 1024)
	orDefault(&c.FirstRequest, 10*time.Second)
	orDefault(&c.IdleTimeout, 10*time.Minute)
	orDefault(&c.WriteTimeout, 30*time.Second)
	orDefault(&c.ReplyTimeout, 10*time.Second)
	c.Log = orDiscard(c.Log)
	return c
}

// valueShare returns what one agent can use of ValueBytes.
func (c *Config) valueShare() int64 { return max(int64(c.ValueBytes/4), 1) }

// resolve returns the agent to which a key belongs. It returns false for a key of the hub.
func (c *Config) resolve(name []byte) (appKey, Target, bool) {
	key, ok := parseKey(name)
	if !ok {
		return appKey{}, Target{}, false
	}
	target, ok := c.Agents.Resolve(key.names())
	return key, target, ok && target.Agent != ""
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
