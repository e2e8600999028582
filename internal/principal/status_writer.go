package principal

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// statusWriter writes the status of Agents: after a change, and periodically for values that only age. The principal
// replica that holds the agent's session writes.
type statusWriter struct {
	client         *kube.Client
	registry       *registry
	namespace      string
	replica        string
	withReconciler func(context.Context, func(*reconcile.Reconciler)) error
	secretError    func(agent string) string
	writeOutage    func(agent string) string
	hello          func(agent string, epoch engine.Epoch) (helloInfo, bool) // what an agent has shown on a connection
	replicaAlive   func(replica string) bool
	fleetStatus    func() reconcile.FleetStatus
	queue          *workQueue
	log            *slog.Logger
	started        time.Time

	mu            sync.Mutex
	sessionStates map[string]*sessionState // agents that are, were or wanted to be connected here
	wrote         map[string]time.Time     // when an open seat's status was last written
}

// Limits of status writes, in total and per agent.
const (
	parallelStatuses  = 4
	statusPace        = 20 * time.Millisecond
	statusBurst       = 200
	minStatusInterval = time.Second
)

// statusInterval is how often values that only age are written. countInterval is how often items are counted; with many
// agents less often.
const (
	statusInterval        = 10 * time.Minute
	countInterval         = 10 * time.Second
	countIntervalPerAgent = 20 * time.Millisecond // for each agent
)

// reconnectGrace is how long agents may take to reconnect after the start of a principal before they are reported as
// disconnected.
const reconnectGrace = time.Minute

func (r *statusWriter) prepare() *statusWriter {
	r.sessionStates, r.wrote, r.started = map[string]*sessionState{}, map[string]time.Time{}, time.Now()
	r.queue = (&workQueue{what: "status", do: r.write, parallel: parallelStatuses, interval: statusPace, burst: statusBurst, minInterval: minStatusInterval, log: r.log}).prepare()
	return r
}

// inSyncKnown reports whether the session was in sync before. Only the first InSync event of a session is news.
func (r *statusWriter) inSyncKnown(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.sessionStates[agent]
	return t == nil || !t.open || compared(*t.engine)
}

// handleEvent updates the session state of an agent. It is called by the goroutine that owns the reconciler.
func (r *statusWriter) handleEvent(agent string, f engine.Event, status engine.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.sessionStates[agent]
	switch f.Type {
	case engine.Opened:
		t = &sessionState{open: true, since: time.Now(), epoch: status.Epoch, cluster: f.Hello.ClusterUID, version: f.Hello.Version, engine: &status}
		if g, ok := r.hello(agent, status.Epoch); ok {
			t.fingerprint, t.expires, t.skew = g.fingerprint, g.expires, g.skew
		}
		r.sessionStates[agent] = t
	case engine.Closed:
		if t == nil {
			return
		}
		closed := *t
		closed.open, closed.since, closed.code, closed.reason = false, time.Now(), f.Code, f.Message
		r.sessionStates[agent] = &closed
	case engine.Refused:
		if t != nil && t.open {
			return // a clone or an older session was refused
		}
		refused := sessionState{since: time.Now()}
		if t != nil {
			refused = *t
		}
		refused.code, refused.reason, refused.otherCluster = f.Code, f.Message, ""
		if f.Hello != nil {
			refused.otherCluster = f.Hello.ClusterUID
		}
		r.sessionStates[agent] = &refused
	case engine.HoldStarted, engine.HoldEnded, engine.StoreAccepted, engine.InSync:
		if t == nil || !t.open || f.Type == engine.InSync && !compared(status) {
			return
		}
		looked := *t
		looked.engine = &status
		r.sessionStates[agent] = &looked
	default:
		return
	}
	r.queue.add(agent)
}

// compared reports whether all scopes were in sync in this session.
func compared(s engine.Status) bool {
	for _, sc := range s.Scopes {
		if sc.InSyncAt == 0 && sc.Name != kind.CommandScope {
			return false
		}
	}
	return true
}

// unregistered records that an agent's session ended with its registration.
func (r *statusWriter) unregistered(agent string) {
	r.mu.Lock()
	if t := r.sessionStates[agent]; t != nil && t.open {
		closed := *t
		closed.open, closed.since, closed.reason = false, time.Now(), "The registration of the agent has changed."
		r.sessionStates[agent] = &closed
	}
	r.mu.Unlock()
	r.check(agent)
}

// run polls the item counts until ctx ends.
func (r *statusWriter) run(ctx context.Context) error {
	pause := time.NewTimer(countInterval)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		n, err := r.pollCounts(ctx)
		if err != nil {
			return nil // ctx ended
		}
		pause.Reset(max(countInterval, time.Duration(n)*countIntervalPerAgent))
	}
}

// pollCounts reads the counts of all agents that are connected here. It reads in batches, so that it does not block the
// reconciler.
func (r *statusWriter) pollCounts(ctx context.Context) (int, error) {
	names := r.registry.objectNames()
	for begin := 0; begin < len(names); begin += countBatch {
		some := names[begin:min(begin+countBatch, len(names))]
		statuses := map[string]engine.Status{}
		if err := r.withReconciler(ctx, func(n *reconcile.Reconciler) {
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
			if t := r.sessionStates[name]; t != nil && t.open {
				looked := *t
				looked.engine = &s
				r.sessionStates[name] = &looked
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
func (r *statusWriter) check(agent string) {
	rec, _, due := r.due(agent)
	switch {
	case due:
		r.queue.add(agent)
	case rec.Name == "":
		r.mu.Lock()
		delete(r.sessionStates, agent)
		delete(r.wrote, agent)
		r.mu.Unlock()
	}
}

// due returns an agent's desired status and whether it must be written.
func (r *statusWriter) due(agent string) (agentRecord, v1alpha1.Status, bool) {
	v, known := r.inputsFor(agent)
	if !known {
		return agentRecord{}, v1alpha1.Status{}, false
	}
	s := v.status()
	if sameStatus(s, v.rec.Status) {
		return v.rec, s, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return v.rec, s, !sameButForTime(s, v.rec.Status) || v.now.Sub(r.wrote[agent]) >= statusInterval
}

// inputsFor returns the status inputs of an agent. It returns false if the agent has no Agent object.
func (r *statusWriter) inputsFor(agent string) (statusInputs, bool) {
	rec, known, _, _ := r.registry.object(agent)
	if !known {
		return statusInputs{}, false
	}
	_, inForce := r.registry.get(agent)
	v := statusInputs{rec: rec, active: inForce, invalid: r.registry.invalidReason(agent), denyReason: r.registry.denyReason(agent), secretError: r.secretError(agent), writeOutage: r.writeOutage(agent), replica: r.replica,
		confirm: r.confirmCommand(agent), fleet: r.fleetStatus().Record, confirmFleet: fleetConfirmCommand(r.namespace, r.fleetStatus().Record.ID), now: time.Now()}
	r.mu.Lock()
	v.session = r.sessionStates[agent]
	r.mu.Unlock()
	if rec.Status.Connected && time.Since(r.started) > reconnectGrace {
		v.principalLost = rec.Status.Principal == r.replica && v.session == nil || rec.Status.Principal != r.replica && !r.replicaAlive(rec.Status.Principal)
	}
	return v, true
}

// confirmCommand returns the command that confirms a hold. Agents choose some IDs, so an ID with shell characters is not
// put into a command.
func (r *statusWriter) confirmCommand(agent string) func(id string) string {
	return func(id string) string {
		if !holdID.MatchString(id) {
			return "its ID is not one that an agent gives, so look into that cluster before anything else"
		}
		return fmt.Sprintf("kubectl annotate %s.%s -n %s %s --overwrite %s=%s", v1alpha1.Resource, v1alpha1.Group, r.namespace, agent, v1alpha1.ConfirmAnnotation, id)
	}
}

// write writes an agent's status if it is due. The write fails on a conflict, and the status is computed again.
func (r *statusWriter) write(ctx context.Context, agent string) error {
	rec, s, due := r.due(agent)
	if !due {
		return nil
	}
	o, err := r.client.PatchStatus(ctx, r.registry.ref(agent), map[string]any{
		"metadata": map[string]any{"resourceVersion": rec.ResourceVersion}, "status": statusPatch(s)})
	switch {
	case kube.IsNotFound(err):
		return nil
	case kube.IsConflict(err):
		if o, err = r.client.Get(ctx, r.registry.ref(agent)); err != nil || o == nil {
			return err
		}
		r.queue.add(agent)
		return r.registry.update(o)
	case err != nil:
		return fmt.Errorf("write the status of Agent %s: %w", agent, err)
	}
	r.mu.Lock()
	r.wrote[agent] = time.Now()
	r.mu.Unlock()
	return r.registry.update(o)
}
