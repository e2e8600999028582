package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// Replicas knows the principal replicas of the hub. Each renews its own Lease, so that the agents of a crashed replica are
// not reported as connected forever.
type Replicas struct {
	client      *kube.Client
	registry    *Registry
	namespace   string
	self        string
	selfAddress string
	log         *slog.Logger

	changed chan struct{} // of one: the Lease is renewed at once

	mu       sync.Mutex
	fleet    reconcile.FleetStatus     // of this replica; shared in its Lease
	draining bool                      // shared in its Lease
	seen     map[string]leaseHeartbeat // by name of the Lease
	listed   bool
	ready    chan struct{} // closed when the Leases were listed
}

type leaseHeartbeat struct {
	replica string
	address string
	at      time.Time // when this replica saw it, because clocks can differ
	lease   *kind.Object
}

// fleetShare is what a replica shares in its Lease.
type fleetShare struct {
	reconcile.FleetTotals
	Settings string
	Sessions *int `json:",omitempty"` // nil if the replica accepts no agents
	Draining bool `json:",omitempty"` // it moves its agents to the others and ends
}

const (
	replicaLabel      = kind.Prefix + "replica" // of Leases
	replicaAnnotation = kind.Prefix + "replica-name"
	addressAnnotation = kind.Prefix + "replica-address"
	fleetAnnotation   = kind.Prefix + "replica-agents"
	leaseRenewal      = 10 * time.Second
	leaseDuration     = 30 * time.Second
	leaseDeleteAfter  = 10 * time.Minute // any replica deletes older Leases
)

// NewReplicas returns the Replicas of a hub. address is the host:port at which other replicas reach this one. If it is
// empty, they cannot.
func NewReplicas(c *kube.Client, registry *Registry, namespace, self, address string, log *slog.Logger) *Replicas {
	return &Replicas{client: c, registry: registry, namespace: namespace, self: self, selfAddress: address, log: log, changed: make(chan struct{}, 1),
		seen: map[string]leaseHeartbeat{}, ready: make(chan struct{})}
}

// Ready is closed when the Leases were read once.
func (r *Replicas) Ready() <-chan struct{} { return r.ready }

// Self returns the name of this replica.
func (r *Replicas) Self() string { return r.self }

// Watch selects the Leases. Its sink is Apply.
func (r *Replicas) Watch() kube.Watch {
	return kube.Watch{Resource: kube.Leases, Namespace: r.namespace, Selector: replicaLabel}
}

// Apply applies a change of the Leases.
func (r *Replicas) Apply(_ context.Context, in reconcile.Input) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch in := in.(type) {
	case reconcile.List:
		present := sets.New[string]()
		for _, o := range in.Objects {
			present.Insert(o.Name())
			r.observe(o)
		}
		maps.DeleteFunc(r.seen, func(name string, _ leaseHeartbeat) bool { return !present.Has(name) })
		if !r.listed {
			r.listed = true
			close(r.ready)
		}
	case reconcile.Observed:
		r.observe(in.Object)
	case reconcile.Deleted:
		delete(r.seen, in.Ref.Name)
	}
	return nil
}

// observe records a heartbeat if the Lease has changed.
func (r *Replicas) observe(o *kind.Object) {
	if before, known := r.seen[o.Name()]; known && before.lease.ResourceVersion() == o.ResourceVersion() {
		return
	}
	r.seen[o.Name()] = leaseHeartbeat{replica: o.Annotation(replicaAnnotation), address: o.Annotation(addressAnnotation), at: time.Now(), lease: o}
}

// Alive reports whether a replica renews its Lease.
func (r *Replicas) Alive(replica string) bool {
	if replica == r.self {
		return true
	}
	_, alive := r.last(replica)
	return alive
}

// Address returns the host:port of a replica that is alive. It is empty if there is none.
func (r *Replicas) Address(replica string) string {
	s, _ := r.last(replica)
	return s.address
}

// Others returns the addresses of the other replicas that are alive. An address is empty if the replica cannot be reached.
func (r *Replicas) Others() (addresses []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.aliveOthers() {
		addresses = append(addresses, s.address)
	}
	return addresses
}

// renewedSince returns the other replicas that have renewed their Leases since a time, by their own clocks. A replica that has
// just started does not know yet which of them are alive.
func (r *Replicas) renewedSince(since time.Time) sets.Set[string] {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := sets.New[string]()
	for _, s := range r.seen {
		if s.replica != r.self && kube.LeaseRenewed(s.lease).After(since) {
			found.Insert(s.replica)
		}
	}
	return found
}

func (r *Replicas) last(replica string) (leaseHeartbeat, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		if s.replica == replica && time.Since(s.at) < leaseDuration {
			return s, true
		}
	}
	return leaseHeartbeat{}, false
}

func (r *Replicas) setFleet(status reconcile.FleetStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fleet = status
}

func (r *Replicas) fleetStatus() reconcile.FleetStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fleet
}

// others sums up the totals of the other replicas. It returns false until the Leases were listed. A replica without totals
// or with other settings is being replaced.
func (r *Replicas) others() (reconcile.FleetOthers, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all reconcile.FleetOthers
	for _, s := range r.aliveOthers() {
		share, err := s.share()
		if err != nil || share.Settings != r.fleet.Settings {
			all.Differ = true
		}
		all.Compared += share.Compared
		all.Opening += share.Opening
		all.Affected += share.Affected
		all.Items += share.Items
	}
	return all, r.listed
}

// sessionsOfOthers returns the number of sessions of each other replica that accepts agents.
func (r *Replicas) sessionsOfOthers() (counts []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.aliveOthers() {
		if share, err := s.share(); err == nil && share.Sessions != nil {
			counts = append(counts, max(0, *share.Sessions))
		}
	}
	return counts
}

// targets returns how many other replicas accept agents, and how many are starting, so that they will. Replicas that drain do
// not count.
func (r *Replicas) targets() (accepting, starting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.aliveOthers() {
		switch share, err := s.share(); {
		case err != nil || share.Draining:
		case share.Sessions != nil:
			accepting++
		default:
			starting++
		}
	}
	return accepting, starting
}

// aliveOthers returns the last heartbeats of the other replicas that are alive. The caller must hold mu.
func (r *Replicas) aliveOthers() (all []leaseHeartbeat) {
	for _, s := range r.seen {
		if s.replica != r.self && time.Since(s.at) < leaseDuration {
			all = append(all, s)
		}
	}
	return all
}

func (s leaseHeartbeat) share() (share fleetShare, err error) {
	err = json.Unmarshal([]byte(s.lease.Annotation(fleetAnnotation)), &share)
	return share, err
}

// Renew renews the Lease at once, because the number of sessions has become known.
func (r *Replicas) Renew() {
	select {
	case r.changed <- struct{}{}:
	default: // it will be renewed
	}
}

// Drain publishes that this replica moves its agents to the others and accepts none. A renewal that has begun before can still
// overwrite that, until the next one. The others can then ask agents to connect again that come here. They are refused.
func (r *Replicas) Drain(ctx context.Context) error {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	return r.renew(ctx, nil)
}

// Run renews the Lease of this replica until ctx ends, and then deletes it. sessions returns the number of its sessions, or
// nil while it accepts no agents.
func (r *Replicas) Run(ctx context.Context, sessions func() *int) error {
	var logged logonce.One
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-r.changed:
		case <-timer.C:
		}
		timer.Reset(leaseRenewal)
		switch err := r.renew(ctx, sessions()); {
		case ctx.Err() != nil:
		case err == nil:
			logged.Reset()
		case logged.Changed(err.Error()):
			r.log.WarnContext(ctx, "Failed to renew the Lease of this principal replica", "error", err)
		}
		r.deleteExpired(ctx)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if o, err := r.client.Get(ending, r.ref()); err == nil && o != nil {
		_ = r.client.Delete(ending, r.ref(), o) // else it expires
	}
	return nil
}

func (r *Replicas) ref() kind.Ref {
	return kind.Ref{Resource: kube.Leases, Namespace: r.namespace, Name: "argocd-agent-principal-" + hashOf([]byte(r.self))}
}

func (r *Replicas) renew(ctx context.Context, sessions *int) error {
	ctx, cancel := context.WithTimeout(ctx, leaseRenewal)
	defer cancel()
	r.mu.Lock()
	ref, share := r.ref(), fleetShare{r.fleet.FleetTotals, r.fleet.Settings, sessions, r.draining}
	r.mu.Unlock()
	annotation, err := json.Marshal(share)
	if err != nil {
		return fmt.Errorf("marshal the totals of agents: %w", err)
	}
	annotations := map[string]string{replicaAnnotation: r.self, fleetAnnotation: string(annotation)}
	if r.selfAddress != "" {
		annotations[addressAnnotation] = r.selfAddress
	}
	_, err = r.client.Apply(ctx, ref, fieldManager, map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace, "labels": map[string]string{replicaLabel: "principal"},
			"annotations": annotations},
		"spec": kube.LeaseSpec(r.self, leaseDuration)})
	if err != nil {
		return fmt.Errorf("renew Lease %s: %w", ref.Name, err)
	}
	return nil
}

// deleteExpired deletes the Leases of replicas that ended long ago.
func (r *Replicas) deleteExpired(ctx context.Context) {
	r.mu.Lock()
	var old []*kind.Object
	for _, s := range r.seen {
		if time.Since(s.at) > leaseDeleteAfter && s.replica != r.self {
			old = append(old, s.lease)
		}
	}
	r.mu.Unlock()
	for _, o := range old {
		_ = r.client.Delete(ctx, kind.Ref{Resource: kube.Leases, Namespace: r.namespace, Name: o.Name()}, o) // retried at the next renewal
	}
}

// Reports reports whether this replica does and exports what exists once for an agent: it holds or held the last session of
// the agent or, if the replica that did is not alive, it is the first replica that is alive.
func (r *Replicas) Reports(agent string) bool {
	if a, known := r.registry.Agent(agent); known && a.Status.Principal != "" && r.Alive(a.Status.Principal) {
		return a.Status.Principal == r.self
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		if s.replica != "" && s.replica < r.self && time.Since(s.at) < leaseDuration {
			return false
		}
	}
	return true
}

// NewerSession returns the other replica that holds a newer session of an agent than epoch. It is empty if there is none,
// or if that replica is not alive.
func (r *Replicas) NewerSession(agent string, epoch engine.Epoch) string {
	holder := r.Holder(agent)
	a, _ := r.registry.Agent(agent)
	if s := a.Status.Session; holder == "" || s == nil || !(engine.Epoch{Incarnation: s.Incarnation, Attempt: s.Attempt}).Newer(epoch) {
		return ""
	}
	return holder
}

// Holder returns the other replica that holds the session of an agent. It is empty if there is none that is alive.
func (r *Replicas) Holder(agent string) string {
	a, known := r.registry.Agent(agent)
	if s := a.Status; known && s.Connected && s.Principal != r.self && r.Alive(s.Principal) {
		return s.Principal
	}
	return ""
}
