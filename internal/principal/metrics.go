package principal

import (
	"context"
	"maps"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

const metricPrefix = "argocd_agent_principal"

func (p *principal) serveMetrics(ctx context.Context) error {
	return observe.Serve(ctx, p.cfg.MetricsListener, observe.Metrics(observe.MetricsConfig{
		Prefix: metricPrefix, Version: p.cfg.Version, Gather: p.metrics, Collectors: append(p.live.Collectors(), p.writeLatency)}))
}

func (p *principal) metrics(ctx context.Context) ([]observe.Metric, error) {
	statuses := map[string]engine.Status{}
	names := p.registry.Names()
	var now engine.Time
	if err := p.runner.Do(ctx, func(n *reconcile.Reconciler) {
		now = p.runner.Now()
		for _, name := range names {
			if s, ok := n.Status(name); ok {
				statuses[name] = s
			}
		}
	}); err != nil {
		return nil, err
	}
	writes, counters := p.runner.WriteStats(), p.server.Counters()
	metrics := append(observe.SyncMetrics(metricPrefix, statuses, now), observe.WriteMetrics(metricPrefix, writes.Waiting, writes.Limit, writes.Unavailable, writes.Outage)...)
	counters.EachTotal(func(name, help string, value float64) {
		metrics = append(metrics, observe.Counter(metricPrefix+"_"+name, help, value))
	})
	refused := observe.Metric{Name: metricPrefix + "_refused_total", Help: "Refused connections and streams, by reason.", Counter: true}
	counts := map[string]uint64{"identity": 0, "overloaded": 0, "tls": 0} // present before the first refusal
	maps.Copy(counts, counters.Refused())
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		refused.Samples = append(refused.Samples, observe.Sample{Labels: []string{"reason", reason}, Value: float64(counts[reason])})
	}
	metrics = append(metrics, refused)
	counters.EachGauge(func(name, help string, value float64) {
		metrics = append(metrics, observe.Gauge(metricPrefix+"_"+name, help, value))
	})
	if spans, on := p.cfg.Trace.Counts(); on {
		metrics = append(metrics, observe.TraceMetrics(metricPrefix, spans.Sent, spans.Full, spans.Refused)...)
	}
	return slices.Concat(metrics, p.status.Metrics(), p.hold.Metrics(), p.live.Metrics(), p.shared.Metrics()), nil
}
