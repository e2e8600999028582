package principal

import (
	"context"
	"strconv"
	"sync"
)

// revisionReader reads the current resourceVersion of the hub, not from a cache. Callers that wait at the same time share
// one request. A request that started before the call is not used for it.
type revisionReader struct {
	read func(context.Context) (string, error)
	wake chan struct{} // capacity 1

	mu   sync.Mutex
	next *revisionRead
}

type revisionRead struct {
	done     chan struct{}
	revision uint64
	err      error
}

func newRevisionReader(read func(context.Context) (string, error)) *revisionReader {
	return &revisionReader{read: read, wake: make(chan struct{}, 1)}
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
	default:
	}
	select {
	case <-mine.done:
		return mine.revision, mine.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// run serves calls until ctx ends.
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
