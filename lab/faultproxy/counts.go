package faultproxy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Counted is a request and how often it came.
type Counted struct {
	Request
	Times int
}

// Requests lists what came since the start or ResetCounts, whether the API
// server answered it or a fault did, by path and verb.
func (a *API) Requests(m Match) []Counted {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []Counted
	for r, n := range a.counts {
		if m.matches(r) {
			all = append(all, Counted{Request: r, Times: n})
		}
	}
	slices.SortFunc(all, func(x, y Counted) int {
		return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Verb, y.Verb), cmp.Compare(x.Method, y.Method))
	})
	return all
}

// Count is how many requests came that match.
func (a *API) Count(m Match) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count(m)
}

func (a *API) count(m Match) int {
	sum := 0
	for r, n := range a.counts {
		if m.matches(r) {
			sum += n
		}
	}
	return sum
}

// WaitCount returns when n requests have come that match.
func (a *API) WaitCount(ctx context.Context, m Match, n int) error {
	if err := a.wait(ctx, func() bool { return a.count(m) >= n }); err != nil {
		return fmt.Errorf("waiting for %d requests, %d came: %w", n, a.Count(m), err)
	}
	return nil
}

// ResetCounts starts counting again.
func (a *API) ResetCounts() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.counts)
}

// notify wakes those who wait for a number. The caller holds mu.
func (a *API) notify() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// wait returns when the condition holds, which is looked at under mu.
func (a *API) wait(ctx context.Context, condition func() bool) error {
	for {
		a.mu.Lock()
		met, changed := condition(), a.changed
		a.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
