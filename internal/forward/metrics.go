package forward

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/observe"
)

// result of a request to another replica.
type result int

const (
	opened result = iota
	refused
	unreachable
	results
)

var resultNames = [results]string{"opened", "refused", "unreachable"}

// refusedError is the response of a replica that did not open a tunnel.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

type counts struct {
	sent     [results]struct{ n, nanoseconds atomic.Int64 }
	received [results]atomic.Int64 // opened or refused
}

func (c *counts) addSent(started time.Time, err error) {
	r := opened
	if _, ok := errors.AsType[*refusedError](err); ok {
		r = refused
	} else if err != nil {
		r = unreachable
	}
	c.sent[r].n.Add(1)
	c.sent[r].nanoseconds.Add(int64(time.Since(started)))
}

// Metrics returns the metrics of forwarded requests.
func (f *Forwarder) Metrics() []observe.Metric {
	c := &f.counts
	sent := observe.Metric{Name: "argocd_agent_principal_forwards_sent_total", Counter: true,
		Help: "Requests forwarded to the principal that holds the agent's session, by result."}
	seconds := observe.Metric{Name: "argocd_agent_principal_forward_seconds_total", Counter: true, Help: "Total time to open tunnels through other principals, by result."}
	received := observe.Metric{Name: "argocd_agent_principal_forwards_received_total", Counter: true, Help: "Tunnels requested by other principals, by result."}
	for r, name := range resultNames {
		labels := []string{"result", name}
		sent.Samples = append(sent.Samples, observe.Sample{Labels: labels, Value: float64(c.sent[r].n.Load())})
		seconds.Samples = append(seconds.Samples, observe.Sample{Labels: labels, Value: time.Duration(c.sent[r].nanoseconds.Load()).Seconds()})
		if result(r) != unreachable {
			received.Samples = append(received.Samples, observe.Sample{Labels: labels, Value: float64(c.received[r].Load())})
		}
	}
	return []observe.Metric{sent, seconds, received}
}
