package principal

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// statusWriter writes what is known of agents into the status of their Agents: when
// something changes, and at a slow beat; never for each sign of life. Of several
// replicas the one that has the agent's session writes.
type statusWriter struct {
	client      *kube.Client
	registry    *registry
	namespace   string
	replica     string
	withReconciler        func(context.Context, func(*reconcile.Reconciler)) error
	secretError     func(agent string) string
	writeOutage func(agent string) string
	hello    func(agent string, epoch engine.Epoch) (helloInfo, bool) // what an agent has shown on a connection
	replicaAlive       func(replica string) bool
	fleetStatus       func() reconcile.FleetStatus
	queue     *workQueue
	log         *slog.Logger
	started     time.Time

	mu            sync.Mutex
	sessionStates map[string]*sessionState // agents that are, were or wanted to be connected here
	wrote         map[string]time.Time     // when an open seat's status was last written
}

// Statuses are written so many at a time and so often at most, after a first
// crowd: an agent that waits for its status to be written lacks nothing. Nor does
// any agent have its own written as often as it has something to say.
const (
	parallelStatuses  = 4
	statusPace        = 20 * time.Millisecond
	statusBurst       = 200
	minStatusInterval = time.Second
)

// What only grows older is written this often, what is counted this often; with
// many agents more seldom, so that the writing never becomes a load.
const (
	statusInterval = 10 * time.Minute
	countInterval  = 10 * time.Second
	countIntervalPerAgent      = 20 * time.Millisecond // for each agent
)

// reconnectGrace is how long after its start a principal gives agents to come back
// before it calls them away.
const reconnectGrace = time.Minute

// prepare makes a reporter of which the parts above are given.
func (r *statusWriter) prepare() *statusWriter {
	r.sessionStates, r.wrote, r.started = map[string]*sessionState{}, map[string]time.Time{}, time.Now()
	r.queue = (&workQueue{what: "status", do: r.write, parallel: parallelStatuses, interval: statusPace, burst: statusBurst, minInterval: minStatusInterval, log: r.log}).prepare()
	return r
}

// inSyncKnown reports whether a proof that an agent is equal is no news: of a
// session only the first is.
func (r *statusWriter) inSyncKnown(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.sessionStates[agent]
	return t == nil || !t.open || compared(*t.engine)
}

// handleEvent takes note of what befalls an agent's connection. It is called by the
// goroutine that owns the node.
func (r *statusWriter) handleEvent(agent string, f engine.Event, status engine.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.sessionStates[agent]
	switch f.Event {
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
			return // a clone, or an older one of two
		}
		refused := sessionState{since: time.Now()}
		if t != nil {
			refused = *t
		}
		refused.code, refused.reason = f.Code, f.Message
		r.sessionStates[agent] = &refused
	case engine.HoldStarted, engine.HoldEnded, engine.StoreAccepted, engine.InSync:
		if t == nil || !t.open || f.Event == engine.InSync && !compared(status) {
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

// compared reports whether all that can be equal was found equal in this session.
func compared(s engine.Status) bool {
	for _, sc := range s.Scopes {
		if sc.InSyncAt == 0 && sc.Name != kind.CommandScope {
			return false
		}
	}
	return true
}

// unregistered is for an agent whose registration has ended, and with it its session.
func (r *statusWriter) unregistered(agent string) {
	r.mu.Lock()
	if t := r.sessionStates[agent]; t != nil && t.open {
		closed := *t
		closed.open, closed.since, closed.reason = false, time.Now(), "its registration has changed"
		r.sessionStates[agent] = &closed
	}
	r.mu.Unlock()
	r.check(agent)
}

// run looks, again and again, at what nobody tells: how much there is, and how
// much of it differs.
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
			return nil // the end has come
		}
		pause.Reset(max(countInterval, time.Duration(n)*countIntervalPerAgent))
	}
}

// pollCounts takes stock of every agent that is connected here, a few at a time, so
// that the node is not kept from its work.
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

// check has an agent's status written if it has to be: what needs no writing
// does not stand in line with what does.
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

// due tells what an agent's status should be, and whether it has to be written.
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

// inputsFor gathers what is known of an agent.
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

// confirmCommand says how a person confirms something about an agent. Some IDs come
// from agents: what a shell would take for more than a word is not put into a
// command that somebody will paste.
func (r *statusWriter) confirmCommand(agent string) func(id string) string {
	return func(id string) string {
		if strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._") != "" {
			return "its ID is not one that an agent gives, so look into that cluster before anything else"
		}
		return fmt.Sprintf("kubectl annotate %s.%s -n %s %s --overwrite %s=%s", v1alpha1.Resource, v1alpha1.Group, r.namespace, agent, v1alpha1.ConfirmAnnotation, id)
	}
}

// write writes an agent's status, if it has to be. Only what it was made from may
// be there, else it is made again.
func (r *statusWriter) write(ctx context.Context, agent string) error {
	rec, s, due := r.due(agent)
	if !due {
		return nil
	}
	o, err := r.client.PatchStatus(ctx, r.registry.ref(agent), map[string]any{
		"metadata": map[string]any{"resourceVersion": rec.ResourceVersion}, "status": statusPatch(s)})
	switch {
	case kube.IsNotFound(err):
		return nil // its end is on its way
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
