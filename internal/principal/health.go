package principal

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// serveHealth answers probes.
func (p *principal) serveHealth(ctx context.Context) error {
	begun := func(test func() error) func() error {
		return func() error {
			if !p.assembled.Load() {
				return errors.New("waiting for the API server")
			}
			return test()
		}
	}
	return observe.Serve(ctx, p.cfg.HealthListener, observe.Probes(
		observe.Check{Name: "objects", Run: begun(p.objectsReadable)},
		observe.Check{Name: "registrations", Run: begun(func() error { return p.registry.readable() })},
		observe.Check{Name: "certificates", Run: begun(p.certificatesReady)},
		observe.Check{Name: "connections", Run: begun(p.listening)},
		observe.Check{Name: "writes", Run: p.client.CheckWritable, WarnOnly: true}, // reading and live access go on meanwhile
	))
}

// certificatesReady reports whether there is what it takes to speak TLS.
func (p *principal) certificatesReady() error {
	if p.cfg.TLS == nil || p.cfg.TLS.GetConfigForClient == nil {
		return nil
	}
	if _, err := p.cfg.TLS.GetConfigForClient(&tls.ClientHelloInfo{}); err != nil {
		return err
	}
	return p.blocklists.Check()
}

// listening reports whether agents are let in.
func (p *principal) listening() error {
	if p.server.Load() == nil {
		return errors.New("agents are not let in yet")
	}
	return nil
}

// objectsReadable reports whether every resource is being read.
func (p *principal) objectsReadable() error {
	p.listedMu.Lock()
	defer p.listedMu.Unlock()
	var missing []string
	for _, r := range reconcile.Resources() {
		if !p.listed[r] {
			missing = append(missing, r.Plural)
		}
	}
	if len(missing) > 0 {
		return errors.New("cannot read " + strings.Join(missing, ", "))
	}
	return nil
}

const metricPrefix = "argocd_agent_principal"

func (p *principal) serveMetrics(ctx context.Context) error {
	return observe.Serve(ctx, p.cfg.MetricsListener, observe.Metrics(p.metrics))
}

// metrics takes stock of every agent.
func (p *principal) metrics(ctx context.Context) ([]observe.Metric, error) {
	statuses := map[string]engine.Status{}
	names := p.registry.names()
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
	load := p.runner.WriteStats()
	metrics := append(observe.SyncMetrics(metricPrefix, statuses, now), observe.WriteMetrics(metricPrefix, load.Waiting, load.Limit, load.Unavailable, load.Outage)...)
	if server := p.server.Load(); server != nil {
		server.Counters().EachTotal(func(name, help string, value float64) {
			metrics = append(metrics, observe.Counter(metricPrefix+"_"+name, help, value))
		})
		refused := observe.Metric{Name: metricPrefix + "_refused_total", Help: "Refused connections and streams, by reason.", Counter: true}
		counts := server.Counters().Refused()
		for _, reason := range slices.Sorted(maps.Keys(counts)) {
			refused.Samples = append(refused.Samples, observe.Sample{Labels: []string{"reason", reason}, Value: float64(counts[reason])})
		}
		metrics = append(metrics, refused)
		server.Counters().EachGauge(func(name, help string, value float64) {
			metrics = append(metrics, observe.Gauge(metricPrefix+"_"+name, help, value))
		})
	}
	metrics = append(append(metrics, p.status.metrics()...), p.traceMetrics()...)
	metrics = append(metrics, p.fleet.metrics()...)
	return append(append(metrics, p.live.metrics()...), p.shared.metrics()...), nil
}
