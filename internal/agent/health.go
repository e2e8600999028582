package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// serveHealth serves probes. An agent is ready while it is connected, after the initial sync.
func (a *agent) serveHealth(ctx context.Context) error {
	return observe.Serve(ctx, a.cfg.HealthListener, observe.Probes(
		observe.Check{Name: "objects", Run: a.readable},
		observe.Check{Name: "hub", Run: a.connected},
		observe.Check{Name: "sync", Run: a.initialSyncDone},
		observe.Check{Name: "writes", Run: a.client.CheckWritable, WarnOnly: true}, // also reported to the hub
	))
}

// readable returns why the cluster is not read yet, or nil.
func (a *agent) readable() error {
	if err := a.objects.Check(); err != nil {
		return err
	}
	select {
	case <-a.policies.known:
		return nil
	default:
		return errors.New("cannot read " + agentPolicies.Plural)
	}
}

func (a *agent) connected() error {
	if a.open.Load() {
		return nil
	}
	if why := a.disconnectReason.text(); why != "" {
		return errors.New("not connected: " + why)
	}
	return errors.New("not connected yet")
}

// disconnectReason is why there is no session, for each address of the hub since the last session.
type disconnectReason struct {
	mu      sync.Mutex
	reasons map[string]string
}

// set records the reason of an address. The address is empty before the agent connects.
func (d *disconnectReason) set(server, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reasons == nil {
		d.reasons = map[string]string{}
	}
	delete(d.reasons, "")
	d.reasons[server] = why
}

func (d *disconnectReason) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reasons = nil
}

func (d *disconnectReason) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, server := range slices.Sorted(maps.Keys(d.reasons)) {
		if len(d.reasons) == 1 {
			return d.reasons[server]
		}
		all = append(all, server+": "+d.reasons[server])
	}
	return strings.Join(all, "; ")
}

func (a *agent) initialSyncDone() error {
	if a.synced.Load() {
		return nil
	}
	return errors.New("initial sync with the hub is not complete")
}

func (a *agent) serveMetrics(ctx context.Context) error {
	return observe.Serve(ctx, a.cfg.MetricsListener, observe.Metrics(observe.MetricsConfig{
		Prefix: metricPrefix, Version: a.cfg.Version, Commit: a.cfg.Commit, Date: a.cfg.Date, Gather: a.metrics, Collectors: []prometheus.Collector{a.live.requests, a.writeLatency}}))
}

const metricPrefix = "argocd_agent"

func (a *agent) metrics(ctx context.Context) ([]observe.Metric, error) {
	var status engine.Status
	if err := a.runner.Do(ctx, func(n *reconcile.Reconciler) { status, _ = n.Status("") }); err != nil {
		return nil, err
	}
	load := a.runner.WriteStats()
	metrics := append(observe.SyncMetrics(metricPrefix, map[string]engine.Status{"": status}, a.runner.Now()),
		observe.WriteMetrics(metricPrefix, load.Waiting, load.Limit, load.Unavailable, load.Outage)...)
	if dialer := a.dialer.Load(); dialer != nil {
		dialer.Counters().EachTotal(func(name, help string, value float64) {
			metrics = append(metrics, observe.Counter(metricPrefix+"_"+name, help, value))
		})
		dialer.Counters().EachGauge(func(name, help string, value float64) {
			metrics = append(metrics, observe.Gauge(metricPrefix+"_"+name, help, value))
		})
	}
	if lines, on := a.cfg.Audit.Counts(); on {
		metrics = append(metrics, observe.AuditMetrics(metricPrefix, lines.Written, lines.Full, lines.Failed)...)
	}
	return append(metrics, a.traceMetrics()...), nil
}

const writeHealthInterval = 5 * time.Second

// reportWriteHealth reports to the hub whether this cluster's API server accepts writes.
func (a *agent) reportWriteHealth(ctx context.Context) error {
	tick := time.NewTicker(writeHealthInterval)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			outage := a.client.WriteOutage()
			if outage == "" && last == "" {
				continue
			}
			if err := a.runner.Post(ctx, reconcile.WriteOutage{Reason: outage}); err != nil {
				return nil
			}
			last = outage
		}
	}
}
