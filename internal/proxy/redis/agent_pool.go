package redis

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	agentConnIdle = time.Minute
	maxAgentConns = 8                // to one agent, for requests
	maxAgentReads = 512              // values of one agent that are being read or wait for a connection
	maxValue      = 64 << 20         // bytes of an uncompressed value
	cacheMaxAge   = 10 * time.Minute // a fresh value is requested again after this time
	startPeriod   = 10 * time.Second // in which agents connect to a principal that has started
)

// agentPool reads from the Redis servers of agents.
type agentPool struct {
	cfg    *Config
	ctx    context.Context // of Server.Run
	began  time.Time       // when Server.Run began
	tasks  *sync.WaitGroup
	counts *counters

	// mu guards the fields of agentClients and subscribers, and the channels of clientConns too. It is never held while
	// something waits.
	values *semaphore.Weighted // bytes of large values of all agents that are being read

	mu      sync.Mutex
	cache   *cache
	clients map[string]*agentClient
	lastSeq uint64
}

// agentClient is the state of one agent. The fields are guarded by agentPool.mu.
type agentClient struct {
	pool   *agentPool
	name   string
	ctx    context.Context // ends when the agent is forgotten
	cancel context.CancelFunc

	places   chan struct{}     // limits the connections
	idle     chan *requestConn // connections that no request uses
	idleFrom time.Time         // when a connection was last used
	values   *semaphore.Weighted
	reads    map[string]*inflightRead
	reading  int // values that are being read, also those that nothing waits for any longer

	channels map[string]*channel
	changed  chan struct{} // channels or subscribers changed
	retry    chan struct{} // the agent's connection changed: retry immediately
}

func (a *agentPool) start(ctx context.Context) { a.ctx, a.began = ctx, time.Now() }

// nextSeq returns a number that no channel had before. Cached values outlive channels, so a channel that is subscribed
// again must not repeat a number. The caller must hold a.mu.
func (a *agentPool) nextSeq() uint64 {
	a.lastSeq++
	return a.lastSeq
}

// client returns the state of an agent. The caller must hold a.mu.
func (a *agentPool) client(name string) *agentClient {
	p := a.clients[name]
	if p == nil {
		p = &agentClient{
			pool: a, name: name,
			places:   make(chan struct{}, maxAgentConns),
			idle:     make(chan *requestConn, maxAgentConns),
			values:   semaphore.NewWeighted(a.cfg.valueShare()),
			reads:    map[string]*inflightRead{},
			channels: map[string]*channel{},
			changed:  make(chan struct{}, 1),
			retry:    make(chan struct{}, 1),
		}
		p.ctx, p.cancel = context.WithCancel(a.ctx)
		context.AfterFunc(p.ctx, p.closeIdle)
		a.tasks.Go(p.runSubscription)
		a.clients[name] = p
	}
	return p
}

// sweep releases subscriptions and connections that are not used.
func (a *agentPool) sweep(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.clients {
		for id, ch := range p.channels {
			p.release(id, ch, now)
		}
		if now.Sub(p.idleFrom) > agentConnIdle {
			p.closeIdle()
		}
	}
}

func (p *agentClient) closeIdle() {
	for {
		select {
		case conn := <-p.idle:
			conn.close()
		default:
			return
		}
	}
}

// forget ends the connections to an agent and drops its values.
func (a *agentPool) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.clients[name]; p != nil {
		p.cancel()
		delete(a.clients, name)
	}
	a.cache.forget(name + "\n")
}

func (p *agentClient) dial(ctx context.Context) (net.Conn, error) {
	return p.pool.cfg.Dial(ctx, p.name)
}

// request sends one request to the agent. The reply must have count elements.
func (p *agentClient) request(ctx context.Context, m *memory, count int, args ...string) ([][]byte, error) {
	replies, err := p.exchange(ctx, m, 1, appendCommand(nil, args...))
	if err != nil {
		return nil, err
	}
	values, err := decode(replies[0])
	if err == nil && len(values) != count {
		err = fmt.Errorf("%s returned %d values, want %d", args[0], len(values), count)
	}
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", p.name, err)
	}
	return values, nil
}

// memory returns memory for large values of the agent. The caller must release it.
func (p *agentClient) memory() *memory {
	return &memory{budget: budget{p.values, p.pool.values}, max: p.pool.cfg.valueShare()}
}

// exchange sends requests together and returns their replies. All requests are reads. Large replies use the memory m.
func (p *agentClient) exchange(ctx context.Context, m *memory, count int, raw []byte) (replies [][]byte, err error) {
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return nil, fmt.Errorf("agent %s does not respond: %w", p.name, context.Cause(ctx))
	}
	p.pool.counts.asked.Add(int64(count))
	for retry := true; retry; { // a connection from before can be lost
		var conn *requestConn
		select {
		case conn = <-p.idle:
		default:
			tunnel, err := p.dial(ctx)
			if err != nil {
				return nil, err
			}
			retry, conn = false, newRequestConn(tunnel, limits{bulk: maxValue, elements: 16, total: 2*maxValue + maxLine})
		}
		conn.replies.limits.reserve = func(n int) error { return m.reserve(ctx, 2*n) } // doRaw copies the reply
		if replies, err = conn.doRaw(ctx, count, raw); err == nil {
			p.idle <- conn // has room, because there are at most as many connections as places
			p.pool.mu.Lock()
			p.idleFrom = time.Now()
			p.pool.mu.Unlock()
			if p.ctx.Err() != nil {
				p.closeIdle()
			}
			return replies, nil
		}
		conn.close()
		retry = retry && ctx.Err() == nil
	}
	return nil, fmt.Errorf("agent %s does not respond: %w", p.name, err)
}
