package principal

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// taskRunner are small things to be done on the hub's cluster that nobody waits
// for. There is at most one under each name, and names are those of agents and
// their namespaces: so there are never more than a few for each agent. What does
// not work is tried again until it does, or until it is replaced.
type taskRunner struct {
	log  *slog.Logger
	wake chan struct{} // of one

	mu   sync.Mutex
	todo map[string]*task
}

type task struct {
	do     func(context.Context) error
	logged string // the last failure that was logged
}

func newTaskRunner(log *slog.Logger) *taskRunner {
	return &taskRunner{log: log, wake: make(chan struct{}, 1), todo: map[string]*task{}}
}

// add puts something on the list. It never waits.
func (c *taskRunner) add(name string, do func(context.Context) error) {
	c.mu.Lock()
	c.todo[name] = &task{do: do}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// A chore has so long, and comes up again after so long if it failed.
const (
	taskTimeout       = 15 * time.Second
	taskRetryInterval = 10 * time.Second
)

func (c *taskRunner) run(ctx context.Context) error {
	again := time.NewTimer(taskRetryInterval)
	defer again.Stop()
	for {
		var retry <-chan time.Time
		if c.left() > 0 {
			again.Reset(taskRetryInterval)
			retry = again.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-retry:
		}
		c.runAll(ctx)
	}
}

func (c *taskRunner) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.todo)
}

// runAll does everything once. What fails stays on the list, unless something
// else has taken its place there.
func (c *taskRunner) runAll(ctx context.Context) {
	c.mu.Lock()
	batch := maps.Clone(c.todo)
	c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(batch)) {
		if ctx.Err() != nil {
			return
		}
		one := batch[name]
		limited, cancel := context.WithTimeout(ctx, taskTimeout)
		err := one.do(limited)
		cancel()
		if err != nil {
			if ctx.Err() == nil && err.Error() != one.logged {
				one.logged = err.Error()
				c.log.WarnContext(ctx, "something on the hub's cluster does not work; trying again", "task", name, "error", err)
			}
			continue
		}
		c.mu.Lock()
		if c.todo[name] == one {
			delete(c.todo, name)
		}
		c.mu.Unlock()
	}
}
