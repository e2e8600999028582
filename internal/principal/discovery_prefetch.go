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
	ask  func(ctx context.Context, agent string)
	wake chan struct{}

	mu   sync.Mutex
	todo map[string]bool
}

const (
	learnParallel = 8
	learnTimeout  = 30 * time.Second
)

func newLearner(ask func(context.Context, string)) *discoveryPrefetcher {
	return &discoveryPrefetcher{ask: ask, wake: make(chan struct{}, learnParallel), todo: map[string]bool{}}
}

// add never waits.
func (l *discoveryPrefetcher) add(agent string) {
	l.mu.Lock()
	l.todo[agent] = true
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // all are at work, and look before they rest
	}
}

func (l *discoveryPrefetcher) run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range learnParallel {
		workers.Go(func() { l.work(ctx) })
	}
	workers.Wait()
	return nil
}

func (l *discoveryPrefetcher) work(ctx context.Context) {
	for {
		for agent := l.next(); agent != "" && ctx.Err() == nil; agent = l.next() {
			limited, cancel := context.WithTimeout(ctx, learnTimeout)
			l.ask(limited, agent)
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
	for agent := range l.todo {
		delete(l.todo, agent)
		return agent
	}
	return ""
}
