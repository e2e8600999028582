package principal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// Times of the Lease that one principal replica of a standby holds. The holder stops standbyLeaseMargin before another
// replica can take the Lease over.
const (
	standbyLeaseName    = "argocd-agent-standby"
	standbyLeaseTime    = 15 * time.Second
	standbyLeaseMargin  = 5 * time.Second
	standbyLeaseRenewal = 2 * time.Second
	standbyLeaseAttempt = 3 * time.Second
)

// standbyLease is a Lease that at most one replica holds. A replica takes it over if its holder has not renewed it for its
// duration, by the clock of that replica. Clocks are never compared. Each write has the resourceVersion that was read, so
// that a decision from a stale view fails.
//
// The election of client-go does the same. It depends on the clients of all Kubernetes APIs, which are half of a binary.
type standbyLease struct {
	store    leaseStore
	identity string
	log      *slog.Logger

	version string    // that was read or written last
	since   time.Time // when it was first read
}

// leaseStore reads and writes the Lease.
type leaseStore interface {
	// read returns version "" if there is no Lease.
	read(ctx context.Context) (holder, version string, duration time.Duration, err error)
	// write returns the new version, or errLeaseChanged if the Lease no longer has this version. An empty holder gives the
	// Lease up.
	write(ctx context.Context, version, holder string) (string, error)
}

var (
	errLeaseLost    = errors.New("lost Lease " + standbyLeaseName)
	errLeaseChanged = errors.New("Lease " + standbyLeaseName + " has changed")
)

// run calls do as soon as this replica holds the Lease, and ends its context when ctx ends or the Lease is lost. If it is
// lost, run returns an error.
func (l *standbyLease) run(ctx context.Context, do func(context.Context) error) error {
	var logged logonce.One
	var until time.Time
	for {
		var err error
		if until, err = l.tryHold(ctx); err != nil && ctx.Err() == nil && logged.Changed(err.Error()) {
			l.log.WarnContext(ctx, "Failed to use the Lease of the standby, retrying", "error", err)
		}
		if !until.IsZero() {
			break
		}
		if !backoff.Sleep(ctx, standbyLeaseRenewal) {
			return nil
		}
	}
	holding, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		stop(l.renew(holding, until))
	}()
	err := do(holding)
	lost := errors.Is(context.Cause(holding), errLeaseLost)
	stop(nil)
	<-renewed
	if lost {
		return errors.Join(errLeaseLost, err)
	}
	l.release(ctx)
	return err
}

// tryHold takes the Lease if it is free. It returns until when this replica holds it, or zero.
func (l *standbyLease) tryHold(ctx context.Context) (until time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, standbyLeaseRenewal)
	defer cancel()
	began := time.Now()
	holder, version, duration, err := l.store.read(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if version != l.version {
		l.version, l.since = version, time.Now()
	}
	if version != "" && holder != "" && holder != l.identity && time.Since(l.since) <= max(duration, standbyLeaseTime) {
		return time.Time{}, nil
	}
	written, err := l.store.write(ctx, version, l.identity)
	switch {
	case errors.Is(err, errLeaseChanged): // another replica was first
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, err
	}
	l.version = written
	return began.Add(standbyLeaseTime - standbyLeaseMargin), nil
}

// renew renews the Lease until ctx ends. It returns an error when this replica may no longer hold it.
func (l *standbyLease) renew(ctx context.Context, until time.Time) error {
	for {
		if !backoff.Sleep(ctx, min(standbyLeaseRenewal, time.Until(until))) {
			return nil
		}
		if !time.Now().Before(until) {
			return errLeaseLost
		}
		attempt, cancel := context.WithTimeout(ctx, min(standbyLeaseAttempt, time.Until(until)))
		next, err := l.renewOnce(attempt)
		cancel()
		switch {
		case err == nil:
			until = next
		case errors.Is(err, errLeaseLost):
			return err
		case ctx.Err() == nil:
			l.log.WarnContext(ctx, "Failed to renew the Lease of the standby, retrying", "error", err)
		}
	}
}

// renewOnce renews the Lease if this replica still holds it.
func (l *standbyLease) renewOnce(ctx context.Context) (until time.Time, err error) {
	began := time.Now()
	if err := l.writeAsHolder(ctx, l.identity); err != nil {
		return time.Time{}, err
	}
	return began.Add(standbyLeaseTime - standbyLeaseMargin), nil
}

// release gives the Lease up, so that another replica need not wait.
func (l *standbyLease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), standbyLeaseRenewal)
	defer cancel()
	if err := l.writeAsHolder(ctx, ""); err != nil {
		l.log.InfoContext(ctx, "Failed to give up the Lease of the standby, it expires", "error", err)
	}
}

// writeAsHolder writes the Lease if this replica still holds it. If another replica does, the error is errLeaseLost.
func (l *standbyLease) writeAsHolder(ctx context.Context, holder string) error {
	version, err := l.store.write(ctx, l.version, holder)
	if errors.Is(err, errLeaseChanged) { // another replica has it, something else has edited it, or a canceled write was stored
		var is string
		if is, version, _, err = l.store.read(ctx); err != nil {
			return err
		}
		if is != l.identity || version == "" {
			return errLeaseLost
		}
		version, err = l.store.write(ctx, version, holder)
	}
	if err == nil {
		l.version = version
	}
	return err
}

// clusterLease is a Lease in a cluster.
type clusterLease struct {
	client *kube.Client
	ref    kind.Ref
}

func (c clusterLease) read(ctx context.Context) (holder, version string, duration time.Duration, err error) {
	o, err := c.client.Get(ctx, c.ref)
	if err != nil || o == nil {
		return "", "", 0, err
	}
	holder, duration = kube.LeaseHolder(o)
	return holder, o.ResourceVersion(), duration, nil
}

func (c clusterLease) write(ctx context.Context, version, holder string) (string, error) {
	metadata := map[string]any{"name": c.ref.Name, "namespace": c.ref.Namespace}
	object := map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": c.ref.Resource.Kind, "metadata": metadata, "spec": kube.LeaseSpec(holder, standbyLeaseTime)}
	write := c.client.Patch
	if version == "" {
		write = c.client.Create
	} else {
		metadata["resourceVersion"] = version
	}
	o, err := write(ctx, c.ref, object)
	switch {
	case kube.IsConflict(err), version != "" && kube.IsNotFound(err):
		return "", errLeaseChanged
	case err != nil:
		return "", fmt.Errorf("write Lease %s: %w", c.ref.Name, err)
	}
	return o.ResourceVersion(), nil
}
