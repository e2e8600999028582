package agent

import (
	"context"
	"io"
	"net"
	"time"
)

// The agent reports a write outage through a tunnel: each line describes it, and it lasts while the tunnel is open. So
// the report ends with the session and needs no expiry.
const (
	targetWriteHealth   = "write-health"
	reportInterval      = 5 * time.Second
	reportRetryInterval = time.Minute // after a failure; also keeps an open tunnel from being idle
)

// reportWriteHealth reports to the hub while this cluster's API server does not accept writes.
func (a *agent) reportWriteHealth(ctx context.Context) error {
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	c := &writeHealthReporter{open: a.openHubTunnel(targetWriteHealth)}
	defer c.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if err := c.report(ctx, a.client.WriteOutage(), now); err != nil {
				a.log.DebugContext(ctx, "Failed to report write outage to the hub", "error", err)
			}
		}
	}
}

// writeHealthReporter has at most one tunnel.
type writeHealthReporter struct {
	open func(context.Context) (net.Conn, error)

	conn net.Conn
	sent string
	next time.Time // until then, only a changed outage is sent
}

// report sends a write outage. If outage is "", it ends the report.
func (c *writeHealthReporter) report(ctx context.Context, outage string, now time.Time) error {
	if outage == "" {
		c.close()
		return nil
	}
	if now.Before(c.next) && (c.conn == nil || c.sent == outage) {
		return nil
	}
	c.next = now.Add(reportRetryInterval)
	if c.conn == nil {
		limited, cancel := context.WithTimeout(ctx, helloTimeout)
		defer cancel()
		conn, err := c.open(limited)
		if err != nil {
			return err
		}
		c.conn = conn
	}
	_ = c.conn.SetWriteDeadline(now.Add(reportInterval))
	if _, err := io.WriteString(c.conn, outage+"\n"); err != nil {
		_ = c.conn.Close()
		c.conn, c.next = nil, time.Time{} // its session ended: retry at once in the next
		return err
	}
	c.sent = outage
	return nil
}

func (c *writeHealthReporter) close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn, c.sent, c.next = nil, "", time.Time{}
}
