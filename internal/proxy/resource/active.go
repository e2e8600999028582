package resource

import (
	"fmt"
	"sync"
)

// requestTracker knows all requests under way: how many there may be, and how to end them.
type requestTracker struct {
	perAgent, total int

	mu    sync.Mutex
	calls map[string]map[*hubRequest]struct{} // by agent
	size  int
}

func newActive(perAgent, total int) *requestTracker {
	return &requestTracker{perAgent: perAgent, total: total, calls: map[string]map[*hubRequest]struct{}{}}
}

func (a *requestTracker) add(c *hubRequest) *Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.calls[c.agent]
	switch {
	case len(calls) >= a.perAgent:
		return tooMany(fmt.Sprintf("agent %s has %d requests under way, which is the limit", c.agent, len(calls)))
	case a.size >= a.total:
		return tooMany(fmt.Sprintf("this principal has %d requests under way, which is the limit", a.size))
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

// cut ends the requests that match. Which do is asked without the lock held: the answer may take a while.
func (a *requestTracker) cut(match func(*hubRequest) bool, why *Status) {
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
