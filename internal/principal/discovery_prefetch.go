package principal

import (
	"context"
	"sync"
	"time"
)

// discoveryPrefetcher asks agents that have just connected for what is needed while they are
// away. It is a set, so an agent that comes and goes is asked once at a time,
// and few are asked at once.
type discoveryPrefetcher struct {
	fetch func(ctx context.Context, agent string)
	wake  chan struct{}

	mu      sync.Mutex
	pending map[string]bool
}

const (
	prefetchParallel = 8
	prefetchTimeout  = 30 * time.Second
)

func newDiscoveryPrefetcher(ask func(context.Context, string)) *discoveryPrefetcher {
	return &discoveryPrefetcher{fetch: ask, wake: make(chan struct{}, prefetchParallel), pending: map[string]bool{}}
}

// add never waits.
func (l *discoveryPrefetcher) add(agent string) {
	l.mu.Lock()
	l.pending[agent] = true
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // all are at work, and look before they rest
	}
}

func (l *discoveryPrefetcher) run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range prefetchParallel {
		workers.Go(func() { l.work(ctx) })
	}
	workers.Wait()
	return nil
}

func (l *discoveryPrefetcher) work(ctx context.Context) {
	for {
		for agent := l.next(); agent != "" && ctx.Err() == nil; agent = l.next() {
			limited, cancel := context.WithTimeout(ctx, prefetchTimeout)
			l.fetch(limited, agent)
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
	}
}

func (l *discoveryPrefetcher) next() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for agent := range l.pending {
		delete(l.pending, agent)
		return agent
	}
	return ""
}
