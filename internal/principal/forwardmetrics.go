package principal

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/observe"
)

// hopResult is what became of asking another principal for a tunnel.
type hopResult int

const (
	hopOpened      hopResult = iota
	hopRefused               // by the other, which says why
	hopUnreachable           // the other did not answer
	hopResults
)

var hopResultNames = [hopResults]string{"opened", "refused", "unreachable"}

// refusedHopError is what another principal says why there is no tunnel.
type refusedHopError struct{ why string }

func (e *refusedHopError) Error() string { return e.why }

// hopCounts counts hops of either side.
type hopCounts struct {
	asked    [hopResults]struct{ n, nanoseconds atomic.Int64 }
	answered [hopResults]atomic.Int64 // for others: opened or refused
}

// took notes what became of a hop that began at a time.
func (c *hopCounts) took(began time.Time, err error) {
	result := hopOpened
	if _, refused := errors.AsType[*refusedHopError](err); refused {
		result = hopRefused
	} else if err != nil {
		result = hopUnreachable
	}
	c.asked[result].n.Add(1)
	c.asked[result].nanoseconds.Add(int64(time.Since(began)))
}

func (c *hopCounts) metrics() []observe.Metric {
	asked := observe.Metric{Name: metricPrefix + "_hops_asked_total", Counter: true,
		Help: "Requests for agents that are connected with another principal, which was asked for a tunnel, by what became of it."}
	seconds := observe.Metric{Name: metricPrefix + "_hop_seconds_total", Counter: true, Help: "Time that asking other principals for tunnels took, all together, by what became of it."}
	answered := observe.Metric{Name: metricPrefix + "_hops_answered_total", Counter: true, Help: "Tunnels that other principals have asked this one for."}
	for result, name := range hopResultNames {
		labels := []string{"result", name}
		asked.Samples = append(asked.Samples, observe.Sample{Labels: labels, Value: float64(c.asked[result].n.Load())})
		seconds.Samples = append(seconds.Samples, observe.Sample{Labels: labels, Value: time.Duration(c.asked[result].nanoseconds.Load()).Seconds()})
		if hopResult(result) != hopUnreachable {
			answered.Samples = append(answered.Samples, observe.Sample{Labels: labels, Value: float64(c.answered[result].Load())})
		}
	}
	return []observe.Metric{asked, seconds, answered}
}
