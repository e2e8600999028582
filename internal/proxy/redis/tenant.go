package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Tenants lets agents without a Redis use the hub's. Each agent sees only its own keys and channels: the proxy adds a
// prefix to every name in a request and removes it from messages. It refuses commands that could bypass the prefix or
// block Redis, and requests that exceed the agent's quota. Agents do not need the password of Redis.
type Tenants struct {
	Redis Endpoint // the hub's

	// Allowed returns the reason why an agent must not use Redis. It is called for every request and must not block.
	Allowed func(agent string) error

	// Incarnation distinguishes an agent from earlier agents with the same name, whose keys it must not see. It is called
	// for every connection and must not block. If nil, names are not reused.
	Incarnation func(agent string) string

	Limits TenantLimits
	Log    *slog.Logger

	mu       sync.Mutex
	quotas   map[string]*tenantQuota // by agent
	stored   atomic.Int64            // bytes of all agents
	channels atomic.Int64            // subscriptions of all agents

	passing, reads *semaphore.Weighted // of all agents; created with the first quota

	droppedAt time.Time // when expired keys of all agents were dropped
}

// TenantLimits bound the resources of one agent and, with Total, of all agents. All agents together use at most
// tenantShares times what one agent can use of Passing, Waiting and Channels. Zero selects the default.
type TenantLimits struct {
	Value    int           // bytes of one request or reply: 32 MiB
	Passing  int64         // bytes of large requests and replies in memory: 128 MiB
	Waiting  int64         // bytes of requested values that Redis buffers: 64 MiB, and at least one value
	Channels int64         // subscriptions: 20,000
	Bytes    int64         // bytes of all stored values: 512 MiB
	Total    int64         // bytes of the stored values of all agents: 2 GiB
	Keys     int           // stored keys: 100,000
	Stall    time.Duration // a connection that takes no bytes is closed: 30 s
}

const tenantShares = 3

func (l TenantLimits) withDefaults() TenantLimits {
	orDefault(&l.Value, 32<<20)
	orDefault(&l.Passing, 128<<20)
	orDefault(&l.Waiting, 64<<20)
	l.Waiting = max(l.Waiting, int64(l.Value)+maxName)
	orDefault(&l.Channels, 20_000)
	orDefault(&l.Bytes, 512<<20)
	orDefault(&l.Total, 2<<30)
	orDefault(&l.Keys, 100_000)
	orDefault(&l.Stall, 30*time.Second)
	return l
}

// TenantPrefix returns the prefix of an agent's keys and channels in the hub's Redis. The name of an agent contains
// neither '.' nor '|' nor a special character of patterns, so no prefix is the start of another.
func TenantPrefix(agent, incarnation string) string {
	if incarnation != "" {
		agent += "." + incarnation
	}
	return "argocd-agent|" + agent + "|"
}

func (t *Tenants) prefix(agent string) string {
	if t.Incarnation == nil {
		return TenantPrefix(agent, "")
	}
	return TenantPrefix(agent, t.Incarnation(agent))
}

// Forget drops the quota of an agent that is gone. Its keys expire.
func (t *Tenants) Forget(agent string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.quotas[agent]; q != nil {
		q.mu.Lock()
		clear(q.keys)
		q.addBytes(-q.bytes)
		q.total = new(atomic.Int64) // a connection may still use it
		q.mu.Unlock()
	}
	delete(t.quotas, agent)
}

// dropExpired removes what has expired from the quotas of all agents, at most once per second, because that takes time.
func (t *Tenants) dropExpired() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.droppedAt) < time.Second {
		return
	}
	t.droppedAt = now
	for _, q := range t.quotas {
		q.mu.Lock()
		q.dropExpired(now)
		q.mu.Unlock()
	}
}

func (t *Tenants) quota(agent string, limits TenantLimits) *tenantQuota {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.quotas[agent]
	if q == nil {
		if t.quotas == nil {
			t.quotas = map[string]*tenantQuota{}
			t.passing, t.reads = semaphore.NewWeighted(tenantShares*limits.Passing), semaphore.NewWeighted(tenantShares*limits.Waiting)
		}
		q = &tenantQuota{
			total: &t.stored, keys: map[keyHash]quotaEntry{},
			passing: budget{semaphore.NewWeighted(limits.Passing), t.passing}, reads: budget{semaphore.NewWeighted(limits.Waiting), t.reads},
		}
		t.quotas[agent] = q
	}
	return q
}

// Serve serves one connection of an agent until either end closes it, or ctx ends. It takes ownership of conn.
func (t *Tenants) Serve(ctx context.Context, agent string, conn net.Conn) {
	redis, err := t.Redis.connect(ctx)
	if err != nil {
		orDiscard(t.Log).WarnContext(ctx, "Failed to connect agent to the hub's Redis", "agent", agent, "error", err)
		_, _ = timeoutWriter{conn, dialTimeout}.Write(errorReply("ERR the hub's Redis cannot be reached, see the log of the principal"))
		_ = conn.Close()
		return
	}
	t.serve(ctx, agent, conn, redis)
}

func (t *Tenants) serve(ctx context.Context, agent string, conn, redis net.Conn) {
	size := t.Limits.withDefaults()
	quota := t.quota(agent, size)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &tenantConn{
		tenants: t, limits: size, quota: quota, agent: agent, prefix: t.prefix(agent), ctx: ctx, conn: conn,
		replies: newReplyForwarder(conn, size.Stall, size.Stall), channels: map[keyHash]string{},
		request: memory{quota.passing, size.Passing, 0}, reply: memory{quota.passing, size.Passing, 0},
	}
	s.replies.message = func(frame []byte, _ message) error {
		frame, err := s.withoutPrefix(frame)
		if err != nil {
			return err
		}
		return s.replies.write(frame, false)
	}
	s.replies.delivered = s.delivered
	s.replies.connect(redis)
	context.AfterFunc(ctx, func() { s.replies.fail(ctx.Err()) })
	var replies sync.WaitGroup
	replies.Go(func() {
		defer cancel() // ends a wait of the other goroutine for memory
		s.replies.receive(limits{bulk: size.Value, elements: 10_000, total: size.Value + 1<<20, reserve: func(size int) error {
			return s.reply.reserve(ctx, size)
		}})
	})
	err := s.forward()
	s.request.release()
	if errors.Is(err, errProtocol) {
		_ = s.replies.answer(errorReply("ERR " + err.Error()))
	}
	if errors.Is(err, errProtocol) || errors.Is(err, errQuit) {
		s.replies.finish(dialTimeout)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, errQuit) && ctx.Err() == nil {
		orDiscard(t.Log).DebugContext(ctx, "Connection to the hub's Redis ended", "agent", agent, "error", err)
	}
	cancel()
	replies.Wait()
	s.delivered(s.replies.weight)
	s.releaseChannels(len(s.channels))
}

// tenantConn is one connection of an agent.
type tenantConn struct {
	tenants       *Tenants
	limits        TenantLimits
	quota         *tenantQuota
	agent, prefix string
	ctx           context.Context
	conn          net.Conn
	replies       *replyForwarder

	// For the goroutine that reads requests:
	request  memory
	channels map[keyHash]string // subscriptions → command

	reply memory // for the goroutine that receives replies
}

// delivered is called after each reply and message.
func (s *tenantConn) delivered(reads int64) {
	s.reply.release()
	s.quota.reads.release(reads)
}

// Read implements io.Reader for the requests.
func (s *tenantConn) Read(b []byte) (int, error) {
	if err := s.replies.waitRoom(maxPending); err != nil {
		return 0, err
	}
	at := time.Time{}
	if !s.replies.isSubscribed() {
		at = time.Now().Add(tenantIdle)
	}
	_ = s.conn.SetReadDeadline(at)
	return s.conn.Read(b)
}

// forward reads the agent's requests and sends them to Redis.
func (s *tenantConn) forward() error {
	requests := newCommandReader(s, limits{bulk: s.limits.Value, elements: 10_000, total: s.limits.Value + 64<<10, reserve: func(size int) error {
		s.replies.flush() // replies that this waits for can need the memory
		return s.request.reserve(s.ctx, size)
	}})
	for {
		args, err := requests.next()
		if err == nil {
			err = s.take(commandName(args), args)
		}
		if err != nil {
			return err
		}
		s.request.release()
	}
}

// reserveReads waits until Redis can buffer the values that a request returns.
func (s *tenantConn) reserveReads(bytes int64) error {
	if s.quota.reads.tryAcquire(bytes) {
		return nil
	}
	s.request.release()
	if err := s.replies.wait(); err != nil { // the reads of this connection can be in the way
		return err
	}
	if err := s.quota.reads.acquire(s.ctx, bytes); err != nil {
		return fmt.Errorf("wait for replies of the hub's Redis: %w", err)
	}
	return nil
}
