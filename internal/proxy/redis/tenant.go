package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
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

	mu     sync.Mutex
	quotas map[string]*tenantQuota // by agent
}

// TenantLimits bound the resources of one agent. Zero selects the default.
type TenantLimits struct {
	Value   int           // bytes of one request or reply: 32 MiB
	Passing int64         // bytes of large requests and replies in memory: 128 MiB
	Waiting int64         // bytes of requested values that Redis buffers: 64 MiB, and at least one value
	Bytes   int64         // bytes of all stored values: 512 MiB
	Keys    int           // stored keys: 100,000
	Life    time.Duration // largest time to live: 7 days
	Idle    time.Duration // a silent connection without subscription is closed: 15 min
	Stall   time.Duration // a connection that takes no bytes is closed: 30 s
}

func (l TenantLimits) withDefaults() TenantLimits {
	orDefault(&l.Value, 32<<20)
	orDefault(&l.Passing, 128<<20)
	orDefault(&l.Waiting, 64<<20)
	l.Waiting = max(l.Waiting, int64(l.Value)+maxName)
	orDefault(&l.Bytes, 512<<20)
	orDefault(&l.Keys, 100_000)
	orDefault(&l.Life, 7*24*time.Hour)
	orDefault(&l.Idle, 15*time.Minute)
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
	delete(t.quotas, agent)
}

func (t *Tenants) quota(agent string, limits TenantLimits) *tenantQuota {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.quotas[agent]
	if q == nil {
		if t.quotas == nil {
			t.quotas = map[string]*tenantQuota{}
		}
		q = &tenantQuota{
			keys: map[keyHash]quotaEntry{}, passing: semaphore.NewWeighted(limits.Passing), reads: semaphore.NewWeighted(limits.Waiting),
		}
		t.quotas[agent] = q
	}
	return q
}

// Serve serves one connection of an agent until either end closes it, or ctx ends. It takes ownership of conn.
func (t *Tenants) Serve(ctx context.Context, agent string, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	limits, log := t.Limits.withDefaults(), orDiscard(t.Log)
	redis, err := t.Redis.connect(ctx)
	if err != nil {
		log.WarnContext(ctx, "Failed to connect agent to the hub's Redis", "agent", agent, "error", err)
		_ = conn.SetWriteDeadline(time.Now().Add(dialTimeout))
		_, _ = conn.Write(errorReply("ERR the hub's Redis cannot be reached, see the log of the principal"))
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() {
		_ = conn.Close()
		_ = redis.Close()
	})
	s := newTenantConn(ctx, t, limits, agent, conn, redis)
	defer s.out.close()
	var replies sync.WaitGroup
	replies.Go(func() {
		defer cancel()
		s.receive(redis)
	})
	err = s.forward()
	if errors.Is(err, errProtocol) {
		s.out.local(errorReply("ERR " + err.Error()))
	}
	if errors.Is(err, errProtocol) || errors.Is(err, errQuit) { // earlier requests get their replies
		_ = s.upstream.Flush()
		s.out.waitComplete(dialTimeout)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errQuit) && ctx.Err() == nil {
		log.DebugContext(ctx, "Connection to the hub's Redis ended", "agent", agent, "error", err)
	}
	cancel()
	replies.Wait()
}

// tenantConn is one connection of an agent.
type tenantConn struct {
	tenants       *Tenants
	limits        TenantLimits
	quota         *tenantQuota
	agent, prefix string
	ctx           context.Context
	conn          net.Conn
	upstream      *bufio.Writer
	out           *tenantReplies

	// For the reading goroutine:
	release func() // returns the memory of a large request
	reading int64  // bytes of values that the current request can return

	mu         sync.Mutex
	proto      int  // 3, or else 2
	subscribed bool // RESP2: stays set, because only messages follow
	channels   int
}

func newTenantConn(ctx context.Context, t *Tenants, limits TenantLimits, agent string, conn net.Conn, redis io.Writer) *tenantConn {
	q := t.quota(agent, limits)
	return &tenantConn{
		tenants: t, limits: limits, quota: q, agent: agent, prefix: t.prefix(agent), ctx: ctx, conn: conn,
		upstream: bufio.NewWriterSize(redis, bufferSize), out: newTenantReplies(conn, limits.Stall, q.reads), release: func() {},
	}
}

// reserve waits for memory for a large request or reply and returns a function that releases it.
func (s *tenantConn) reserve(size int) (release func(), err error) {
	n := min(int64(size), s.limits.Passing)
	if err := s.quota.passing.Acquire(s.ctx, n); err != nil {
		return nil, err
	}
	return func() { s.quota.passing.Release(n) }, nil
}

// released returns the memory of a large request.
func (s *tenantConn) released() {
	s.release()
	s.release = func() {}
}

// Read implements io.Reader for the requests. It sends pending requests to Redis before it waits.
func (s *tenantConn) Read(b []byte) (int, error) {
	if err := s.flush(); err != nil {
		return 0, err
	}
	s.out.waitRoom()
	at := time.Time{}
	s.mu.Lock()
	if s.channels == 0 {
		at = time.Now().Add(s.limits.Idle)
	}
	s.mu.Unlock()
	_ = s.conn.SetReadDeadline(at)
	return s.conn.Read(b)
}

func (s *tenantConn) flush() error {
	if err := s.upstream.Flush(); err != nil {
		return fmt.Errorf("write to the hub's Redis: %w", err)
	}
	return nil
}

// forward reads the agent's requests and sends them to Redis.
func (s *tenantConn) forward() error {
	defer s.released()
	requests := newCommandReader(s, limits{bulk: s.limits.Value, elements: 10_000, total: s.limits.Value + 64<<10})
	requests.limits.reserve = func(size int) error {
		err := s.flush() // replies that this waits for can need the memory
		s.released()
		if err == nil {
			var release func()
			if release, err = s.reserve(size); err == nil {
				s.release = release
			}
		}
		return err
	}
	for {
		cmd, err := requests.next()
		if err == nil {
			err = s.reserveReads(cmd.args)
		}
		if err != nil {
			return err
		}
		if s.take(cmd.args) {
			return errQuit
		}
		s.quota.reads.Release(s.reading) // if the request was refused
		s.reading = 0
		s.released()
	}
}

// reserveReads waits until Redis can buffer the values that a request returns. Pending requests are sent first, because
// this can wait for their replies.
func (s *tenantConn) reserveReads(args [][]byte) error {
	n := s.quota.weigh(args, s.limits)
	if n == 0 || n > s.limits.Waiting {
		return nil
	}
	if !s.quota.reads.TryAcquire(n) {
		if err := s.flush(); err != nil {
			return err
		}
		s.released()
		if err := s.quota.reads.Acquire(s.ctx, n); err != nil {
			return fmt.Errorf("wait for replies of the hub's Redis: %w", err)
		}
	}
	s.reading = n
	return nil
}

// receive forwards the replies of Redis.
func (s *tenantConn) receive(redis io.Reader) {
	release := func() {}
	replies := newReplyReader(redis, limits{bulk: s.limits.Value, elements: 10_000, total: s.limits.Value + 1<<20})
	replies.limits.reserve = func(size int) (err error) {
		release()
		done, err := s.reserve(size)
		if release = done; err != nil {
			release = func() {}
		}
		return err
	}
	for {
		reply, err := replies.next()
		if err == nil {
			err = s.deliver(reply)
		}
		release()
		release = func() {}
		if err != nil {
			s.out.fail(err)
			return
		}
	}
}

// deliver forwards one reply or message.
func (s *tenantConn) deliver(reply []byte) error {
	if reply[0] != '>' {
		s.mu.Lock()
		message := s.subscribed && s.out.complete()
		s.mu.Unlock()
		switch {
		case !message:
			return s.out.remote(reply)
		case reply[0] != '*': // the reply to PING after the last UNSUBSCRIBE
			return s.out.push(reply)
		}
	}
	message, err := s.withoutPrefix(reply)
	if err != nil {
		return err
	}
	return s.out.push(message)
}
