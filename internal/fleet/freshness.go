package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/tasks"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// Freshness shows on the hub's Applications that their agent is disconnected, and removes that after its return.
//
// What an Application must show follows from its agent's Agent, so every principal replica decides the same, also after
// a restart. One replica writes: that with the agent's session or, if there is none, the first one. A write is
// conditional on the Application that it was decided with.
type Freshness struct {
	cfg    FreshnessConfig
	agents queue // whose Applications are checked
	apps   queue // Applications to be written, as namespace/name
	sets   *rollingSets

	mu      sync.Mutex
	outages map[string]outage    // by agent, as of the last check
	stale   int                  // number of agents with an outage
	noticed map[string]time.Time // Application → outage in which its notice was written
}

// outage is what decides what the Applications of an agent show.
type outage struct {
	since   time.Time // zero if the agent is connected, or disconnected for less than the threshold
	written bool      // by this replica
}

// HealthPolicy decides for which Applications health is Unknown while their agent is disconnected.
type HealthPolicy string

// Values of HealthPolicy.
const (
	HideHealthNever       HealthPolicy = "never"
	HideHealthRollingSync HealthPolicy = "rollingsync" // Applications of ApplicationSets with the strategy RollingSync
	HideHealthAlways      HealthPolicy = "always"
)

// HealthPolicies are all values.
var HealthPolicies = []HealthPolicy{HideHealthNever, HideHealthRollingSync, HideHealthAlways}

// FreshnessSettings are the hub's settings.
type FreshnessSettings struct {
	After  time.Duration // how long an agent may be disconnected; if zero, nothing is shown unless its Agent has a value
	Health HealthPolicy
	Notice bool
}

// FreshnessConfig is what a Freshness needs.
type FreshnessConfig struct {
	FreshnessSettings
	Client     *kube.Client
	Registry   *Registry
	Replicas   *Replicas
	Connected  func(agent string) bool                                  // reports whether an agent has a session with this replica
	Reconciler *reconcile.Reconciler                                    // used by Follow only
	Do         func(context.Context, func(*reconcile.Reconciler)) error // calls a function with the reconciler
	Ready      func(context.Context) error                              // waits until the hub's objects were read
	Log        *slog.Logger
}

// Limits of writes. Together with the status of Agents they are at most 100 per second.
const (
	freshnessWriters  = 2
	freshnessInterval = 20 * time.Millisecond // between two writes
	freshnessPerApp   = time.Second
)

const (
	outageInterval       = 2 * time.Second // between two checks of all agents
	staleRecheckInterval = time.Minute     // between two checks of the Applications of disconnected agents
)

// NewFreshness returns a Freshness that is started by Run.
func NewFreshness(cfg FreshnessConfig) *Freshness {
	f := &Freshness{cfg: cfg, sets: newRollingSets(cfg.Client, cfg.Log), outages: map[string]outage{}, noticed: map[string]time.Time{}}
	f.agents = tasks.NewQueue(tasks.Config{Name: "check Applications of agent", Do: f.checkApplications, Parallel: 1, Log: cfg.Log})
	f.apps = tasks.NewQueue(tasks.Config{Name: "show connection on Application", Do: f.write, Parallel: freshnessWriters, Interval: freshnessInterval, Burst: 1,
		MinInterval: freshnessPerApp, Log: cfg.Log})
	return f
}

// Run shows outages until ctx ends.
func (f *Freshness) Run(ctx context.Context) error {
	if f.cfg.Ready(ctx) != nil {
		return nil //nolint:nilerr // ctx ended
	}
	return f.cfg.Registry.runWhenReady(ctx, f.checkAgents, f.agents.Run, f.apps.Run)
}

func (f *Freshness) checkAgents(ctx context.Context) error {
	rechecked := time.Now()
	for {
		again := time.Since(rechecked) >= staleRecheckInterval
		if again {
			rechecked = time.Now()
			f.sets.refresh(ctx)
		}
		f.checkOutages(again)
		if !backoff.Sleep(ctx, outageInterval) {
			return nil
		}
	}
}

// checkOutages queues the agents whose Applications may have to change and, with again, all that are disconnected.
func (f *Freshness) checkOutages(again bool) {
	names := f.cfg.Registry.objectNames()
	now := make(map[string]outage, len(names))
	for _, agent := range names {
		now[agent] = f.outage(agent)
	}
	f.mu.Lock()
	before := f.outages
	f.outages, f.stale = now, 0
	for _, o := range now {
		if !o.since.IsZero() {
			f.stale++
		}
	}
	stale := f.stale
	f.mu.Unlock()
	if stale == 0 {
		f.sets.clear()
	}
	for agent, o := range now {
		if was, known := before[agent]; o.written && (!known || was != o || again && !o.since.IsZero()) {
			f.agents.Add(agent)
		}
	}
	for agent := range before {
		if _, known := now[agent]; !known {
			f.agents.Add(agent)
		}
	}
}

// outage returns the current outage of an agent.
func (f *Freshness) outage(agent string) outage {
	a, known := f.cfg.Registry.Agent(agent)
	o := outage{written: f.cfg.Replicas.Reports(agent)}
	if !known || a.Status.Connected || a.Status.Since == nil || f.cfg.Connected(agent) {
		return o
	}
	after := f.cfg.After
	if own, err := time.ParseDuration(a.Spec.DisconnectedAfter); err == nil && own >= 0 {
		after = own
	}
	if after > 0 && time.Since(a.Status.Since.Time) >= after {
		o.since = a.Status.Since.Time
	}
	return o
}

// Follow checks Applications that change. It is called by the goroutine that owns the reconciler, after the reconciler.
func (f *Freshness) Follow(in reconcile.Input) {
	switch in := in.(type) {
	case reconcile.Observed:
		if in.Resource == kind.Applications {
			f.check(f.cfg.Reconciler, in.Object.Namespace(), in.Object.Name())
		}
	case reconcile.List:
		if in.Resource == kind.Applications {
			for _, o := range in.Objects {
				f.check(f.cfg.Reconciler, o.Namespace(), o.Name())
			}
		}
	case reconcile.ApplicationsRead:
		for _, o := range in.Objects {
			f.check(f.cfg.Reconciler, o.Namespace(), o.Name())
		}
	case reconcile.Deleted:
		if in.Ref.Resource == kind.Applications {
			f.setNoticed(in.Ref.Namespace+"/"+in.Ref.Name, time.Time{})
		}
	case reconcile.Register:
		f.agents.Add(in.Agent.Name)
	case reconcile.Unregister:
		f.agents.Add(in.Agent)
	}
}

// checkApplications checks the Applications of an agent. If it is no longer registered, these are not known, and all are
// checked.
func (f *Freshness) checkApplications(ctx context.Context, agent string) error {
	reg, registered := f.cfg.Registry.Get(agent)
	return f.cfg.Do(ctx, func(n *reconcile.Reconciler) {
		check := func(namespace, name string) { f.check(n, namespace, name) }
		if registered {
			n.ApplicationsOf(reg.Agent, check)
		} else {
			n.Applications(check)
		}
	})
}

// check queues an Application that does not show what it must.
func (f *Freshness) check(n *reconcile.Reconciler, namespace, name string) {
	o := n.Object(kind.Ref{Resource: kind.Applications, Namespace: namespace, Name: name})
	if o == nil || o.IsReduced() { // another replica writes it, or it is read soon
		return
	}
	f.mu.Lock()
	stale := f.stale > 0
	f.mu.Unlock()
	if !stale && !kind.ShowsDisconnected(o) {
		return
	}
	agent, belongs := agentOf(n, namespace, name)
	f.mu.Lock()
	known, ok := f.outages[agent]
	f.mu.Unlock()
	switch {
	case !belongs:
		known = outage{written: f.cfg.Replicas.Reports("")}
	case !ok:
		return // the next check of all agents
	}
	hides, decided := f.hides(o)
	if known.written && (!decided || f.desired(o, agent, known, hides) != o) {
		f.apps.Add(namespace + "/" + name)
	}
}

// hides reports whether the health of an Application is hidden, and whether that is known without a request.
func (f *Freshness) hides(o *kind.Object) (hides, known bool) {
	switch f.cfg.Health {
	case HideHealthAlways:
		return true, true
	case HideHealthNever:
		return false, true
	}
	return f.sets.cached(o)
}

// desired returns an Application with what it must show. It returns the same object if it does.
func (f *Freshness) desired(o *kind.Object, agent string, is outage, hides bool) *kind.Object {
	if is.since.IsZero() {
		return kind.ClearDisconnected(o)
	}
	// If another controller removes the notice, it is not written again in this outage. The ApplicationSet controller
	// removes annotations that it is not configured to preserve.
	f.mu.Lock()
	removed := f.noticed[o.Namespace()+"/"+o.Name()].Equal(is.since) && !kind.ShowsNotice(o)
	f.mu.Unlock()
	return kind.ShowDisconnected(o, kind.Disconnection{Agent: agent, Since: is.since, HideHealth: hides, Notice: f.cfg.Notice && !removed})
}

// write writes an Application that does not show what it must.
func (f *Freshness) write(ctx context.Context, key string) error {
	namespace, name, _ := strings.Cut(key, "/")
	ref := kind.Ref{Resource: kind.Applications, Namespace: namespace, Name: name}
	var o *kind.Object
	var agent string
	var belongs bool
	if err := f.cfg.Do(ctx, func(n *reconcile.Reconciler) {
		o = n.Object(ref)
		agent, belongs = agentOf(n, namespace, name)
	}); err != nil || o == nil {
		return err
	}
	is := f.outage(agent)
	if !belongs {
		is.since = time.Time{}
	}
	if !is.written {
		return nil
	}
	hides, known := f.hides(o)
	if !known && !is.since.IsZero() {
		var err error
		if hides, err = f.sets.read(ctx, o); err != nil {
			return err
		}
	}
	after := f.desired(o, agent, is, hides)
	if after == o {
		return nil
	}
	_, err := f.cfg.Client.Update(ctx, ref, after)
	switch {
	case kube.IsConflict(err):
		f.apps.Add(key) // the watch shows the change
		return nil
	case kube.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("update Application %s: %w", key, err)
	}
	if kind.ShowsNotice(after) || is.since.IsZero() {
		f.setNoticed(key, is.since)
	}
	return nil
}

// setNoticed records the outage in which the notice of an Application was written. A zero time removes the record.
func (f *Freshness) setNoticed(key string, since time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since.IsZero() {
		delete(f.noticed, key)
	} else {
		f.noticed[key] = since
	}
}
