package principal

import (
	"context"
	"strconv"
	"sync"
)

// revisionReader tells how far the hub's store has come, never from a cache, at the cost
// of one request for however many ask at the same time. A request that has
// begun before somebody asks is of no use to them: they share the next.
type revisionReader struct {
	read func(context.Context) (string, error)
	wake chan struct{} // of one: somebody has asked

	mu   sync.Mutex
	next *revisionRead
}

type revisionRead struct {
	done     chan struct{}
	revision uint64
	err      error
}

func newRevisionReader(ask func(context.Context) (string, error)) *revisionReader {
	return &revisionReader{read: ask, wake: make(chan struct{}, 1)}
}

func (f *revisionReader) revision(ctx context.Context) (uint64, error) {
	f.mu.Lock()
	if f.next == nil {
		f.next = &revisionRead{done: make(chan struct{})}
	}
	mine := f.next
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default: // somebody has
	}
	select {
	case <-mine.done:
		return mine.revision, mine.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// run asks whenever somebody waits, until the context ends.
func (f *revisionReader) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		f.mu.Lock()
		a := f.next
		f.next = nil
		f.mu.Unlock()
		if a == nil {
			continue
		}
		var text string
		if text, a.err = f.read(ctx); a.err == nil {
			a.revision, a.err = strconv.ParseUint(text, 10, 64)
		}
		close(a.done)
	}
}
