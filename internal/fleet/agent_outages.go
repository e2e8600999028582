package fleet

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync"
	"unicode"

	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// agentOutages knows the write outages that agents report. An agent opens a tunnel and sends a line for each change. The
// outage ends with the tunnel.
type agentOutages struct {
	changed func(agent string)

	mu    sync.Mutex
	known map[string]agentOutage // by agent; of connected agents only
	last  uint64                 // number of the last tunnel
}

// agentOutage is the text of an outage, and the tunnel that reported it: the end of an older tunnel must not end an outage
// that a newer one reports.
type agentOutage struct {
	text   string
	tunnel uint64
}

// maxOutageLine limits a line, in bytes. A longer line ends the report.
const maxOutageLine = 2048

func newAgentOutages(changed func(agent string)) *agentOutages {
	return &agentOutages{changed: changed, known: map[string]agentOutage{}}
}

func (c *agentOutages) targets() map[string]tunnel.Target {
	return map[string]tunnel.Target{"write-health": {
		Admit: func(string) error { return nil }, Serve: c.serve, PerAgent: 2, // the old tunnel may still be open
	}}
}

// serve reads reports until the tunnel ends.
func (c *agentOutages) serve(ctx context.Context, agent string, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c.mu.Lock()
	c.last++
	tunnel := c.last
	c.mu.Unlock()
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 256), maxOutageLine)
	for lines.Scan() {
		c.set(agent, agentOutage{OneLine(lines.Text()), tunnel})
	}
	c.set(agent, agentOutage{"", tunnel})
}

func (c *agentOutages) set(agent string, outage agentOutage) {
	c.mu.Lock()
	before, had := c.known[agent]
	if had && before.tunnel > outage.tunnel {
		c.mu.Unlock()
		return
	}
	if outage.text == "" {
		delete(c.known, agent)
	} else {
		c.known[agent] = outage
	}
	c.mu.Unlock()
	if before.text != outage.text {
		c.changed(agent)
	}
}

// get returns the outage that an agent reports. It is empty if there is none.
func (c *agentOutages) get(agent string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[agent].text
}

// OneLine replaces characters that are not printable by spaces, so that text of an agent cannot control a terminal or log.
func OneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "")))
}
