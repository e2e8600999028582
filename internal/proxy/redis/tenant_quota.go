package redis

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// tenantQuota accounts for one agent's use of the hub's Redis. It records what the agent requested, not what Redis stores:
// after a restart of the principal it starts empty, and earlier keys expire.
type tenantQuota struct {
	passing budget // bytes of large requests and replies in memory
	reads   budget // bytes of values that Redis was asked for and has not returned

	channels atomic.Int64 // subscriptions

	total *atomic.Int64 // bytes of all agents

	mu    sync.Mutex
	keys  map[keyHash]quotaEntry
	bytes int64
}

// keyHash represents a key, because an agent can choose long ones.
type keyHash [16]byte

func hashKey(key []byte) keyHash {
	sum := sha256.Sum256(key)
	return keyHash(sum[:])
}

type quotaEntry struct {
	size  int
	until time.Time
}

// charge records a value, or returns the reason why it exceeds the quota. If the command is conditional, Redis can keep
// the old value, so the larger of both counts.
func (q *tenantQuota) charge(agent string, name []byte, size int, life time.Duration, conditional bool, limits TenantLimits) (refused string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, now := hashKey(name), time.Now()
	until := now.Add(life)
	old, known := q.keys[key]
	if conditional && known {
		size = max(size, old.size)
		if old.until.After(until) {
			until = old.until
		}
	}
	full := func() bool {
		return q.bytes-int64(old.size)+int64(size) > limits.Bytes || !known && len(q.keys) >= limits.Keys
	}
	totalFull := func() bool { return q.total.Load()-int64(old.size)+int64(size) > limits.Total }
	if full() || totalFull() {
		q.dropExpired(now)
		old, known = q.keys[key]
	}
	if totalFull() {
		return fmt.Sprintf("all agents store %d bytes on the hub, the limit is %d bytes", q.total.Load(), limits.Total)
	}
	if full() {
		return fmt.Sprintf("agent %s stores %d values with %d bytes on the hub, the limit is %d values with %d bytes",
			agent, len(q.keys), q.bytes, limits.Keys, limits.Bytes)
	}
	q.addBytes(int64(size - old.size))
	q.keys[key] = quotaEntry{size: size, until: until}
	return ""
}

// addBytes changes the number of stored bytes. The caller must hold q.mu.
func (q *tenantQuota) addBytes(n int64) {
	q.bytes += n
	q.total.Add(n)
}

// dropExpired removes keys that have expired. The caller must hold q.mu.
func (q *tenantQuota) dropExpired(now time.Time) {
	for expired, e := range q.keys {
		if now.After(e.until) {
			q.drop(expired)
		}
	}
}

// drop removes a key. The caller must hold q.mu.
func (q *tenantQuota) drop(key keyHash) {
	q.addBytes(-int64(q.keys[key].size))
	delete(q.keys, key)
}

func (q *tenantQuota) remove(keys ...[]byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range keys {
		q.drop(hashKey(key))
	}
}

func (q *tenantQuota) rename(oldName, newName []byte) {
	from, to := hashKey(oldName), hashKey(newName)
	q.mu.Lock()
	defer q.mu.Unlock()
	e, known := q.keys[from]
	if !known || from == to {
		return
	}
	q.drop(from)
	q.drop(to)
	q.keys[to] = e
	q.addBytes(int64(e.size))
}

// weigh returns the largest number of bytes that the values of keys can have. Redis buffers replies without a limit, so an
// agent must not request too much. A value that another principal replica stored can have any size.
func (q *tenantQuota) weigh(keys [][]byte, limits TenantLimits) (bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range keys {
		size := limits.Value
		if e, known := q.keys[hashKey(name)]; known {
			size = e.size
		}
		bytes += max(int64(size), limits.Waiting/maxReads)
	}
	return bytes
}
