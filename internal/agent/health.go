package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// serveHealth answers probes. An agent is ready only while it is connected, and
// not before it has once made its cluster the same as the hub.
func (a *agent) serveHealth(ctx context.Context) error {
	return observe.Serve(ctx, a.cfg.HealthListener, observe.Probes(
		observe.Check{Name: "objects", Run: a.objectsReadable},
		observe.Check{Name: "hub", Run: a.connected},
		observe.Check{Name: "sync", Run: a.compared},
		observe.Check{Name: "writes", Run: a.client.CheckWritable, WarnOnly: true}, // the hub hears of it too; see complain
	))
}

func (a *agent) connected() error {
	if a.open.Load() {
		return nil
	}
	if why, ok := a.why.Load().(string); ok {
		return errors.New("not connected: " + why)
	}
	return errors.New("not connected yet")
}

func (a *agent) compared() error {
	if a.synced.Load() {
		return nil
	}
	return errors.New("this cluster has not been made the same as the hub yet")
}

func (a *agent) objectsReadable() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var missing []string
	for _, r := range reconcile.Resources() {
		if !a.listed[r] {
			missing = append(missing, r.Plural)
		}
	}
	if len(missing) > 0 {
		return errors.New("cannot read " + strings.Join(missing, ", "))
	}
	return nil
}

func (a *agent) serveMetrics(ctx context.Context) error {
	return observe.Serve(ctx, a.cfg.MetricsListener, observe.Metrics(func(ctx context.Context) ([]observe.Metric, error) {
		var status engine.Status
		if err := a.host.Do(ctx, func(n *reconcile.Reconciler) { status, _ = n.Status("") }); err != nil {
			return nil, err
		}
		load := a.host.WriteStats()
		metrics := append(observe.SyncMetrics("argocd_agent", map[string]engine.Status{"": status}, a.host.Now()),
			observe.WriteMetrics("argocd_agent", load.Waiting, load.Limit, load.Unavailable, load.Outage)...)
		if dialer := a.dialer.Load(); dialer != nil {
			dialer.Counters().EachTotal(func(name, help string, value float64) {
				metrics = append(metrics, observe.Counter("argocd_agent_"+name, help, value))
			})
			dialer.Counters().EachGauge(func(name, help string, value float64) {
				metrics = append(metrics, observe.Gauge("argocd_agent_"+name, help, value))
			})
		}
		metrics = append(metrics, a.traceMetrics()...)
		return append(metrics, observe.ProxyMetrics("argocd_agent", a.live.tally.Each)...), nil
	}))
}
