package agent

import (
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

func traceHello(c *transport.Conn, epoch engine.Epoch) {
	if c.Steps != nil {
		c.Steps.Root().SetString(trace.Epoch, fmt.Sprintf("%d/%d", epoch.Incarnation, epoch.Attempt))
		c.Steps.Next("hello")
	}
}

func (a *agent) traceFact(f engine.Event) {
	c := a.conn.Load()
	if c == nil || c.Steps == nil {
		return
	}
	switch f.Type {
	case engine.Opened:
		a.cfg.Trace.Name(f.Welcome.Agent)
		c.Steps.Root().SetString(trace.Agent, f.Welcome.Agent)
		c.Steps.Next("compare")
	case engine.Refused:
		c.Steps.Fail(string(f.Code) + ": " + f.Message)
	case engine.InitialSyncDone:
		c.Steps.End()
	}
}

func (a *agent) traceMetrics() []observe.Metric {
	counts, on := a.cfg.Trace.Counts()
	if !on {
		return nil
	}
	return observe.TraceMetrics(metricPrefix, counts.Sent, counts.Full, counts.Refused)
}
