package principal

import (
	"context"
	"maps"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

const metricPrefix = "argocd_agent_principal"

func (p *principal) serveMetrics(ctx context.Context) error {
	collectors := append(p.live.Collectors(), p.writeLatency)
	if p.search != nil {
		collectors = append(collectors, p.search.Metrics())
	}
	return observe.Serve(ctx, p.cfg.MetricsListener, observe.Metrics(observe.MetricsConfig{
		Prefix: metricPrefix, Version: p.cfg.Version, Commit: p.cfg.Commit, Date: p.cfg.Date, Gather: p.metrics, Collectors: collectors}))
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
	if lines, on := p.cfg.Audit.Counts(); on {
		metrics = append(metrics, observe.AuditMetrics(metricPrefix, lines.Written, lines.Full, lines.Failed)...)
		metrics = append(metrics, observe.AuditLossMetric(metricPrefix, lines.LostByAgent))
	}
	metrics = append(metrics, p.hub.metric(), p.statusAge(statuses, now), observe.Gauge(metricPrefix+"_sessions", "Agents that are connected to this principal replica.", float64(len(p.server.Sessions()))),
		observe.Counter(metricPrefix+"_agents_moved_total", "Agents that this replica asked to connect to another principal replica, because it had more than its share or was shutting down.", float64(p.spreader.Moved())))
	return slices.Concat(metrics, p.apps.Metrics(), p.events.Metrics(metricPrefix), p.status.Metrics(), p.hold.Metrics(), p.live.Metrics(), p.shared.Metrics()), nil
}

// statusAge returns how old the statuses of an agent's Applications may be. The label dest_server joins it with
// argocd_app_info.
func (p *principal) statusAge(statuses map[string]engine.Status, now engine.Time) observe.Metric {
	m := observe.Metric{Name: metricPrefix + "_app_info_age_seconds",
		Help: "Seconds since the hub's Applications of the agent were last known to have the status of the workload cluster. Absent until that was known once."}
	for _, agent := range slices.Sorted(maps.Keys(statuses)) {
		server, reports := placedApplications{p}.Server(agent)
		if !reports {
			continue
		}
		var oldest engine.Time
		for _, s := range statuses[agent].Scopes {
			if s.Role != engine.Replica || s.Name != kind.StatusScope && s.Name != kind.ApplicationScope {
				continue
			}
			if s.InSyncAt == 0 {
				oldest = 0
				break
			}
			if oldest == 0 || s.InSyncAt < oldest {
				oldest = s.InSyncAt
			}
		}
		if oldest != 0 {
			m.Samples = append(m.Samples, observe.Sample{Labels: []string{"agent", agent, "dest_server", server}, Value: float64(now-oldest) / 1000})
		}
	}
	return m
}

// placedApplications implements appmetrics.Agents.
type placedApplications struct{ p *principal }

func (a placedApplications) AgentOf(namespace, name string) string {
	return a.p.live.AgentOf(namespace, name)
}

func (a placedApplications) Server(agent string) (string, bool) {
	reg, ok := a.p.registry.Get(agent)
	return reg.Agent.Server, ok && reg.Agent.Server != "" && a.p.replicas.Reports(agent)
}
