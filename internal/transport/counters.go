package transport

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// Traffic counts what one session, or all of them, have sent and received. Bytes are those of messages. Wire bytes are
// those of the network: compressed, encrypted and with all overhead.
type Traffic struct {
	MessagesIn, MessagesOut atomic.Uint64
	BytesIn, BytesOut       atomic.Uint64
	WireIn, WireOut         atomic.Uint64
	UnknownIn               atomic.Uint64 // of types that this release does not know
}

// Counters are the totals of a Server or Dialer.
type Counters struct {
	Traffic
	Connects    atomic.Uint64 // sessions that began
	Disconnects atomic.Uint64 // sessions that ended
	Sockets     atomic.Int64  // open TCP connections, in any state
	Failures    atomic.Uint64 // dialer: attempts without a session
	Tunnels     tunnel.Counters

	mu      sync.Mutex
	refused map[string]uint64
}

// Reasons for a refused session, for Counters.Refuse. The transports and package tunnel have more.
const (
	refusedOverloaded   = "overloaded"
	refusedNoHello      = "no_hello"
	RefusedShuttingDown = "shutting_down"
)

// Refuse counts a refused connection, session or tunnel.
func (c *Counters) Refuse(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = map[string]uint64{}
	}
	c.refused[reason]++
}

// Refused returns the number of refused connections, sessions and tunnels by reason.
func (c *Counters) Refused() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.refused)
}

// EachTotal calls f for every counter with its name and help text.
func (c *Counters) EachTotal(f func(name, help string, value float64)) {
	for _, t := range []struct {
		name, help string
		value      uint64
	}{
		{"messages_received_total", "Messages received.", c.MessagesIn.Load()},
		{"messages_sent_total", "Messages sent.", c.MessagesOut.Load()},
		{"message_received_bytes_total", "Bytes of received messages.", c.BytesIn.Load()},
		{"message_sent_bytes_total", "Bytes of sent messages.", c.BytesOut.Load()},
		{"wire_received_bytes_total", "Bytes received from the network, including TLS and HTTP/2.", c.WireIn.Load()},
		{"wire_sent_bytes_total", "Bytes sent to the network, including TLS and HTTP/2.", c.WireOut.Load()},
		{"messages_unknown_total", "Received messages of a type that this release does not know.", c.UnknownIn.Load()},
		{"connects_total", "Sessions that began.", c.Connects.Load()},
		{"disconnects_total", "Sessions that ended.", c.Disconnects.Load()},
		{"dial_failures_total", "Failed attempts to connect.", c.Failures.Load()},
		{"tunnels_opened_total", "Tunnels that were opened.", c.Tunnels.Opened.Load()},
		{"tunnel_received_bytes_total", "Bytes received through tunnels.", c.Tunnels.BytesIn.Load()},
		{"tunnel_sent_bytes_total", "Bytes sent through tunnels.", c.Tunnels.BytesOut.Load()},
	} {
		f(t.name, t.help, float64(t.value))
	}
}

// EachGauge calls f for every gauge with its name and help text.
func (c *Counters) EachGauge(f func(name, help string, value float64)) {
	f("sockets", "Open TCP connections, in any state.", float64(c.Sockets.Load()))
	f("tunnels_open", "Tunnels in use.", float64(c.Tunnels.Open.Load()))
	f("tunnels_standby", "Standby tunnels.", float64(c.Tunnels.Standby.Load()))
}
