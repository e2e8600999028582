package principal

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// principalReplicas knows which principals there are: each keeps a Lease of its own, and
// none for agents. So an agent does not seem to be connected forever with one
// that has crashed.
type principalReplicas struct {
	client      *kube.Client
	namespace   string
	self        string
	selfAddress string // host:port where other principals reach this one; empty: they do not
	log         *slog.Logger

	fleetStatus func() reconcile.FleetStatus // what the others are told of this one's agents

	mu     sync.Mutex
	seen   map[string]leaseHeartbeat // Lease → its last sign of life
	listed bool                      // all were read once
}

type leaseHeartbeat struct {
	replica string
	address string
	at      time.Time // by this clock: those of others may be wrong
	lease   *kind.Object
}

// fleetShare is what a principal tells others of its agents, in its Lease.
type fleetShare struct {
	reconcile.FleetTotals
	Settings string
}

const (
	replicaLabel      = kind.Prefix + "replica" // of a Lease: the principal's
	replicaAnnotation = kind.Prefix + "replica-name"
	addressAnnotation = kind.Prefix + "replica-address"
	fleetAnnotation   = kind.Prefix + "replica-agents"
	leaseRenewal      = 10 * time.Second
	leaseDuration     = 30 * time.Second // without a renewal
	leaseDeleteAfter  = 10 * time.Minute // after that anybody removes it
)

func newReplicas(c *kube.Client, namespace, self, at string, fleet func() reconcile.FleetStatus, log *slog.Logger) *principalReplicas {
	return &principalReplicas{client: c, namespace: namespace, self: self, selfAddress: at, fleetStatus: fleet, log: log, seen: map[string]leaseHeartbeat{}}
}

func (r *principalReplicas) watch() kube.Watch {
	return kube.Watch{Resource: kube.Leases, Namespace: r.namespace, Selector: replicaLabel}
}

// apply is the sink of the Leases' watcher.
func (r *principalReplicas) apply(_ context.Context, in reconcile.Input) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch in := in.(type) {
	case reconcile.List:
		present := map[string]bool{}
		for _, o := range in.Objects {
			present[o.Name()] = true
			r.observe(o)
		}
		for name := range r.seen {
			if !present[name] {
				delete(r.seen, name)
			}
		}
		r.listed = true
	case reconcile.Observed:
		r.observe(in.Object)
	case reconcile.Deleted:
		delete(r.seen, in.Ref.Name)
	}
	return nil
}

// observe takes a Lease that has changed as a sign of life. One that is as it was
// when it was last listed is none.
func (r *principalReplicas) observe(o *kind.Object) {
	if before, known := r.seen[o.Name()]; known && before.lease.ResourceVersion() == o.ResourceVersion() {
		return
	}
	r.seen[o.Name()] = leaseHeartbeat{replica: o.Annotation(replicaAnnotation), address: o.Annotation(addressAnnotation), at: time.Now(), lease: o}
}

// alive reports whether a principal is there.
func (r *principalReplicas) alive(replica string) bool {
	if replica == r.self {
		return true
	}
	_, alive := r.last(replica)
	return alive
}

// address is where a principal that is there can be reached; empty: nowhere.
func (r *principalReplicas) address(replica string) string {
	s, _ := r.last(replica)
	return s.address
}

// last finds the last sign of life of a principal that is there.
func (r *principalReplicas) last(replica string) (leaseHeartbeat, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen { // a handful
		if s.replica == replica && time.Since(s.at) < leaseDuration {
			return s, true
		}
	}
	return leaseHeartbeat{}, false
}

// share is what this principal tells the others.
func (r *principalReplicas) share() fleetShare {
	s := r.fleetStatus()
	return fleetShare{s.FleetTotals, s.Settings}
}

// others sums up what the agents of other principals come to; false: they have not
// been read yet. One that tells nothing, or has other settings, is being replaced.
func (r *principalReplicas) others() (reconcile.FleetOthers, bool) {
	settings := r.fleetStatus().Settings
	r.mu.Lock()
	defer r.mu.Unlock()
	var all reconcile.FleetOthers
	for _, s := range r.seen {
		if s.replica == r.self || time.Since(s.at) >= leaseDuration {
			continue
		}
		var share fleetShare
		if err := json.Unmarshal([]byte(s.lease.Annotation(fleetAnnotation)), &share); err != nil || share.Settings != settings {
			all.Differ = true
		}
		all.Compared += share.Compared
		all.Opening += share.Opening
		all.Affected += share.Affected
		all.Items += share.Items
	}
	return all, r.listed
}

// run renews this principal's Lease until the context ends, and then removes it.
func (r *principalReplicas) run(ctx context.Context) error {
	said := ""
	for {
		switch err := r.renew(ctx); {
		case ctx.Err() != nil:
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			r.log.WarnContext(ctx, "cannot renew this principal's Lease; others may take it for gone", "error", err)
		}
		r.sweep(ctx)
		if !sleep(ctx, leaseRenewal) {
			break
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if o, err := r.client.Get(ending, r.ref()); err == nil && o != nil {
		_ = r.client.Delete(ending, r.ref(), o) // else it expires
	}
	return nil
}

func (r *principalReplicas) ref() kind.Ref {
	return kind.Ref{Resource: kube.Leases, Namespace: r.namespace, Name: "argocd-agent-principal-" + hashOf([]byte(r.self))}
}

func (r *principalReplicas) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseRenewal)
	defer cancel()
	ref := r.ref()
	annotations := map[string]string{replicaAnnotation: r.self}
	share, err := json.Marshal(r.share())
	if err != nil {
		return fmt.Errorf("write down the totals of agents: %w", err)
	}
	annotations[fleetAnnotation] = string(share)
	if r.selfAddress != "" {
		annotations[addressAnnotation] = r.selfAddress
	}
	_, err = r.client.Apply(ctx, ref, secretManager, map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace, "labels": map[string]string{replicaLabel: "principal"},
			"annotations": annotations},
		"spec": map[string]any{"holderIdentity": r.self, "leaseDurationSeconds": int(leaseDuration.Seconds()), "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}})
	if err != nil {
		return fmt.Errorf("renew Lease %s: %w", ref.Name, err)
	}
	return nil
}

// sweep removes Leases of principals that are long gone.
func (r *principalReplicas) sweep(ctx context.Context) {
	r.mu.Lock()
	var old []*kind.Object
	for _, s := range r.seen {
		if time.Since(s.at) > leaseDeleteAfter && s.replica != r.self {
			old = append(old, s.lease)
		}
	}
	r.mu.Unlock()
	for _, o := range old {
		_ = r.client.Delete(ctx, kind.Ref{Resource: kube.Leases, Namespace: r.namespace, Name: o.Name()}, o) // else the next time
	}
}
