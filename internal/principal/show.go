package principal

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/node"
	"github.com/argocd-agent/argocd-agent/internal/observe"
)

// serveHealth answers probes.
func (p *principal) serveHealth(ctx context.Context) error {
	return observe.Serve(ctx, p.cfg.HealthListener, observe.Probes(
		observe.Check{Name: "objects", Test: p.objectsReadable},
		observe.Check{Name: "registrations", Test: p.registry.readable},
	))
}

// objectsReadable tells whether every resource is being read.
func (p *principal) objectsReadable() error {
	p.listedMu.Lock()
	defer p.listedMu.Unlock()
	var missing []string
	for _, r := range node.Resources() {
		if !p.listed[r] {
			missing = append(missing, r.Plural)
		}
	}
	if len(missing) > 0 {
		return errors.New("can not read " + strings.Join(missing, ", "))
	}
	return nil
}

func (r *registry) readable() error {
	select {
	case <-r.ready:
		return nil
	default:
		return errors.New("cluster Secrets have not been read yet")
	}
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
	if err := p.host.Do(ctx, func(n *node.Node) {
		now = p.host.Now()
		for _, name := range names {
			if s, ok := n.Status(name); ok {
				statuses[name] = s
			}
		}
	}); err != nil {
		return nil, err
	}
	metrics := observe.OfStatus(metricPrefix, statuses, now)
	if server := p.server.Load(); server != nil {
		server.Counters().Each(func(name, help string, value float64) {
			metrics = append(metrics, observe.Counter(metricPrefix+"_"+name, help, value))
		})
		refused := observe.Metric{Name: metricPrefix + "_refused_total", Help: "Connections and streams that were refused, by reason.", Counter: true}
		counts := server.Counters().Refused()
		for _, reason := range slices.Sorted(maps.Keys(counts)) {
			refused.Samples = append(refused.Samples, observe.Sample{Labels: []string{"reason", reason}, Value: float64(counts[reason])})
		}
		metrics = append(metrics, refused)
	}
	return metrics, nil
}
