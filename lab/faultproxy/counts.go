package faultproxy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Counted is a request and its count.
type Counted struct {
	Request
	Times int
}

// Requests lists the requests since the start or ResetCounts by path and verb, including those answered by a fault.
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

// Count returns the number of matching requests.
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

// WaitCount waits for n matching requests.
func (a *API) WaitCount(ctx context.Context, m Match, n int) error {
	if err := a.wait(ctx, func() bool { return a.count(m) >= n }); err != nil {
		return fmt.Errorf("waiting for %d requests, %d came: %w", n, a.Count(m), err)
	}
	return nil
}

// ResetCounts resets the counters.
func (a *API) ResetCounts() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.counts)
}

// notify wakes goroutines that wait for a counter. The caller must hold mu.
func (a *API) notify() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// wait waits until the condition is true. The condition is called with mu held.
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
