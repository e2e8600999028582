package redis

import (
	"crypto/sha256"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// share is what one agent has of the hub's Redis. It is an account of what was asked for, not of what Redis has: a
// principal that starts again begins with nothing, and what was kept before expires.
type share struct {
	passing *semaphore.Weighted
	reads   *semaphore.Weighted // bytes of values that Redis was asked for and has not answered with

	mu    sync.Mutex
	keys  map[keyHash]kept
	bytes int64
}

// keyHash stands for a key: an agent may choose long ones.
type keyHash [16]byte

func hashKey(key []byte) keyHash {
	sum := sha256.Sum256(key)
	return keyHash(sum[:])
}

type kept struct {
	size  int
	until time.Time
}

// keep accounts for a value; it tells why there can be no more. If Redis may keep what it has instead, that counts on
// where it is more.
func (s *share) keep(agent string, name []byte, size int, life time.Duration, instead bool, limits TenantLimits) (refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, until := hashKey(name), time.Now().Add(life)
	before, known := s.keys[key]
	if instead && known {
		size = max(size, before.size)
		if before.until.After(until) {
			until = before.until
		}
	}
	full := func() bool {
		return s.bytes-int64(before.size)+int64(size) > limits.Bytes || !known && len(s.keys) >= limits.Keys
	}
	if full() {
		s.expire(time.Now())
		before, known = s.keys[key]
	}
	if full() {
		return fmt.Sprintf("agent %s keeps %d values of %d bytes on the hub already; it may keep %d of %d",
			agent, len(s.keys), s.bytes, limits.Keys, limits.Bytes)
	}
	s.bytes += int64(size - before.size)
	s.keys[key] = kept{size: size, until: until}
	return ""
}

func (s *share) expire(now time.Time) {
	for key, k := range s.keys {
		if now.After(k.until) {
			s.drop(key)
		}
	}
}

func (s *share) drop(key keyHash) {
	s.bytes -= int64(s.keys[key].size)
	delete(s.keys, key)
}

func (s *share) remove(keys ...[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.drop(hashKey(key))
	}
}

func (s *share) rename(oldName, newName []byte) {
	from, to := hashKey(oldName), hashKey(newName)
	s.mu.Lock()
	defer s.mu.Unlock()
	k, known := s.keys[from]
	if !known || from == to {
		return
	}
	s.drop(from)
	s.drop(to)
	s.keys[to] = k
	s.bytes += int64(k.size)
}

// replies puts what we answer ourselves where it belongs among the replies of Redis.
type replies struct {
	conn  net.Conn
	stall time.Duration
	reads *semaphore.Weighted // the share's

	mu      sync.Mutex
	changed *sync.Cond
	waiting []unanswered // in the order of requests
	failed  error
}

// unanswered is a request to which no answer was passed on.
type unanswered struct {
	local []byte // nil: Redis answers
	reads int64  // bytes of values in the answer of Redis; they count among the share's until it is there
}

// maxWaiting is how many requests of one connection may be without an answer.
const maxWaiting = 10_000

func newReplies(conn net.Conn, stall time.Duration, reads *semaphore.Weighted) *replies {
	r := &replies{conn: conn, stall: stall, reads: reads}
	r.changed = sync.NewCond(&r.mu)
	return r
}

// expect notes that Redis will answer, with so many bytes of values.
func (r *replies) expect(reads int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, unanswered{reads: reads})
}

// abandon gives up what Redis has not answered, at the end of a connection.
func (r *replies) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.waiting {
		r.reads.Release(a.reads)
	}
	r.waiting = nil
}

// room waits until few enough requests are without an answer.
func (r *replies) room() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) >= maxWaiting && r.failed == nil {
		r.changed.Wait()
	}
}

// local answers a request ourselves.
func (r *replies) local(reply []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		_ = r.write(reply)
		return
	}
	r.waiting = append(r.waiting, unanswered{local: reply})
}

// remote passes on what Redis has answered, and what comes right after it.
func (r *replies) remote(reply []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return r.fail(protocolError("a reply to nothing"))
	}
	r.reads.Release(r.waiting[0].reads)
	err := r.write(reply)
	n := 1
	for ; n < len(r.waiting) && r.waiting[n].local != nil; n++ {
		err = r.write(r.waiting[n].local)
	}
	r.waiting = r.waiting[n:]
	r.changed.Broadcast()
	return err
}

// push passes on what is no reply.
func (r *replies) push(message []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(message)
}

// idle reports whether everything has been answered.
func (r *replies) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) == 0
}

// drain waits until everything has been answered, or for as long as patience lasts.
func (r *replies) drain(patience time.Duration) {
	timer := time.AfterFunc(patience, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = r.fail(errTooSlow)
	})
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) > 0 && r.failed == nil {
		r.changed.Wait()
	}
}

// end notes that Redis answers no more.
func (r *replies) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.fail(err)
}

func (r *replies) write(b []byte) error {
	if r.failed != nil {
		return r.failed
	}
	_ = r.conn.SetWriteDeadline(time.Now().Add(r.stall))
	if _, err := r.conn.Write(b); err != nil {
		return r.fail(err)
	}
	return nil
}

func (r *replies) fail(err error) error {
	if r.failed == nil {
		r.failed = err
	}
	r.changed.Broadcast()
	return r.failed
}
