package kube

import (
	"sync"
	"time"
)

// peerPauses limits the share of the core's time that one agent can use. After an input of an agent that took long, the
// next one waits for a multiple of that time. While it waits, nothing more is read from the agent.
type peerPauses struct {
	mu    sync.Mutex
	until map[string]time.Time // by agent; only of inputs that took long
}

const (
	// pauseFactor leaves an agent less than a quarter of the core's time: one input is processed while the next waits, so
	// there are two for each pause.
	pauseFactor = 8

	// minPeerTime is the time of an input below which there is no pause. Most inputs take less.
	minPeerTime = time.Millisecond

	maxPeerPauses = 1024 // above it, those that have ended are dropped
)

// took records how long an input of an agent took.
func (p *peerPauses) took(agent string, d time.Duration, now time.Time) {
	if d < minPeerTime {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = map[string]time.Time{}
	}
	if len(p.until) >= maxPeerPauses {
		for name, until := range p.until {
			if until.Before(now) {
				delete(p.until, name)
			}
		}
	}
	p.until[agent] = now.Add(pauseFactor * d)
}

// left returns how long the next input of an agent has to wait.
func (p *peerPauses) left(agent string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until[agent].Sub(now)
}
