package link

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

// Counters are the totals of a Server or Dialer since it was made.
type Counters struct {
	Traffic
	Connects    atomic.Uint64 // sessions that began
	Disconnects atomic.Uint64 // and ended
	Sockets     atomic.Int64  // TCP connections open now, whatever their state
	Failures    atomic.Uint64 // dialer: attempts that did not become a session

	mu      sync.Mutex
	refused map[string]uint64
}

// Reasons why a Server refuses a connection or stream.
const (
	refusedFull         = "connections"      // too many of them
	refusedHandshakes   = "handshakes"       // too many at once
	refusedTLS          = "tls"              // handshake failed
	refusedPeer         = "peer_connections" // one certificate, too many connections
	refusedIdentity     = "identity"         // no agent's name in it
	refusedMethod       = "method"           // not in the policy table
	refusedSecondStream = "second_stream"
	refusedOverloaded   = "overloaded"
	refusedShutdown     = "shutting_down"
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
