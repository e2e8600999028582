package kube

import (
	"context"
	"log/slog"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Stream calls f for each object of a watch, then after each change, until ctx ends or a request fails. It keeps no
// object. An object can come twice, and nothing reports that one is gone. The caller retries.
func (c *Client) Stream(ctx context.Context, w Watch, log *slog.Logger, jitter func() float64, f func(*kind.Object)) error {
	revision, err := c.pages(ctx, w, func(p listPage) error {
		for _, o := range p.objects {
			f(o)
		}
		return nil
	}, func() {})
	if err != nil {
		return err
	}
	watcher := NewWatcher(c, w, func(_ context.Context, in reconcile.Input) error {
		if in, ok := in.(reconcile.Observed); ok {
			f(in.Object)
		}
		return nil
	}, log, jitter)
	for {
		if revision, err = watcher.resumeWatch(ctx, revision, false); err != nil {
			return err
		}
	}
}
