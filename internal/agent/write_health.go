package agent

import (
	"context"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

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
