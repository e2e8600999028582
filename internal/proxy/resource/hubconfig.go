package resource

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// HubConfig configures a Hub. Zero durations and numbers mean the default.
type HubConfig struct {
	// Dial opens a tunnel to an agent. It returns a NotConnectedError at once if the agent is disconnected, and an
	// UnknownAgentError if it is not registered. The tunnel is used for the next request if its caller has disconnected.
	// Its deadlines must work, because net/http's server uses them.
	Dial func(ctx context.Context, agent string) (net.Conn, error)

	// Caller returns the agent that a client certificate gives access to. It is called for each request, so that a revoked
	// certificate is denied on open connections. "" without an error, or an UnknownAgentError if there is a token, means a
	// shared certificate: then Token decides.
	Caller func(state *tls.ConnectionState) (agent string, err error)

	// Token returns the agent of a bearer token that came with a shared certificate. May be nil.
	Token func(state *tls.ConnectionState, token string) (agent string, err error)

	// User returns the client that presents a certificate, for the audit log and the Agent. If nil, it is not known.
	User func(state *tls.ConnectionState) Caller

	// Observe is called after each request. It must not block.
	Observe func(RequestResult)

	Log   *slog.Logger  // may be nil
	Trace *trace.Tracer // may be nil
	Audit *audit.Log    // may be nil

	DialTimeout     time.Duration // 10 s: to open a tunnel
	FirstByte       time.Duration // 75 s: to the first byte of a response, except streams; the timeout of API servers is 60 s
	CachedFirstByte time.Duration // 3 s: to the first byte if there is a cached document

	IdlePerAgent int // 32 idle tunnels, so that as many callers at a time need no new ones
	PerAgent     int // 200 requests in flight, including streams; must be below the limit of tunnels
	Connections  int // 20000 connections of callers; the longest idle ones are closed first
}

func (c *HubConfig) setDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(RequestResult) {}
	}
	if c.User == nil {
		c.User = func(*tls.ConnectionState) Caller { return Caller{} }
	}
	orDefault(&c.DialTimeout, 10*time.Second)
	orDefault(&c.FirstByte, 75*time.Second)
	orDefault(&c.CachedFirstByte, 3*time.Second)
	orDefault(&c.IdlePerAgent, 32)
	orDefault(&c.PerAgent, 200)
	orDefault(&c.Connections, 20000)
}

func orDefault[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}

// RequestResult describes a finished request.
type RequestResult struct {
	Request   Request
	Code      int  // 0 if the caller disconnected before the response
	FromCache bool // cached discovery document
	FirstByte time.Duration
	Setting   string // the setting that denied it, if any
}

// NotConnectedError means that an agent is disconnected.
type NotConnectedError struct {
	Agent   string
	Since   time.Time // zero if it was not connected since the principal started
	Message string    // replaces the default message
}

func (e *NotConnectedError) Error() string {
	if e.Message != "" {
		return e.Message
	}
	if e.Since.IsZero() {
		return fmt.Sprintf("agent %s has not been connected since this principal started", e.Agent)
	}
	return fmt.Sprintf("agent %s is disconnected since %s", e.Agent, e.Since.UTC().Format(time.RFC3339))
}

// UnknownAgentError means that no agent of that name is registered.
type UnknownAgentError struct{ Agent string }

func (e *UnknownAgentError) Error() string { return fmt.Sprintf("no agent %q is registered", e.Agent) }
