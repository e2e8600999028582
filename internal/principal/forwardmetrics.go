package principal

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/observe"
)

// forwardResult is what became of asking another principal for a tunnel.
type forwardResult int

const (
	forwardOpened      forwardResult = iota
	forwardRefused                   // by the other, which says why
	forwardUnreachable               // the other did not answer
	forwardResults
)

var forwardResultNames = [forwardResults]string{"opened", "refused", "unreachable"}

// forwardRefusedError is what another principal says why there is no tunnel.
type forwardRefusedError struct{ why string }

func (e *forwardRefusedError) Error() string { return e.why }

// forwardCounts counts hops of either side.
type forwardCounts struct {
	sent     [forwardResults]struct{ n, nanoseconds atomic.Int64 }
	received [forwardResults]atomic.Int64 // for others: opened or refused
}

// add notes what became of a hop that began at a time.
func (c *forwardCounts) add(began time.Time, err error) {
	result := forwardOpened
	if _, refused := errors.AsType[*forwardRefusedError](err); refused {
		result = forwardRefused
	} else if err != nil {
		result = forwardUnreachable
	}
	c.sent[result].n.Add(1)
	c.sent[result].nanoseconds.Add(int64(time.Since(began)))
}

func (c *forwardCounts) metrics() []observe.Metric {
	asked := observe.Metric{Name: metricPrefix + "_forwards_sent_total", Counter: true,
		Help: "Requests forwarded to the principal that holds the agent's session, by result."}
	seconds := observe.Metric{Name: metricPrefix + "_forward_seconds_total", Counter: true, Help: "Total time to open tunnels through other principals, by result."}
	answered := observe.Metric{Name: metricPrefix + "_forwards_received_total", Counter: true, Help: "Tunnels requested by other principals, by result."}
	for result, name := range forwardResultNames {
		labels := []string{"result", name}
		asked.Samples = append(asked.Samples, observe.Sample{Labels: labels, Value: float64(c.sent[result].n.Load())})
		seconds.Samples = append(seconds.Samples, observe.Sample{Labels: labels, Value: time.Duration(c.sent[result].nanoseconds.Load()).Seconds()})
		if forwardResult(result) != forwardUnreachable {
			answered.Samples = append(answered.Samples, observe.Sample{Labels: labels, Value: float64(c.received[result].Load())})
		}
	}
	return []observe.Metric{asked, seconds, answered}
}
