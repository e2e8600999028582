package tasks

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Runner runs named tasks one at a time. A task with the same name replaces the earlier one.
type Runner struct {
	queue *Queue

	mu    sync.Mutex
	tasks map[string]*task // names contain agents or are constants, so their number is bounded
}

type task struct {
	do func(context.Context) error
}

// NewRunner returns a Runner that runs tasks while Run runs.
func NewRunner(log *slog.Logger) *Runner {
	r := &Runner{tasks: map[string]*task{}}
	r.queue = NewQueue(Config{Name: "hub", Do: r.do, Parallel: 1, MaxRetryDelay: 10 * time.Second, Log: log})
	return r
}

// Add requests that a task runs until it succeeds. It does not block.
func (r *Runner) Add(name string, do func(context.Context) error) {
	r.mu.Lock()
	r.tasks[name] = &task{do}
	r.mu.Unlock()
	r.queue.Add(name)
}

// Run runs tasks until ctx ends.
func (r *Runner) Run(ctx context.Context) error { return r.queue.Run(ctx) }

func (r *Runner) do(ctx context.Context, name string) error {
	r.mu.Lock()
	t := r.tasks[name]
	r.mu.Unlock()
	if t == nil {
		return nil
	}
	if err := t.do(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks[name] == t {
		delete(r.tasks, name)
	}
	return nil
}
