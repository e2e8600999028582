package principal

import (
	"context"
	"maps"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// confirmations brings people's word on what is held back together with what
// is. The word is an annotation and may come first: while the agent is away, or
// before this process was started. It stays until it has taken effect, and is
// then taken off, so that it never counts twice.
//
// It belongs to the goroutine that owns the node.
type confirmations struct {
	held     map[string]map[string]string // agent → ID of what is held → its scope
	registry *registry
	tasks    *taskRunner
	post     func(context.Context, reconcile.Input) error
}

// handleEvent takes note of what is held back, and what no longer is.
func (c *confirmations) handleEvent(agent string, f engine.Event) {
	switch f.Type {
	case engine.HoldStarted:
		if f.Scope != "" { // about the store as a whole, both sides may hold something
			c.dropReleased(agent, func(_, scope string) bool { return scope == f.Scope })
		}
		if c.held[agent] == nil {
			c.held[agent] = map[string]string{}
		}
		c.held[agent][f.Held.ID] = f.Scope
		if c.isConfirmed(agent, f.Held.ID) {
			c.tasks.add("confirm/"+agent, func(ctx context.Context) error {
				return c.post(ctx, reconcile.Confirm{Agent: agent, ID: f.Held.ID})
			})
		}
	case engine.HoldEnded:
		for id := range c.dropReleased(agent, func(id, _ string) bool { return id == f.Held.ID }) {
			if c.isConfirmed(agent, id) {
				c.tasks.add("confirmed/"+agent, func(ctx context.Context) error { return c.registry.removeConfirmation(ctx, agent, id) })
			}
		}
	case engine.Closed:
		c.forget(agent)
	}
}

// dropReleased forgets what is not held any more.
func (c *confirmations) dropReleased(agent string, over func(id, scope string) bool) map[string]string {
	gone := map[string]string{}
	for id, scope := range c.held[agent] {
		if over(id, scope) {
			gone[id] = scope
		}
	}
	maps.DeleteFunc(c.held[agent], func(id, _ string) bool { _, ok := gone[id]; return ok })
	if len(c.held[agent]) == 0 {
		c.forget(agent)
	}
	return gone
}

// forget is for an agent that is gone. It will say what it still holds.
func (c *confirmations) forget(agent string) { delete(c.held, agent) }

// isConfirmed reports whether a person has confirmed this.
func (c *confirmations) isConfirmed(agent, id string) bool {
	reg, ok := c.registry.get(agent)
	return ok && reg.confirm != "" && reg.confirm == id
}
