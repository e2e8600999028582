package principal

import (
	"context"
	"strconv"
	"sync"
)

// fresh tells how far the hub's store has come, never from a cache, at the cost
// of one request for however many ask at the same time. A request that has
// begun before somebody asks is of no use to them: they share the next.
type fresh struct {
	ask func(context.Context) (string, error)

	mu      sync.Mutex
	running bool
	next    *asked
}

type asked struct {
	done     chan struct{}
	revision uint64
	err      error
}

func (f *fresh) revision(ctx context.Context) (uint64, error) {
	f.mu.Lock()
	if f.next == nil {
		f.next = &asked{done: make(chan struct{})}
	}
	mine := f.next
	if !f.running {
		f.running = true
		go f.run(context.WithoutCancel(ctx))
	}
	f.mu.Unlock()
	select {
	case <-mine.done:
		return mine.revision, mine.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// run asks for as long as somebody waits.
func (f *fresh) run(ctx context.Context) {
	for {
		f.mu.Lock()
		a := f.next
		f.next = nil
		f.running = a != nil
		f.mu.Unlock()
		if a == nil {
			return
		}
		var text string
		text, a.err = f.ask(ctx)
		if a.err == nil {
			a.revision, a.err = strconv.ParseUint(text, 10, 64)
		}
		close(a.done)
	}
}
