package fleet

import (
	"context"
	"log/slog"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// Elsewhere reports to the reconciler for which agents another principal replica is responsible (Replicas.Reports), so
// that this replica need not keep the content of their Applications. Assignment is what the agents have chosen: the
// Agent names the replica that has or had its session, and the Lease of that replica shows that it is alive. So an
// outage of the network changes nothing, and after the loss of a replica one other replica takes over the agents that
// do not come back.
//
// With one replica no agent is elsewhere. During a rollout of one replica neither, because that takes less than
// elsewhereAfter.
type Elsewhere struct {
	registry *Registry
	replicas *Replicas
	post     func(context.Context, reconcile.Input) error
	ready    func(context.Context) error // waits until the hub's objects were read
	log      *slog.Logger

	since     map[string]time.Time // by agent: since when another replica is responsible
	announced map[string]bool      // agents that were announced to the reconciler
}

const (
	// elsewhereAfter is how long other replicas must have been responsible.
	elsewhereAfter    = 2 * time.Minute
	elsewhereInterval = 10 * time.Second

	// beginTimeout bounds how long Agents and Leases that cannot be read delay the start.
	beginTimeout = 30 * time.Second

	// maxElsewhere bounds the agents whose Applications are reduced at once. It takes about 0.1 ms per agent with ten
	// of them, and the reconciler does nothing else in that time.
	maxElsewhere = 500
)

// NewElsewhere returns an Elsewhere. post passes an input to the reconciler.
func NewElsewhere(registry *Registry, replicas *Replicas, post func(context.Context, reconcile.Input) error, ready func(context.Context) error, log *slog.Logger) *Elsewhere {
	return &Elsewhere{registry: registry, replicas: replicas, post: post, ready: ready, log: log, since: map[string]time.Time{}, announced: map[string]bool{}}
}

// Begin reports to the reconciler before it reads Applications, so that a replica of a large hub need not have the content
// of all Applications in memory when it starts. With fewer than two other replicas it does nothing: after a rollout, most
// agents of these come here. Leases of replicas that ended long ago do not count.
func (e *Elsewhere) Begin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	for _, read := range []<-chan struct{}{e.registry.Ready(), e.replicas.Ready()} {
		select {
		case <-read:
		case <-ctx.Done():
			return // all content is kept at first
		}
	}
	fresh := e.replicas.renewedSince(time.Now().Add(-elsewhereAfter))
	if len(fresh) < 2 {
		return
	}
	now, agents := time.Now(), map[string]bool{}
	for _, name := range e.registry.objectNames() {
		if a, _ := e.registry.Agent(name); fresh.Has(a.Status.Principal) {
			e.since[name], agents[name] = now.Add(-elsewhereAfter), true
		}
	}
	if len(agents) > 0 && e.post(ctx, reconcile.Elsewhere{Agents: agents}) == nil {
		e.announced = agents
	}
}

// Run reports to the reconciler until ctx ends. It begins after Begin, because it waits until Applications were read.
func (e *Elsewhere) Run(ctx context.Context) error {
	if e.ready(ctx) != nil {
		return nil //nolint:nilerr // ctx ended
	}
	for backoff.Sleep(ctx, elsewhereInterval) {
		before := len(e.announced)
		e.announced = e.agents(time.Now())
		if before == 0 && len(e.announced) == 0 {
			continue
		}
		if before != len(e.announced) {
			e.log.DebugContext(ctx, "Other principal replicas are responsible for agents", "agents", len(e.announced))
		}
		if e.post(ctx, reconcile.Elsewhere{Agents: e.announced}) != nil {
			return nil //nolint:nilerr // ctx ended
		}
	}
	return nil
}

// agents returns the agents that are elsewhere. The map is not changed later.
func (e *Elsewhere) agents(now time.Time) map[string]bool {
	since, agents, more := map[string]time.Time{}, map[string]bool{}, maxElsewhere
	for _, name := range e.registry.objectNames() {
		if e.replicas.Reports(name) {
			continue
		}
		if since[name] = now; !e.since[name].IsZero() {
			since[name] = e.since[name]
		}
		if now.Sub(since[name]) < elsewhereAfter {
			continue
		}
		if !e.announced[name] {
			if more == 0 {
				continue
			}
			more--
		}
		agents[name] = true
	}
	e.since = since
	return agents
}
