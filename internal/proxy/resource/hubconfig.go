package resource

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// HubConfig is what a Hub needs. Zero durations and numbers mean the default.
type HubConfig struct {
	// Dial opens a tunnel to the Agent half of an agent. It fails at once, with a NotConnectedError, while the agent is
	// away, and with an UnknownAgentError for one that is not registered. A tunnel is opened for the next request even if
	// the caller who needed it has left meanwhile. Its deadlines have to work: net/http's server stops reading by them.
	Dial func(ctx context.Context, agent string) (net.Conn, error)

	// Caller names the agent that a caller may reach by the certificate it has shown. It is asked for every request, so
	// that a revoked certificate is refused on connections that are open already; an error refuses. An empty name with no
	// error, or an UnknownAgentError where there is a token, is a shared certificate: then Token decides.
	Caller func(state *tls.ConnectionState) (agent string, err error)

	// Token names the agent of a bearer token which came with a shared certificate. Nil: there are no such tokens.
	Token func(state *tls.ConnectionState, token string) (agent string, err error)

	// Observe is told of every request when it has ended. It must not wait.
	Observe func(RequestResult)

	Log   *slog.Logger  // nil: silent
	Trace *trace.Tracer // nil: nothing is traced

	DialTimeout time.Duration // 10 s: to open a tunnel
	FirstByte   time.Duration // 75 s: to the first byte of an answer that is no stream; API servers give up after 60 s themselves
	Patience    time.Duration // 3 s: to the first byte where there is a last known copy
	TunnelIdle  time.Duration // 30 s: how long an unused tunnel is kept; has to be below the Agent's own

	IdlePerAgent int // 8 unused tunnels
	IdleTotal    int // 1000 unused tunnels
	PerAgent     int // 200 requests at a time, streams included; below the number of tunnels, which are refused less politely
	Total        int // 20000 requests at a time

	CopyPerAgent int // 32 MiB of last known copies
	CopyTotal    int // 512 MiB of them; equal documents of several agents count once

	Connections    int           // 20000 connections of callers; beyond it those that idle longest are closed
	ConnectionIdle time.Duration // 20 s: how long an unused connection of a caller is kept
}

func (c *HubConfig) setDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(RequestResult) {}
	}
	orDefault(&c.DialTimeout, 10*time.Second)
	orDefault(&c.FirstByte, 75*time.Second)
	orDefault(&c.Patience, 3*time.Second)
	orDefault(&c.TunnelIdle, 30*time.Second)
	orDefault(&c.IdlePerAgent, 8)
	orDefault(&c.IdleTotal, 1000)
	orDefault(&c.PerAgent, 200)
	orDefault(&c.Total, 20000)
	orDefault(&c.CopyPerAgent, 32<<20)
	orDefault(&c.CopyTotal, 512<<20)
	orDefault(&c.Connections, 20000)
	orDefault(&c.ConnectionIdle, 20*time.Second)
}

func orDefault[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}

// RequestResult is what became of a request.
type RequestResult struct {
	Agent       string // empty: the caller could not be told
	Request     Request
	Code        int  // 0: the caller went away before there was an answer
	FromCache   bool // answered from the last known copy
	FirstByte   time.Duration
	Total       time.Duration
	Upgrade     bool
	Setting     string // of a refusal by policy: which setting decided
	Application string // the Application on whose behalf it was allowed, if that was the reason
}

// NotConnectedError says that an agent is away.
type NotConnectedError struct {
	Agent string
	Since time.Time // zero: it has not been here since the principal started
	Why   string    // what is known beyond that; it is all that is said
}

func (e *NotConnectedError) Error() string {
	if e.Why != "" {
		return e.Why
	}
	if e.Since.IsZero() {
		return fmt.Sprintf("agent %s is not connected, and was not since this principal started", e.Agent)
	}
	return fmt.Sprintf("agent %s is not connected since %s", e.Agent, e.Since.UTC().Format(time.RFC3339))
}

// UnknownAgentError says that no agent of that name is registered.
type UnknownAgentError struct{ Agent string }

func (e *UnknownAgentError) Error() string { return fmt.Sprintf("no agent %q is registered", e.Agent) }
