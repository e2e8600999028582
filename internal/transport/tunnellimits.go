package transport

import (
	"errors"
	"fmt"
	"time"
)

// TunnelLimits bound tunnels. Zero means the default.
type TunnelLimits struct {
	PerAgent       int           // in use at the same time: 256, of which one target gets seven eighths
	Total          int           // of all agents together: 8192
	Standby        int           // ready for use, by agent and target: 2; less than 0: none
	Open           time.Duration // for the agent to come: 10 s
	Idle           time.Duration // without a byte in either direction: 1 h
	StandbyTimeout time.Duration // until a spare one is given up: 2 min; an agent waits three times as long
	Linger         time.Duration // for what was written before Close on the hub: 10 s
}

func (l TunnelLimits) withDefaults() TunnelLimits {
	l.PerAgent = or(l.PerAgent, 256)
	l.Total = or(l.Total, 8192)
	l.Standby = or(l.Standby, 2)
	l.Open = or(l.Open, 10*time.Second)
	l.Idle = or(l.Idle, time.Hour)
	l.StandbyTimeout = or(l.StandbyTimeout, 2*time.Minute)
	l.Linger = or(l.Linger, 10*time.Second)
	return l
}

// NotConnectedError says that an agent cannot be reached, because it has no
// session here.
type NotConnectedError struct {
	Agent string
	Since time.Time // zero: not known
}

func (e *NotConnectedError) Error() string {
	if e.Since.IsZero() {
		return fmt.Sprintf("agent %s is not connected", e.Agent)
	}
	return fmt.Sprintf("agent %s is not connected since %s", e.Agent, e.Since.UTC().Format(time.RFC3339))
}

// TunnelError is an agent's reason not to open a tunnel, or to break one.
type TunnelError struct {
	Agent, Target, Reason string
}

func (e *TunnelError) Error() string {
	return fmt.Sprintf("tunnel to %s of agent %s: %s", e.Target, e.Agent, e.Reason)
}

var (
	// ErrTooManyTunnels is returned for a tunnel beyond the limits.
	ErrTooManyTunnels = errors.New("too many tunnels are open")

	// ErrTunnelTimeout is returned if the agent is connected and does not come.
	ErrTunnelTimeout = errors.New("the agent did not open the tunnel in time")
)
