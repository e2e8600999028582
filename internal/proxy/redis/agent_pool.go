package redis

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	agentConnIdle    = time.Minute
	agentConnStall   = 10 * time.Second // without a reply, a connection to an agent is replaced
	maxAgentRequests = 512              // to one agent at a time
)

// agentPool reads from the Redis servers of agents.
type agentPool struct {
	cfg    *Config
	ctx    context.Context // of Server.Run
	tasks  *sync.WaitGroup
	counts *counters

	// mu guards the fields of agentClients and subscribers, and the channels of clientConns too. It is never held while
	// something waits.
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

	dialing  chan struct{} // held by the goroutine that opens conn
	conn     *requestConn
	connUsed time.Time
	requests int
	reads    map[string]*inflightRead

	channels map[string]*channel
	running  bool          // a goroutine maintains the subscription
	changed  chan struct{} // channels or subscribers changed
	retry    chan struct{} // the agent's connection changed: retry immediately
}

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
			dialing:  make(chan struct{}, 1),
			reads:    map[string]*inflightRead{},
			channels: map[string]*channel{},
			changed:  make(chan struct{}, 1),
			retry:    make(chan struct{}, 1),
		}
		p.ctx, p.cancel = context.WithCancel(a.ctx)
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
		if p.conn != nil && now.Sub(p.connUsed) > agentConnIdle && p.requests == 0 {
			p.conn.close(errClosed)
			p.conn = nil
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

// connection returns the connection to the agent and opens it if needed.
func (p *agentClient) connection(ctx context.Context) (*requestConn, error) {
	select {
	case p.dialing <- struct{}{}:
		defer func() { <-p.dialing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.pool.mu.Lock()
	conn := p.conn
	p.connUsed = time.Now()
	p.pool.mu.Unlock()
	if conn != nil {
		if conn.failure() == nil && !conn.stalled(agentConnStall) {
			return conn, nil
		}
		conn.close(errClosed)
	}
	tunnel, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	most := p.pool.cfg.MaxValue
	conn = newRequestConn(tunnel, limits{bulk: most, elements: 16, total: 2*most + maxLine})
	stop := context.AfterFunc(p.ctx, func() { conn.close(errClosed) })
	p.pool.tasks.Go(func() {
		<-conn.done
		stop()
	})
	p.pool.mu.Lock()
	p.conn = conn
	p.pool.mu.Unlock()
	return conn, nil
}

func (p *agentClient) dial(ctx context.Context) (net.Conn, error) {
	p.pool.counts.dials.Add(1)
	return p.pool.cfg.Tunnels.Dial(ctx, p.name)
}

// request sends one request to the agent. The reply must have count elements.
func (p *agentClient) request(ctx context.Context, count int, args ...string) ([][]byte, error) {
	replies, err := p.exchange(ctx, 1, appendCommand(nil, args...))
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

// exchange sends requests together and returns their replies. It retries once if the connection is lost. All requests are
// reads.
func (p *agentClient) exchange(ctx context.Context, count int, raw []byte) ([][]byte, error) {
	p.pool.mu.Lock()
	busy := p.requests >= maxAgentRequests
	if !busy {
		p.requests += count
		defer func() {
			p.pool.mu.Lock()
			p.requests -= count
			p.pool.mu.Unlock()
		}()
	}
	p.pool.mu.Unlock()
	if busy {
		return nil, fmt.Errorf("agent %s has %d pending requests", p.name, maxAgentRequests)
	}
	p.pool.counts.asked.Add(int64(count))
	for retry := true; ; retry = false {
		conn, err := p.connection(ctx)
		if err != nil {
			return nil, err
		}
		replies, err := conn.doRaw(ctx, count, raw)
		if err == nil {
			return replies, nil
		}
		if !retry || ctx.Err() != nil {
			return nil, fmt.Errorf("agent %s does not respond: %w", p.name, err)
		}
	}
}
