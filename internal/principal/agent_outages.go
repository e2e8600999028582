package principal

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync"
	"unicode"

	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// agentOutages are what agents tell of their clusters: that the API server there
// takes no writes, so that what the hub sends has to wait. An agent says it into a
// tunnel, a line for each thing that is new, and takes it back by closing that.
type agentOutages struct {
	changed func(agent string)

	mu    sync.Mutex
	known map[string]agentOutage // those that are being made: bounded by the agents that are connected
	turn  uint64
}

// agentOutage is a line, and which tunnel said it: one that ends late must not take
// back what another says.
type agentOutage struct {
	text string
	turn uint64
}

// maxOutageLine bounds a line, in bytes. Who says more is not listened to.
const maxOutageLine = 2048

// targets is what agents connect to.
func (c *agentOutages) targets() map[string]tunnel.Target {
	return map[string]tunnel.Target{"write-health": {
		Admit: func(string) error { return nil }, Serve: c.serve, PerAgent: 2, // an old one may not have ended yet
	}}
}

// serve listens to an agent until its tunnel ends.
func (c *agentOutages) serve(ctx context.Context, agent string, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c.mu.Lock()
	c.turn++
	turn := c.turn
	c.mu.Unlock()
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 256), maxOutageLine)
	for lines.Scan() {
		c.set(agent, agentOutage{oneLine(lines.Text()), turn})
	}
	c.set(agent, agentOutage{"", turn})
}

// set keeps what an agent says, or has taken back.
func (c *agentOutages) set(agent string, what agentOutage) {
	c.mu.Lock()
	before, had := c.known[agent]
	if had && before.turn > what.turn {
		c.mu.Unlock()
		return
	}
	if what.text == "" {
		delete(c.known, agent)
	} else {
		c.known[agent] = what
	}
	c.mu.Unlock()
	if before.text != what.text {
		c.changed(agent)
	}
}

// get is what an agent complains of; empty: nothing.
func (c *agentOutages) get(agent string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[agent].text
}

// oneLine leaves out what terminals and logs would take for more than text.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "")))
}
