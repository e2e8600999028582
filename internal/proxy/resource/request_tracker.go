package resource

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

const maxRequests = 20_000 // in flight, including streams

// requestTracker limits and cancels requests in flight.
type requestTracker struct {
	perAgent int

	mu       sync.Mutex
	requests map[*hubRequest]struct{}
	byAgent  map[string]int
}

func newRequestTracker(perAgent int) *requestTracker {
	return &requestTracker{perAgent: perAgent, requests: map[*hubRequest]struct{}{}, byAgent: map[string]int{}}
}

func (a *requestTracker) add(c *hubRequest) *Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.byAgent[c.agent] >= a.perAgent:
		return tooManyRequests(fmt.Sprintf("agent %s has reached the limit of %d requests in flight", c.agent, a.perAgent))
	case len(a.requests) >= maxRequests:
		return tooManyRequests(fmt.Sprintf("this principal has reached the limit of %d requests in flight", maxRequests))
	}
	a.requests[c] = struct{}{}
	a.byAgent[c.agent]++
	return nil
}

func (a *requestTracker) remove(c *hubRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.requests, c)
	if a.byAgent[c.agent]--; a.byAgent[c.agent] == 0 {
		delete(a.byAgent, c.agent)
	}
}

// cancel ends the requests that match. It calls match without the lock, because match may be slow.
func (a *requestTracker) cancel(match func(*hubRequest) bool, why *Status) {
	a.mu.Lock()
	all := slices.Collect(maps.Keys(a.requests))
	a.mu.Unlock()
	for _, c := range all {
		if match(c) {
			c.cancel(&statusError{why})
		}
	}
}

func (a *requestTracker) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.requests)
}
