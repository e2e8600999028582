package redis

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// maxPending is the number of requests of one connection without a reply.
const maxPending = 10_000

// tenantReplies writes the proxy's own replies between those of Redis, in the order of the requests.
type tenantReplies struct {
	conn  timeoutWriter
	reads *semaphore.Weighted // of the quota

	mu      sync.Mutex
	changed sync.Cond
	pending []pendingReply // oldest first
	failed  error
}

// pendingReply is a request without a written reply.
type pendingReply struct {
	local []byte // nil if Redis replies
	reads int64  // bytes in the reply of Redis, which count as reads until it arrives
}

func newTenantReplies(conn net.Conn, stall time.Duration, reads *semaphore.Weighted) *tenantReplies {
	r := &tenantReplies{conn: timeoutWriter{conn, stall}, reads: reads}
	r.changed.L = &r.mu
	return r
}

// expect records that Redis will reply with at most so many bytes of values.
func (r *tenantReplies) expect(reads int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = append(r.pending, pendingReply{reads: reads})
}

// close releases the reads to which Redis has not replied.
func (r *tenantReplies) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pending {
		r.reads.Release(p.reads)
	}
	r.pending = nil
}

// waitRoom waits while too many requests have no reply.
func (r *tenantReplies) waitRoom() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.pending) >= maxPending && r.failed == nil {
		r.changed.Wait()
	}
}

// local replies to a request without Redis.
func (r *tenantReplies) local(reply []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		_ = r.write(reply)
		return
	}
	r.pending = append(r.pending, pendingReply{local: reply})
}

// remote forwards a reply of Redis, and the local replies after it.
func (r *tenantReplies) remote(reply []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		return protocolError("unexpected reply")
	}
	r.reads.Release(r.pending[0].reads)
	err := r.write(reply)
	n := 1
	for ; n < len(r.pending) && r.pending[n].local != nil; n++ {
		err = r.write(r.pending[n].local)
	}
	r.pending = r.pending[n:]
	r.changed.Broadcast()
	return err
}

// push forwards a message.
func (r *tenantReplies) push(message []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(message)
}

// complete reports whether all requests have their replies.
func (r *tenantReplies) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) == 0
}

// waitComplete waits until all requests have their replies, but no longer than limit.
func (r *tenantReplies) waitComplete(limit time.Duration) {
	timer := time.AfterFunc(limit, func() { r.fail(errTimeout) })
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.pending) > 0 && r.failed == nil {
		r.changed.Wait()
	}
}

// fail records that no replies follow.
func (r *tenantReplies) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = err
	r.changed.Broadcast()
}

// write writes to the agent. The caller must hold r.mu.
func (r *tenantReplies) write(b []byte) error {
	if r.failed == nil {
		_, r.failed = r.conn.Write(b)
		r.changed.Broadcast()
	}
	return r.failed
}
