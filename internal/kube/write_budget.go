package kube

import (
	"maps"
	"time"
)

// writeBudget limits the long-term rate of writes for each agent. A write costs one unit, and one more for each
// writeUnitBytes of the object, because the cost on the API server grows with its size. An agent that has used up its
// budget is delayed: its writes count as in progress until the budget recovers, so that its next ones wait. The writer's
// lock protects all fields. The zero value does not limit anything.
type writeBudget struct {
	interval time.Duration // in which an agent gets one unit
	burst    int           // units that an agent can save

	full    map[string]time.Time // by agent: when its budget is complete again
	sweepAt int                  // number of budgets at which the complete ones are dropped
}

const (
	writeUnitBytes = 16 << 10

	// maxBudgets is the number of budgets at which those that are complete are dropped. If more are in use, it is twice
	// their number.
	maxBudgets = 1024
)

// charge takes the cost of a write from an agent's budget. It returns for how long the agent is delayed.
func (b *writeBudget) charge(agent string, bytes int, now time.Time) (delay time.Duration) {
	if b.interval == 0 || agent == "" {
		return 0
	}
	if b.full == nil {
		b.full = map[string]time.Time{}
	}
	if len(b.full) >= max(b.sweepAt, maxBudgets) {
		maps.DeleteFunc(b.full, func(_ string, at time.Time) bool { return at.Before(now) })
		b.sweepAt = 2 * len(b.full)
	}
	at := b.full[agent]
	if at.Before(now) {
		at = now
	}
	at = at.Add(time.Duration(1+bytes/writeUnitBytes) * b.interval)
	b.full[agent] = at
	return max(0, at.Sub(now)-time.Duration(b.burst)*b.interval)
}
