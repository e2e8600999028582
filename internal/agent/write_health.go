package agent

import (
	"context"
	"io"
	"net"
	"time"
)

// The hub hears of trouble with this cluster's API server by a tunnel: a line says
// what is wrong, and for as long as the tunnel is open it is. So there is nothing
// to take back, and nothing to expire: when the session ends, so does the word.
const (
	targetWriteHealth   = "write-health"
	reportInterval      = 5 * time.Second
	reportRetryInterval = time.Minute // after the hub would not listen; and so that an open tunnel does not seem idle
)

// reportWriteHealth tells the hub while this cluster's API server takes no writes.
func (a *agent) reportWriteHealth(ctx context.Context) error {
	beat := time.NewTicker(reportInterval)
	defer beat.Stop()
	c := &writeHealthReporter{open: a.callHub(targetWriteHealth)}
	defer c.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-beat.C:
			if err := c.report(ctx, a.client.WriteOutage(), now); err != nil {
				a.log.DebugContext(ctx, "cannot tell the hub of this cluster's trouble", "error", err)
			}
		}
	}
}

// writeHealthReporter has at most one tunnel.
type writeHealthReporter struct {
	open func(context.Context) (net.Conn, error)

	conn net.Conn
	said string
	next time.Time // before that, only news is told
}

// report has the hub know what is wrong; empty: nothing is.
func (c *writeHealthReporter) report(ctx context.Context, what string, now time.Time) error {
	if what == "" {
		c.close()
		return nil
	}
	if now.Before(c.next) && (c.conn == nil || c.said == what) {
		return nil
	}
	c.next = now.Add(reportRetryInterval)
	if c.conn == nil {
		limited, cancel := context.WithTimeout(ctx, greetTimeout)
		defer cancel()
		conn, err := c.open(limited)
		if err != nil {
			return err // an older hub does not know what this is; or the connection is gone
		}
		c.conn = conn
	}
	_ = c.conn.SetWriteDeadline(now.Add(reportInterval))
	if _, err := io.WriteString(c.conn, what+"\n"); err != nil {
		_ = c.conn.Close()
		c.conn, c.next = nil, time.Time{} // it ended with its session: there may be another
		return err
	}
	c.said = what
	return nil
}

func (c *writeHealthReporter) close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn, c.said, c.next = nil, "", time.Time{}
}
