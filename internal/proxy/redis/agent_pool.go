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
	cfg      *Config
	ctx      context.Context // of Server.Run
	cache    *cache
	tasks    *sync.WaitGroup
	patterns *patternClients
	counts   *counters

	mu      sync.Mutex // guards the fields of all agentClients too. It is never held while something waits.
	clients map[string]*agentClient
	lastSeq uint64
}

// agentClient is the state of one agent. The fields are guarded by agentPool.mu.
type agentClient struct {
	pool *agentPool
	name string

	dialing  chan struct{} // held by the goroutine that opens conn
	conn     *requestConn
	connUsed time.Time
	requests int
	reads    map[string]*inflightRead

	channels  map[string]*channel
	due       map[string]map[*subscriber]bool // subscribers to notify by channel, nil for all of them
	notifiers int                             // goroutines that notify
	running   bool                            // a goroutine maintains the subscription
	changed   chan struct{}                   // channels changed
	retry     chan struct{}                   // the agent's connection changed: retry immediately
	forgotten bool                            // removed when it is idle
}

// channel reports the changes of one Application.
type channel struct {
	confirmed   bool   // the agent's Redis confirmed the subscription
	seq         uint64 // changes with every message, and with every gap in which a message can have been lost
	subscribers map[*subscriber]bool
	wantedUntil time.Time // by the cache
}

func (a *agentPool) start(ctx context.Context) { a.ctx = ctx }

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
			due:      map[string]map[*subscriber]bool{},
			changed:  make(chan struct{}, 1),
			retry:    make(chan struct{}, 1),
		}
		a.clients[name] = p
	}
	p.forgotten = false
	return p
}

// sweep releases subscriptions, connections and agents that are not used.
func (a *agentPool) sweep(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, p := range a.clients {
		for id, ch := range p.channels {
			p.release(id, ch, now)
		}
		if p.conn != nil && now.Sub(p.connUsed) > agentConnIdle && p.requests == 0 {
			p.conn.close(errClosed)
			p.conn = nil
		}
		if p.forgotten && len(p.channels) == 0 && len(p.reads) == 0 && !p.running && p.conn == nil {
			delete(a.clients, name)
		}
	}
}

// forget drops the cached values of an agent.
func (a *agentPool) forget(name string) {
	a.mu.Lock()
	if p := a.clients[name]; p != nil {
		p.forgotten = true
	}
	a.mu.Unlock()
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
	tunnel, err := p.pool.dial(ctx, p.name)
	if err != nil {
		return nil, err
	}
	most := p.pool.cfg.MaxValue
	conn = newRequestConn(tunnel, limits{bulk: most, elements: 16, total: 2*most + maxLine})
	p.pool.mu.Lock()
	p.conn = conn
	p.pool.mu.Unlock()
	p.pool.tasks.Go(func() {
		select {
		case <-conn.done:
		case <-p.pool.ctx.Done():
			conn.shut()
		}
	})
	return conn, nil
}

func (a *agentPool) dial(ctx context.Context, name string) (net.Conn, error) {
	a.counts.dials.Add(1)
	return a.cfg.Tunnels.Dial(ctx, name)
}

// request sends one request to the agent. The reply must have count elements.
func (p *agentClient) request(ctx context.Context, count int, args ...string) ([][]byte, error) {
	p.pool.mu.Lock()
	busy := p.requests >= maxAgentRequests
	if !busy {
		p.requests++
	}
	p.pool.mu.Unlock()
	if busy {
		return nil, fmt.Errorf("agent %s has %d pending requests", p.name, maxAgentRequests)
	}
	defer func() {
		p.pool.mu.Lock()
		p.requests--
		p.pool.mu.Unlock()
	}()
	p.pool.counts.asked.Add(1)
	reply, err := p.exchange(ctx, appendCommand(nil, args...))
	if err != nil {
		return nil, err
	}
	values, err := decode(reply)
	if err == nil && len(values) != count {
		err = fmt.Errorf("%s returned %d values, want %d", args[0], len(values), count)
	}
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", p.name, err)
	}
	return values, nil
}

// exchange retries once if the connection is lost. All requests are reads.
func (p *agentClient) exchange(ctx context.Context, raw []byte) ([]byte, error) {
	for retry := true; ; retry = false {
		conn, err := p.connection(ctx)
		if err != nil {
			return nil, err
		}
		reply, err := conn.doRaw(ctx, 1, raw)
		if err == nil {
			return reply[0], nil
		}
		if !retry || ctx.Err() != nil {
			return nil, fmt.Errorf("agent %s does not respond: %w", p.name, err)
		}
	}
}
