package transport

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Traffic counts what went over one connection, or over all of them. Bytes are
// those of messages; Wire are those of the transport: compressed, encrypted and
// with everything around them.
type Traffic struct {
	MessagesIn, MessagesOut atomic.Uint64
	BytesIn, BytesOut       atomic.Uint64
	WireIn, WireOut         atomic.Uint64
	UnknownIn               atomic.Uint64 // of types that this build does not know
}

// TunnelCounters count tunnels. Bytes are those of the connections that they
// carry.
type TunnelCounters struct {
	Open, Spare       atomic.Int64 // now; spare ones wait for somebody to use them
	Opened            atomic.Uint64
	BytesIn, BytesOut atomic.Uint64
}

// Counters are the totals of a Server or Dialer since it was made.
type Counters struct {
	Traffic
	Connects    atomic.Uint64 // sessions that began
	Disconnects atomic.Uint64 // and ended
	Sockets     atomic.Int64  // TCP connections open now, whatever their state
	Failures    atomic.Uint64 // dialer: attempts that did not become a session
	Tunnels     TunnelCounters

	mu      sync.Mutex
	refused map[string]uint64
}

// Reasons why a Server refuses a connection or stream.
const (
	refusedFull         = "connections"      // too many of them
	refusedFiles        = "files"            // no open file is left for one
	refusedHandshakes   = "handshakes"       // too many at once
	refusedTLS          = "tls"              // handshake failed
	refusedPeer         = "peer_connections" // one certificate, too many connections
	refusedIdentity     = "identity"         // no agent's name in it
	refusedMethod       = "method"           // not in the policy table
	refusedSecondStream = "second_stream"
	refusedOverloaded   = "overloaded"
	refusedShutdown     = "shutting_down"
	refusedEnrolment    = "enrolment" // no certificate is issued
	refusedPace         = "pace"      // too many ask for one

	refusedTunnelAway    = "tunnel_not_connected" // the agent is not there
	refusedTunnelLimit   = "tunnel_limit"         // the agent has too many
	refusedTunnelTotal   = "tunnel_total"         // all together have too many
	refusedTunnelAgent   = "tunnel_agent"         // the agent does not want to
	refusedTunnelTimeout = "tunnel_timeout"       // the agent did not come
	refusedTunnelToken   = "tunnel_token"         // a stream that nobody asked for
	refusedTunnelSilent  = "tunnel_silent"        // a stream that does not say what it is
	refusedTunnelTarget  = "tunnel_target"        // an agent wants what is not for it, or not here
)

func (c *Counters) refuse(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = map[string]uint64{}
	}
	c.refused[reason]++
}

// Refused returns how many connections and streams were refused, by reason.
func (c *Counters) Refused() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.refused)
}

// EachTotal passes every total on, by a name and a sentence for people.
func (c *Counters) EachTotal(f func(name, help string, value float64)) {
	for _, t := range []struct {
		name, help string
		value      uint64
	}{
		{"messages_received_total", "Messages that came over the connection.", c.MessagesIn.Load()},
		{"messages_sent_total", "Messages that went over the connection.", c.MessagesOut.Load()},
		{"message_received_bytes_total", "Bytes of the messages that came.", c.BytesIn.Load()},
		{"message_sent_bytes_total", "Bytes of the messages that went.", c.BytesOut.Load()},
		{"wire_received_bytes_total", "Bytes that came, with everything around the messages.", c.WireIn.Load()},
		{"wire_sent_bytes_total", "Bytes that went, with everything around the messages.", c.WireOut.Load()},
		{"messages_unknown_total", "Messages of types that this build does not know.", c.UnknownIn.Load()},
		{"connects_total", "Connections on which a session could begin.", c.Connects.Load()},
		{"disconnects_total", "Connections that ended.", c.Disconnects.Load()},
		{"dial_failures_total", "Attempts to connect that failed.", c.Failures.Load()},
		{"tunnels_opened_total", "Tunnels that were opened.", c.Tunnels.Opened.Load()},
		{"tunnel_received_bytes_total", "Bytes that came through tunnels.", c.Tunnels.BytesIn.Load()},
		{"tunnel_sent_bytes_total", "Bytes that went through tunnels.", c.Tunnels.BytesOut.Load()},
	} {
		f(t.name, t.help, float64(t.value))
	}
}

// EachGauge passes on what goes up and down, like Each.
func (c *Counters) EachGauge(f func(name, help string, value float64)) {
	f("sockets", "TCP connections, whatever their state.", float64(c.Sockets.Load()))
	f("tunnels_open", "Tunnels in use.", float64(c.Tunnels.Open.Load()))
	f("tunnels_spare", "Tunnels that wait for somebody to use them.", float64(c.Tunnels.Spare.Load()))
}
