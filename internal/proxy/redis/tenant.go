package redis

import (
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

// Tenants lets agents use the hub's Redis for clusters that have none of their own. Each of them sees its own keys and
// channels and nothing else: whatever it names is given a prefix on the way in, and loses it on the way out. Commands
// that could look past that, or hold up Redis, are refused, and so is more than its share of memory. Agents need no
// password of Redis: the hub has it.
type Tenants struct {
	Redis Endpoint // the hub's

	// Allowed says why an agent may not, or no longer, use Redis. It is asked for every request and must not wait.
	Allowed func(agent string) error

	// Incarnation tells an agent from earlier ones that had its name, whose keys it must not see. It is asked for every
	// connection and must not wait. nil: there were none.
	Incarnation func(agent string) string

	Limits TenantLimits
	Log    *slog.Logger

	mu     sync.Mutex
	shares map[string]*share // by agent
}

// TenantLimits bound what one agent can take. Zero means the default.
type TenantLimits struct {
	Value   int           // bytes of one request or reply: 32 MiB
	Passing int64         // bytes of large requests and replies on their way: 128 MiB
	Waiting int64         // bytes of values that it has asked for and Redis keeps for it: 64 MiB, and at least one value
	Bytes   int64         // of all that it keeps: 512 MiB
	Keys    int           // that it keeps: 100,000
	Life    time.Duration // for which it may keep something: 7 days
	Idle    time.Duration // a connection that is silent for so long, and not subscribed, is closed: 15 min
	Stall   time.Duration // a connection that does not take a byte for so long is closed: 30 s
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

// TenantPrefix is what the names of an agent's keys and channels begin with in the hub's Redis. An agent's name has
// neither '.' nor '|', nor anything that means something in a pattern; so no agent's prefix begins another's.
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

// Forget drops what is known of an agent that is gone for good. Its keys expire.
func (t *Tenants) Forget(agent string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.shares, agent)
}

func (t *Tenants) share(agent string, limits TenantLimits) *share {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.shares[agent]
	if s == nil {
		if t.shares == nil {
			t.shares = map[string]*share{}
		}
		s = &share{keys: map[keyHash]kept{}, passing: semaphore.NewWeighted(limits.Passing), reads: semaphore.NewWeighted(limits.Waiting)}
		t.shares[agent] = s
	}
	return s
}

// Serve carries one connection of an agent until either end closes it, or ctx ends. It owns conn.
func (t *Tenants) Serve(ctx context.Context, agent string, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	limits := t.Limits.withDefaults()
	redis, err := t.Redis.connect(ctx)
	if err != nil {
		t.log().WarnContext(ctx, "an agent waits for Redis", "agent", agent, "error", err)
		_ = conn.SetWriteDeadline(time.Now().Add(dialTimeout))
		_, _ = conn.Write(errorReply("ERR the hub's Redis cannot be reached; its principal has logged why"))
		return
	}
	defer func() { _ = redis.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		_ = conn.Close()
		_ = redis.Close()
	})
	defer stop()
	mine := t.share(agent, limits)
	s := &tenant{
		all: t, limits: limits, share: mine, agent: agent, prefix: t.prefix(agent),
		ctx: ctx, conn: conn, redis: redis, out: newReplies(conn, limits.Stall, mine.reads), release: func() {},
	}
	defer s.out.abandon()
	var back sync.WaitGroup
	back.Go(func() {
		defer cancel()
		s.back()
	})
	err = s.forward()
	if errors.Is(err, errProtocol) { // what was asked before is answered first
		s.out.local(errorReply("ERR " + err.Error()))
		s.out.drain(dialTimeout)
	}
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		t.log().DebugContext(ctx, "a connection to the hub's Redis has ended", "agent", agent, "error", err)
	}
	cancel()
	back.Wait()
}

func (t *Tenants) log() *slog.Logger {
	if t.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return t.Log
}

// tenant is one connection of an agent.
type tenant struct {
	all           *Tenants
	limits        TenantLimits
	share         *share
	agent, prefix string
	ctx           context.Context
	conn, redis   net.Conn
	out           *replies

	release func() // gives back the room of a large request that is being read; forward's
	reading int64  // bytes of values that the request at hand asks for, and may; forward's

	mu         sync.Mutex
	proto      int  // 3, or else 2
	subscribed bool // RESP2: forever; then only messages come
	channels   int
}

// large is from which size on a request or reply counts as passing.
const large = 1 << 20

// pass waits until there is room for something large on its way, and returns what gives the room back.
func (s *tenant) pass(size int) (done func(), err error) {
	if size < large {
		return func() {}, nil
	}
	n := min(int64(size), s.limits.Passing)
	if err := s.share.passing.Acquire(s.ctx, n); err != nil {
		return nil, err
	}
	return func() { s.share.passing.Release(n) }, nil
}

// forward reads the agent's requests and passes them on, in as few writes as they came.
func (s *tenant) forward() error {
	bound := limits{bulk: s.limits.Value, elements: 10_000, total: s.limits.Value + 64<<10}
	var in buffer
	var args [][]byte
	defer s.passed()
	for {
		unread := in.unread()
		var used, need int
		var send []byte
		for {
			c, more, err := readCommand(unread[used:], args[:0], bound)
			if err != nil {
				_, _ = s.redis.Write(send)
				return err
			}
			if need = more; c.length == 0 {
				break
			}
			args = c.args
			used += c.length
			if len(c.args) == 0 {
				continue
			}
			if send, err = s.mayRead(send, c.args); err != nil {
				return err
			}
			var quit bool
			if send, quit = s.take(send, c.args); quit {
				_ = s.write(send)
				s.out.drain(dialTimeout)
				return io.EOF
			}
			s.share.reads.Release(s.reading) // if it was refused
			s.reading = 0
		}
		if err := s.write(send); err != nil {
			return err
		}
		if in.r += used; used > 0 {
			s.passed()
		}
		s.out.room() // before there is something large: the answers that this waits for may need the room for it
		if need >= large && need > len(in.bytes) {
			s.passed()
			release, err := s.pass(need)
			if err != nil {
				return err
			}
			s.release = release
		}
		if err := s.read(&in, need); err != nil {
			return err
		}
	}
}

// mayRead waits until the values that a request asks for can be asked for. What waits for being sent goes first, for
// its answers may be what this waits for; and so does the room of a large request, which large answers may need.
func (s *tenant) mayRead(send []byte, args [][]byte) ([]byte, error) {
	n := s.share.weigh(args, s.limits)
	if n == 0 || n > s.limits.Waiting {
		return send, nil
	}
	if !s.share.reads.TryAcquire(n) {
		if err := s.write(send); err != nil {
			return nil, err
		}
		send = nil
		s.passed()
		if err := s.share.reads.Acquire(s.ctx, n); err != nil {
			return nil, fmt.Errorf("wait for answers of the hub's Redis: %w", err)
		}
	}
	s.reading = n
	return send, nil
}

// passed notes that a large request is on its way no more.
func (s *tenant) passed() {
	s.release()
	s.release = func() {}
}

func (s *tenant) write(send []byte) error {
	if len(send) == 0 {
		return nil
	}
	if _, err := s.redis.Write(send); err != nil {
		return fmt.Errorf("write to the hub's Redis: %w", err)
	}
	return nil
}

func (s *tenant) read(in *buffer, need int) error {
	at := time.Time{}
	s.mu.Lock()
	if s.channels == 0 {
		at = time.Now().Add(s.limits.Idle)
	}
	s.mu.Unlock()
	_ = s.conn.SetReadDeadline(at)
	if need < large {
		return in.fill(s.conn, need)
	}
	// Not much of what follows something large: it would stay in the buffer that there is room for just now.
	return in.fill(io.LimitReader(s.conn, int64(max(0, need-len(in.unread()))+bigBuffer)), need)
}

// back passes on what Redis answers.
func (s *tenant) back() {
	from := newReader(s.redis, limits{bulk: s.limits.Value, elements: 10_000, total: s.limits.Value + 1<<20})
	for {
		reply, done, err := s.next(from)
		if err == nil {
			err = s.deliver(reply)
		}
		done()
		if err != nil {
			s.out.end(err)
			return
		}
	}
}

// next reads one reply. Until done is called, it counts as passing if it is large.
func (s *tenant) next(from *reader) (reply []byte, done func(), err error) {
	done = func() {}
	for held := false; ; {
		if reply, err = from.buffered(); reply != nil || err != nil {
			return reply, done, err
		}
		if need := from.scan.need; need >= large && !held {
			held = true
			release, err := s.pass(need)
			if err != nil {
				return nil, done, err
			}
			done = release
		}
		if err = from.buf.fill(s.redis, from.scan.need); err != nil {
			return nil, done, err
		}
	}
}

// deliver passes one reply or message on.
func (s *tenant) deliver(reply []byte) error {
	if reply[0] != '>' {
		s.mu.Lock()
		message := s.subscribed && s.out.idle()
		s.mu.Unlock()
		switch {
		case !message:
			return s.out.remote(reply)
		case reply[0] != '*': // to a PING after the last UNSUBSCRIBE
			return s.out.push(reply)
		}
	}
	message, err := s.unprefixed(reply)
	if err != nil {
		return err
	}
	return s.out.push(message)
}
