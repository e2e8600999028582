package resource

import (
	"fmt"
	"sync"
)

// active knows all requests under way: how many there may be, and how to end them.
type active struct {
	perAgent, total int

	mu    sync.Mutex
	calls map[string]map[*call]struct{} // by agent
	size  int
}

func newActive(perAgent, total int) *active {
	return &active{perAgent: perAgent, total: total, calls: map[string]map[*call]struct{}{}}
}

func (a *active) add(c *call) *Status {
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
		calls = map[*call]struct{}{}
		a.calls[c.agent] = calls
	}
	calls[c] = struct{}{}
	a.size++
	return nil
}

func (a *active) remove(c *call) {
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
func (a *active) cut(match func(*call) bool, why *Status) {
	a.mu.Lock()
	all := make([]*call, 0, a.size)
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

func (a *active) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.size
}
