package cli

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// readGenerations asks autonomous agents which generation of the lost hub they followed. If one cannot be asked, the rebuild is
// possible, because managed agents followed the same hub.
func (r *rebuildPlan) readGenerations(ctx context.Context, s *searchClient) error {
	ask := func(a *rebuildAgent, ctx context.Context, s *searchClient) error {
		page, err := a.ask(ctx, s, r.Identity, "")
		a.known = page.Generation
		return err
	}
	var mu sync.Mutex
	var unasked []string
	err := r.eachIn(ctx, s, agentAutonomous, ask, func(a *rebuildAgent, _ string) {
		mu.Lock()
		defer mu.Unlock()
		unasked = append(unasked, a.Name)
	})
	if slices.Sort(unasked); len(unasked) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s not asked for the generation of the lost hub: %s. If they followed a later one than the others, they refuse this hub", pluralize(len(unasked), "autonomous agent"), shortList(unasked, 8)))
	}
	return err
}

// nextGeneration returns the generation of the rebuilt hub. It is later than all that agents have followed, so that they do not
// follow the lost hub if it returns.
func (r *rebuildPlan) nextGeneration(own uint64) uint64 {
	for _, a := range r.Agents {
		own = max(own, a.known)
	}
	return own + 1
}
