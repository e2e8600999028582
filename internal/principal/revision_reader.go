package principal

import (
	"context"
	"strconv"

	"golang.org/x/sync/singleflight"
)

// revisionReader reads the current resourceVersion of the hub, not from a cache. Callers that wait at the same time share
// one request. A request that started before the call is not used for it. At most one request runs and one waits.
type revisionReader struct {
	read  func() (string, error)
	group singleflight.Group
	turn  chan struct{} // capacity 1; full during a request
}

func newRevisionReader(read func() (string, error)) *revisionReader {
	return &revisionReader{read: read, turn: make(chan struct{}, 1)}
}

func (f *revisionReader) revision(ctx context.Context) (uint64, error) {
	result := f.group.DoChan("", func() (any, error) {
		f.turn <- struct{}{}
		defer func() { <-f.turn }()
		f.group.Forget("") // later callers share the next request
		text, err := f.read()
		if err != nil {
			return nil, err
		}
		return strconv.ParseUint(text, 10, 64)
	})
	select {
	case r := <-result:
		n, _ := r.Val.(uint64)
		return n, r.Err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
