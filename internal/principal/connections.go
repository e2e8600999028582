package principal

import (
	"slices"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// connections knows the open connections of agents and what they sent in their Hello.
type connections struct {
	mu      sync.Mutex
	byID    map[uint64]*connection
	byAgent map[string][]*connection // oldest first; more than one only while a newer one replaces an older one
}

type connection struct {
	*transport.Conn
	hello *fleet.Hello // nil until received
}

func newConnections() *connections {
	return &connections{byID: map[uint64]*connection{}, byAgent: map[string][]*connection{}}
}

func (t *connections) add(c *transport.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := &connection{Conn: c}
	t.byID[c.ID] = known
	t.byAgent[c.Agent] = append(t.byAgent[c.Agent], known)
}

func (t *connections) remove(c *transport.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, c.ID)
	left := slices.DeleteFunc(slices.Clone(t.byAgent[c.Agent]), func(other *connection) bool { return other.ID == c.ID })
	if t.byAgent[c.Agent] = left; len(left) == 0 {
		delete(t.byAgent, c.Agent)
	}
}

func (t *connections) get(id uint64) *transport.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byID[id]; known != nil {
		return known.Conn
	}
	return nil
}

// recordHello stores the Hello of a connection. It reports whether it is the first.
func (t *connections) recordHello(c *transport.Conn, hello engine.Hello) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.byID[c.ID]
	if known == nil || known.hello != nil {
		return false
	}
	known.hello = &fleet.Hello{Epoch: hello.Epoch, ClusterUID: hello.ClusterUID, Fingerprint: c.Fingerprint, Expires: c.NotAfter, SkewSeconds: fleet.SkewOf(hello, time.Now())}
	return true
}

// hasHello reports whether a connection has sent its Hello.
func (t *connections) hasHello(c *transport.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.byID[c.ID]
	return known != nil && known.hello != nil
}

// epoch returns the epoch of a connection that has sent its Hello.
func (t *connections) epoch(c *transport.Conn) (engine.Epoch, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byID[c.ID]; known != nil && known.hello != nil {
		return known.hello.Epoch, true
	}
	return engine.Epoch{}, false
}

// sendTo sends a message on the connection of a session, if it is open.
func (t *connections) sendTo(agent string, epoch engine.Epoch, m engine.Message) {
	for _, c := range t.of(agent) {
		if c.hello != nil && c.hello.Epoch == epoch {
			_ = c.Send(m) // fails if the connection ends
		}
	}
}

// of returns the connections of an agent.
func (t *connections) of(agent string) []connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []connection
	for _, c := range t.byAgent[agent] {
		all = append(all, *c)
	}
	return all
}

// hello returns the Hello of a session.
func (t *connections) hello(agent string, epoch engine.Epoch) (fleet.Hello, bool) {
	for _, c := range t.of(agent) {
		if c.hello != nil && c.hello.Epoch == epoch {
			return *c.hello, true
		}
	}
	return fleet.Hello{}, false
}

// hasNewer reports whether another open connection of the agent has sent the Hello of a newer session. Connections of another
// cluster do not count: it may be refused because of its cluster.
func (t *connections) hasNewer(c *transport.Conn, hello engine.Hello) bool {
	return slices.ContainsFunc(t.of(c.Agent), func(other connection) bool {
		return other.ID != c.ID && other.Cause() == nil && other.hello != nil && other.hello.ClusterUID == hello.ClusterUID && other.hello.Epoch.Newer(hello.Epoch)
	})
}

// claimedClusterUID returns the cluster in the last Hello of an agent. It can differ from the recorded one.
func (t *connections) claimedClusterUID(agent string) string {
	last := ""
	for _, c := range t.of(agent) {
		if c.hello != nil {
			last = c.hello.ClusterUID
		}
	}
	return last
}

// certificates returns the certificates of an agent's connections: fingerprint → expiry.
func (t *connections) certificates(agent string) map[string]time.Time {
	all := map[string]time.Time{}
	for _, c := range t.of(agent) {
		if c.Fingerprint != "" {
			all[c.Fingerprint] = c.NotAfter
		}
	}
	return all
}

// revoke closes the connections that use revoked certificates.
func (t *connections) revoke(fingerprints []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byID {
		if c.Fingerprint != "" && slices.Contains(fingerprints, c.Fingerprint) {
			c.Close(engine.Revoked, "the certificate is revoked")
		}
	}
}
