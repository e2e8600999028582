package principal

import (
	"context"
	"errors"
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ready {
		return errors.New("cluster Secrets have not been read yet")
	}
	return nil
}

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
	return observe.OfStatus("argocd_agent_principal", statuses, now), nil
}
