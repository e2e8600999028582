package upgrade

import (
	"context"
	"log/slog"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// interval between two looks at the Deployment during an upgrade.
const interval = 2 * time.Second

// Restore is the Job of the upgrade with an ID: it restores the old image unless the new agent confirms in time. It returns
// when nothing is left to do. Errors of the API server are retried.
func Restore(ctx context.Context, c *kube.Client, namespace, name, id string, log *slog.Logger) error {
	job := restoreJob{client: c, ref: kind.Ref{Resource: deployments, Namespace: namespace, Name: name}, id: id, log: log}
	for {
		done, err := job.step(ctx)
		if done {
			return err
		}
		if err != nil {
			log.WarnContext(ctx, "Failed to process Deployment, retrying", "deployment", name, "error", err)
		}
		if !backoff.Sleep(ctx, interval) {
			return context.Cause(ctx)
		}
	}
}

// restoreJob is one run of Restore.
type restoreJob struct {
	client *kube.Client
	ref    kind.Ref
	id     string
	log    *slog.Logger
	phase  string    // that was seen last
	seen   time.Time // when it was first seen
}

func (j *restoreJob) step(ctx context.Context) (done bool, err error) {
	d, err := readDeployment(ctx, j.client, j.ref)
	switch {
	case err != nil:
		return false, err
	case d == nil:
		j.log.InfoContext(ctx, "Deployment no longer exists", "deployment", j.ref.Name)
		return true, nil
	}
	now := time.Now()
	if d.record.Phase != j.phase {
		j.phase, j.seen = d.record.Phase, now
	}
	write, image, done := restore(d, j.id, j.seen, now)
	if write == nil {
		if done {
			j.log.InfoContext(ctx, "Nothing left to do", "deployment", j.ref.Name, "upgrade", d.record.ID, "phase", d.record.Phase)
		}
		return done, nil
	}
	err = d.write(ctx, j.client, *write, image)
	switch {
	case kube.IsConflict(err): // it is read again
		return false, nil
	case err != nil:
		return false, err
	}
	j.log.InfoContext(ctx, "Upgrade is in another phase", "deployment", j.ref.Name, "upgrade", j.id, "phase", write.Phase, "image", image, "message", write.Message)
	return false, nil
}
