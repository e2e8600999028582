package principal

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// The steps of a session that is coming about go on here where the connection's
// own end: a greeting, an answer, everything compared.

func traceHello(c *transport.Conn, hello engine.Hello) {
	if c.Steps != nil {
		c.Steps.Root().SetString(trace.Epoch, fmt.Sprintf("%d/%d", hello.Epoch.Incarnation, hello.Epoch.Attempt))
		c.Steps.Next("greet")
	}
}

func (p *principal) traceFact(agent string, f engine.Event, epoch engine.Epoch) {
	if p.cfg.Trace == nil || f.Type != engine.Opened && f.Type != engine.InitialSyncDone {
		return // a session that is refused ends with its connection
	}
	for _, c := range p.connsOf(agent) {
		if g, ok := p.sessions.hello(c.ID); !ok || g.epoch != epoch {
			continue
		}
		if f.Type == engine.Opened {
			c.Steps.Next("compare")
		} else {
			c.Steps.End()
		}
	}
}

// openTraced opens a tunnel for another principal, as part of what that one traces. It
// is of no interest by itself.
func (l *live) openTraced(ctx context.Context, r *http.Request, agent, target string) (net.Conn, error) {
	if header := r.Header.Get(trace.Header); l.p.cfg.Trace != nil && header != "" {
		_, span := l.p.cfg.Trace.Start(l.p.cfg.Trace.WithRemoteParent(ctx, header), trace.KindServer, "open a tunnel for another principal")
		defer span.End()
		span.SetString(trace.Agent, agent)
	}
	return l.openLocal(ctx, agent, target)
}

// traceMetrics tells what becomes of spans, where there are some.
func (p *principal) traceMetrics() []observe.Metric {
	counts, on := p.cfg.Trace.Counts()
	if !on {
		return nil
	}
	return observe.TraceMetrics(metricPrefix, counts.Sent, counts.Full, counts.Refused)
}
