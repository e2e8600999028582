package redis

import (
	"context"
	"sync"
	"time"
)

// identities holds the lanes of everybody who is connected, by who they are.
type identities struct {
	hub    *Endpoint
	max    limits
	count  int
	linger time.Duration
	answer time.Duration
	tasks  *sync.WaitGroup
	loop   *loop // reads replies; nil: goroutines do

	mu     sync.Mutex
	closed bool
	by     map[state]*identity
}

// identity is one user of Redis, in one protocol and database.
type identity struct {
	is   state
	refs int         // sessions; guarded by identities.mu
	bye  *time.Timer // closes the lanes when nobody has come back; guarded by identities.mu

	mu    sync.Mutex
	lanes []*lane
	next  int
}

// enter returns the identity of a session, which has to leave it again.
func (all *identities) enter(is state) *identity {
	all.mu.Lock()
	defer all.mu.Unlock()
	id := all.by[is]
	if id == nil {
		id = &identity{is: is, lanes: make([]*lane, all.count)}
		all.by[is] = id
	}
	id.refs++
	if id.bye != nil {
		id.bye.Stop()
		id.bye = nil
	}
	return id
}

func (all *identities) leave(id *identity) {
	all.mu.Lock()
	defer all.mu.Unlock()
	id.refs--
	if id.refs > 0 || all.closed {
		return
	}
	id.bye = time.AfterFunc(all.linger, func() { all.forget(id) })
}

func (all *identities) forget(id *identity) {
	all.mu.Lock()
	gone := id.refs == 0 && all.by[id.is] == id
	if gone {
		delete(all.by, id.is)
	}
	all.mu.Unlock()
	if gone {
		id.close()
	}
}

// lane returns a lane for one more session.
func (all *identities) lane(ctx context.Context, id *identity) (*lane, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	i := id.next % len(id.lanes)
	id.next++
	if l := id.lanes[i]; l != nil && l.alive() {
		return l, nil
	}
	l, err := openLane(ctx, all, id.is)
	if err != nil {
		return nil, err
	}
	id.lanes[i] = l
	return l, nil
}

func (id *identity) close() {
	id.mu.Lock()
	defer id.mu.Unlock()
	for _, l := range id.lanes {
		if l != nil {
			l.close()
		}
	}
}

// close ends all lanes. Sessions must have ended.
func (all *identities) close() {
	all.mu.Lock()
	all.closed = true
	by := all.by
	all.by = map[state]*identity{}
	all.mu.Unlock()
	for _, id := range by {
		if id.bye != nil {
			id.bye.Stop()
		}
		id.close()
	}
}
