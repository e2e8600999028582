package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/tasks"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// StatusWriter writes the status of Agents: after a change, and periodically for values that only age. The principal
// replica that holds the agent's session writes.
type StatusWriter struct {
	cfg      StatusWriterConfig
	registry *Registry
	queue    *tasks.Queue
	started  time.Time

	mu           sync.Mutex
	sessions     map[string]sessionState // by agent; of sessions with this principal replica
	secretErrors map[string]string       // by agent
	wrote        map[string]time.Time    // agent → last write of its status
	ageInterval  time.Duration           // between two writes of a status that has only aged
}

// Limits of status writes, in total and per agent.
const (
	parallelStatuses  = 4
	writeInterval     = 20 * time.Millisecond
	writeBurst        = 200
	minStatusInterval = time.Second
)

// Values that only age, such as when both sides were last in sync, are written every minute or, with many agents, less
// often: ten per second for all of them, and every ten minutes for each. countInterval is how often items are counted;
// with many agents less often.
const (
	minAgeInterval        = time.Minute
	maxAgeInterval        = 10 * time.Minute
	ageIntervalPerAgent   = 100 * time.Millisecond // for each agent
	countInterval         = 10 * time.Second
	countIntervalPerAgent = 20 * time.Millisecond // for each agent
)

// reconnectGrace is how long agents may take to reconnect after the start of a principal before they are reported as
// disconnected.
const reconnectGrace = time.Minute

// StatusWriterConfig is what a StatusWriter needs.
type StatusWriterConfig struct {
	Registry *Registry
	Replicas *Replicas
	Upgrades *Upgrades
	Do       func(context.Context, func(*reconcile.Reconciler)) error     // calls a function with the reconciler
	Hello    func(agent string, epoch engine.Epoch) (info Hello, ok bool) // returns what an agent sent on a connection
	Log      *slog.Logger
}

// NewStatusWriter returns a StatusWriter that is started by Run.
func NewStatusWriter(cfg StatusWriterConfig) *StatusWriter {
	r := &StatusWriter{cfg: cfg, registry: cfg.Registry, started: time.Now(), sessions: map[string]sessionState{}, secretErrors: map[string]string{}, wrote: map[string]time.Time{}, ageInterval: maxAgeInterval}
	r.queue = tasks.NewQueue(tasks.Config{Name: "write Agent status", Do: r.write, Parallel: parallelStatuses, Interval: writeInterval, Burst: writeBurst, MinInterval: minStatusInterval, Log: cfg.Log})
	cfg.Registry.OnChange(r.check)
	return r
}

// Run writes statuses until ctx ends.
func (r *StatusWriter) Run(ctx context.Context) error {
	return r.registry.runWhenReady(ctx, r.pollCountsPeriodically, r.queue.Run)
}

// UpgradeChanged must be called after an agent reported what it does about upgrades.
func (r *StatusWriter) UpgradeChanged(agent string) { r.check(agent) }

// setSecretError sets what is wrong with an agent's cluster Secret, or blocks its deletion.
func (r *StatusWriter) setSecretError(agent, text string) {
	r.mu.Lock()
	before := r.secretErrors[agent]
	if text == "" {
		delete(r.secretErrors, agent)
	} else {
		r.secretErrors[agent] = text
	}
	r.mu.Unlock()
	if before != text {
		r.check(agent)
	}
}

// InSyncKnown reports whether the session was in sync before. Only the first InSync event of a session is news.
func (r *StatusWriter) InSyncKnown(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.sessions[agent]
	return !t.open || compared(*t.engine)
}

// HasSession reports whether an agent has a session with this principal replica.
func (r *StatusWriter) HasSession(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[agent].open
}

// HandleEvent updates the session state of an agent. It is called by the goroutine that owns the reconciler.
func (r *StatusWriter) HandleEvent(agent string, f engine.Event, status engine.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, known := r.sessions[agent]
	switch f.Type {
	case engine.Opened:
		t = sessionState{open: true, since: time.Now(), epoch: status.Epoch, cluster: f.Hello.ClusterUID, version: f.Hello.Version, facts: f.Hello.Facts, engine: &status}
		if g, ok := r.cfg.Hello(agent, status.Epoch); ok {
			t.fingerprint, t.expires, t.skew = g.Fingerprint, g.Expires, g.SkewSeconds
		}
	case engine.Closed:
		if !known {
			return
		}
		t.open, t.since, t.code, t.reason = false, time.Now(), f.Code, f.Message
	case engine.Refused:
		if t.open {
			return // a clone or an older session was refused
		}
		if !known {
			t.since = time.Now()
		}
		t.code, t.reason, t.otherCluster = f.Code, f.Message, ""
		if f.Hello != nil {
			t.otherCluster = f.Hello.ClusterUID
		}
	case engine.HoldStarted, engine.HoldEnded, engine.StoreAccepted, engine.InSync, engine.WriteOutageSet:
		if !t.open || f.Type == engine.InSync && !compared(status) {
			return
		}
		t.engine = &status
	default:
		return
	}
	r.sessions[agent] = t
	r.queue.Add(agent)
}

// compared reports whether all scopes were in sync in this session.
func compared(s engine.Status) bool {
	_, ok := lastInSync(s)
	return ok
}

// Unregistered records that an agent's session ended with its registration.
func (r *StatusWriter) Unregistered(agent string) {
	r.mu.Lock()
	if t := r.sessions[agent]; t.open {
		t.open, t.since, t.reason = false, time.Now(), "The registration of the agent has changed."
		r.sessions[agent] = t
	}
	r.mu.Unlock()
	r.check(agent)
}

func (r *StatusWriter) pollCountsPeriodically(ctx context.Context) error {
	pause := countInterval
	for backoff.Sleep(ctx, pause) {
		n, _ := r.pollCounts(ctx) // fails if ctx ended
		pause = max(countInterval, time.Duration(n)*countIntervalPerAgent)
	}
	return nil
}

// pollCounts reads the counts of all agents that are connected here. It reads in batches, so that it does not block the
// reconciler.
func (r *StatusWriter) pollCounts(ctx context.Context) (int, error) {
	names := r.registry.objectNames()
	r.mu.Lock()
	r.ageInterval = min(max(minAgeInterval, time.Duration(len(names))*ageIntervalPerAgent), maxAgeInterval)
	r.mu.Unlock()
	for some := range slices.Chunk(names, countBatch) {
		statuses := map[string]engine.Status{}
		if err := r.cfg.Do(ctx, func(n *reconcile.Reconciler) {
			for _, name := range some {
				if s, ok := n.Status(name); ok && s.Connected {
					statuses[name] = s
				}
			}
		}); err != nil {
			return 0, err
		}
		r.mu.Lock()
		for name, s := range statuses {
			if t := r.sessions[name]; t.open {
				t.engine = &s
				r.sessions[name] = t
			}
		}
		r.mu.Unlock()
		for _, name := range some {
			r.check(name)
		}
	}
	return len(names), nil
}

const countBatch = 200

// check queues an agent if its status must be written.
func (r *StatusWriter) check(agent string) {
	v, _, due := r.due(agent)
	switch {
	case due:
		r.queue.Add(agent)
	case v.rec.Name == "":
		r.mu.Lock()
		delete(r.sessions, agent)
		delete(r.wrote, agent)
		r.mu.Unlock()
	}
}

// due returns an agent's desired status, what it was computed from, and whether it must be written.
func (r *StatusWriter) due(agent string) (statusInputs, v1alpha1.Status, bool) {
	v, known := r.inputsFor(agent)
	if !known {
		return statusInputs{}, v1alpha1.Status{}, false
	}
	s := v.status()
	if sameStatus(s, v.rec.Status) {
		return v, s, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return v, s, !sameButForTime(s, v.rec.Status) || v.now.Sub(r.wrote[agent]) >= r.ageInterval
}

// inputsFor returns the status inputs of an agent. It returns false if the agent has no Agent object.
func (r *StatusWriter) inputsFor(agent string) (statusInputs, bool) {
	rec, known, _, _ := r.registry.object(agent)
	if !known {
		return statusInputs{}, false
	}
	_, active := r.registry.Get(agent)
	v := statusInputs{rec: rec, active: active, invalid: r.registry.InvalidReason(agent), denyReason: r.registry.DenyReason(agent), replica: r.cfg.Replicas.Self(),
		fleet: r.cfg.Replicas.fleetStatus().Record, now: time.Now()}
	r.mu.Lock()
	v.secretError = r.secretErrors[agent]
	if t, known := r.sessions[agent]; known {
		v.session, v.upgrade = &t, r.cfg.Upgrades.status(agent, t.epoch)
	}
	r.mu.Unlock()
	if rec.Status.Connected && time.Since(r.started) > reconnectGrace {
		v.principalLost = rec.Status.Principal == r.cfg.Replicas.Self() && v.session == nil || rec.Status.Principal != r.cfg.Replicas.Self() && !r.cfg.Replicas.Alive(rec.Status.Principal)
	}
	return v, true
}

// write writes an agent's status if it is due. The write fails on a conflict, and the status is computed again.
func (r *StatusWriter) write(ctx context.Context, agent string) error {
	v, s, due := r.due(agent)
	if !due {
		return nil
	}
	v.setHistoryMark(&s)
	o, err := r.registry.patchStatus(ctx, agent, v.rec.ResourceVersion, s)
	switch {
	case kube.IsNotFound(err):
		return nil
	case kube.IsConflict(err):
		r.queue.Add(agent)
		return r.registry.refresh(ctx, agent)
	case err != nil:
		return fmt.Errorf("write the status of Agent %s: %w", agent, err)
	}
	r.mu.Lock()
	r.wrote[agent] = time.Now()
	r.mu.Unlock()
	if s.HistoryMark != v.rec.Status.HistoryMark {
		if err := r.sendHistoryMark(ctx, v, o); err != nil {
			return err
		}
	}
	return r.registry.update(ctx, o)
}
