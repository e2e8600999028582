package fleet

import (
	"context"
	"maps"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// AddTask adds a named task that is retried until it succeeds, as tasks.Runner does.
type AddTask func(name string, do func(context.Context) error)

// Confirmations matches the confirmations of users with held deletions. A confirmation is an annotation of the Agent. It
// can precede the hold, for example while the agent is disconnected. It is removed when it has taken effect, so that it
// counts once.
//
// Confirmations is owned by the goroutine that owns the reconciler.
type Confirmations struct {
	registry *Registry
	post     func(context.Context, reconcile.Input) error
	addTask  AddTask
	held     map[string]map[string]string // agent → ID of a hold → its scope
}

// NewConfirmations returns Confirmations without holds.
func NewConfirmations(registry *Registry, post func(context.Context, reconcile.Input) error, addTask AddTask) *Confirmations {
	return &Confirmations{registry: registry, post: post, addTask: addTask, held: map[string]map[string]string{}}
}

// HandleEvent records holds that start and end.
func (c *Confirmations) HandleEvent(agent string, f engine.Event) {
	switch f.Type {
	case engine.HoldStarted:
		if f.Scope != "" { // both sides can hold all deletions because of a store
			maps.DeleteFunc(c.held[agent], func(_, scope string) bool { return scope == f.Scope })
		}
		if c.held[agent] == nil {
			c.held[agent] = map[string]string{}
		}
		c.held[agent][f.Held.ID] = f.Scope
		if c.isConfirmed(agent, f.Held.ID) {
			c.addTask("confirm/"+agent, func(ctx context.Context) error {
				return c.post(ctx, reconcile.Confirm{Agent: agent, ID: f.Held.ID})
			})
		}
	case engine.HoldEnded:
		if _, held := c.held[agent][f.Held.ID]; held && c.isConfirmed(agent, f.Held.ID) {
			c.addTask("confirmed/"+agent, func(ctx context.Context) error { return c.registry.removeConfirmation(ctx, agent, f.Held.ID) })
		}
		delete(c.held[agent], f.Held.ID)
	case engine.Closed:
		c.Forget(agent)
	}
}

// Forget removes the holds of a disconnected agent. It reports them again with its next session.
func (c *Confirmations) Forget(agent string) { delete(c.held, agent) }

func (c *Confirmations) isConfirmed(agent, id string) bool {
	reg, ok := c.registry.Get(agent)
	return ok && reg.confirm != "" && reg.confirm == id
}
