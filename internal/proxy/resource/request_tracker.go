package resource

import (
	"fmt"
	"sync"
)

// requestTracker limits and cancels requests in flight.
type requestTracker struct {
	perAgent, total int

	mu    sync.Mutex
	calls map[string]map[*hubRequest]struct{} // by agent
	size  int
}

func newRequestTracker(perAgent, total int) *requestTracker {
	return &requestTracker{perAgent: perAgent, total: total, calls: map[string]map[*hubRequest]struct{}{}}
}

func (a *requestTracker) add(c *hubRequest) *Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.calls[c.agent]
	switch {
	case len(calls) >= a.perAgent:
		return tooManyRequests(fmt.Sprintf("agent %s has reached the limit of %d requests in flight", c.agent, len(calls)))
	case a.size >= a.total:
		return tooManyRequests(fmt.Sprintf("this principal has reached the limit of %d requests in flight", a.size))
	}
	if calls == nil {
		calls = map[*hubRequest]struct{}{}
		a.calls[c.agent] = calls
	}
	calls[c] = struct{}{}
	a.size++
	return nil
}

func (a *requestTracker) remove(c *hubRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.calls[c.agent]
	delete(calls, c)
	if len(calls) == 0 {
		delete(a.calls, c.agent)
	}
	a.size--
}

// cancel ends the requests that match. It calls match without the lock, because match may be slow.
func (a *requestTracker) cancel(match func(*hubRequest) bool, why *Status) {
	a.mu.Lock()
	all := make([]*hubRequest, 0, a.size)
	for _, calls := range a.calls {
		for c := range calls {
			all = append(all, c)
		}
	}
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
	return a.size
}
