package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Limits bound tunnels. Zero means the default.
type Limits struct {
	PerAgent int           // in use at the same time: 256; one target gets at most seven eighths
	Total    int           // of all agents together: 8192
	Standby  int           // standby tunnels per agent and target: 2; negative: none
	Open     time.Duration // for the agent to open a requested tunnel: 10 s
}

const (
	idleTimeout    = time.Hour        // without a byte in either direction
	standbyTimeout = 2 * time.Minute  // lifetime of a standby tunnel. An agent waits three times as long.
	flushTimeout   = 10 * time.Second // for data that was written before Close on the hub
)

// WithDefaults returns the limits with defaults for those that are zero.
func (l Limits) WithDefaults() Limits {
	l.PerAgent = cmp.Or(l.PerAgent, 256)
	l.Total = cmp.Or(l.Total, 8192)
	l.Standby = cmp.Or(l.Standby, 2)
	l.Open = cmp.Or(l.Open, 10*time.Second)
	return l
}

// Counters count tunnels. Bytes are those of the connections that they carry.
type Counters struct {
	Open, Standby     atomic.Int64 // current numbers
	Opened            atomic.Uint64
	BytesIn, BytesOut atomic.Uint64
}

// Reasons for a refused tunnel, for Config.Refuse.
const (
	NotConnected = "tunnel_not_connected" // the agent has no session
	limitReached = "tunnel_limit"         // the agent has too many
	totalReached = "tunnel_total"         // all agents together have too many
	agentRefused = "tunnel_agent"         // the agent refused
	timedOut     = "tunnel_timeout"       // the agent did not open it in time
	unknownToken = "tunnel_token"         // a stream that was not requested
	noFirstFrame = "tunnel_silent"        // a stream without a first frame
	targetDenied = "tunnel_target"        // a target that the agent may not use, or that does not exist
)

// Config is what the tunnels of all sessions of one side share. All fields are required.
type Config struct {
	Limits   Limits
	Counters *Counters
	Refuse   func(reason string)                       // counts a refused tunnel
	Log      func(peer string, err error) *slog.Logger // logs the same error of the same peer once
	Running  *sync.WaitGroup                           // goroutines of tunnels
}

// NotConnectedError reports that an agent has no session with this principal.
type NotConnectedError struct {
	Agent string
	Since time.Time // zero if unknown
}

func (e *NotConnectedError) Error() string {
	if e.Since.IsZero() {
		return fmt.Sprintf("agent %s is not connected", e.Agent)
	}
	return fmt.Sprintf("agent %s is not connected since %s", e.Agent, e.Since.UTC().Format(time.RFC3339))
}

// NotYetConnected reports whether the agent has not connected since this principal started.
func (e *NotConnectedError) NotYetConnected() bool { return e.Since.IsZero() }

// AgentError is an agent's reason not to open a tunnel, or to break one.
type AgentError struct {
	Agent, Target, Reason string
}

func (e *AgentError) Error() string {
	return fmt.Sprintf("tunnel to %s of agent %s: %s", e.Target, e.Agent, e.Reason)
}

// StreamError is the hub's reason to end the stream of a tunnel. The transport passes it to the agent.
type StreamError struct {
	Code    Code
	Message string
}

func (e *StreamError) Error() string { return e.Message }

// Code classifies a StreamError.
type Code int

// Codes of StreamErrors.
const (
	Aborted  Code = iota // the tunnel broke
	Denied               // this agent may not have this tunnel
	Invalid              // the first frame is invalid
	TooMany              // a limit is reached
	TimedOut             // the first frame did not arrive in time
	Ended                // there is no session, or it has ended
)

var (
	// ErrTooManyTunnels is returned for a tunnel beyond the limits.
	ErrTooManyTunnels = errors.New("too many tunnels are open")

	// ErrTimeout is returned if the agent is connected and does not open the tunnel.
	ErrTimeout = errors.New("the agent did not open the tunnel in time")

	// ErrNotConnected is returned for a tunnel to the hub while the agent has no session.
	ErrNotConnected = errors.New("the agent is not connected to the hub")
)
