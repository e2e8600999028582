package redis

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// agents answers for the Redis of every agent.
type agents struct {
	cfg      *Config
	ctx      context.Context // of the Server's run
	cache    *cache
	tasks    *sync.WaitGroup
	patterns *patterns
	counts   *counters
	turns    atomic.Uint64 // of channels; see turn

	mu    sync.Mutex
	peers map[string]*peer
}

// peer is one agent of which something was asked lately.
type peer struct {
	all  *agents
	name string

	dialing  chan struct{} // held by who opens the line
	line     atomic.Pointer[client]
	lineUsed atomic.Int64
	asking   atomic.Int32

	mu        sync.Mutex
	channels  map[string]*channel // wanted
	flights   map[string]*flight
	due       map[string]map[*listener]bool // channels of which clients are to be reminded, and who; nil: all
	reminders int                           // goroutines that do
	running   bool                          // a goroutine keeps the subscription
	changed   chan struct{}                 // channels have changed
	retry     chan struct{}                 // something is known of the agent: try at once
	gone      bool                          // no longer in agents.peers
}

// channel tells of the changes of one Application.
type channel struct {
	heard     bool   // the agent's Redis has confirmed the subscription
	seq       uint64 // another one after every message, and after every gap in which one may have been lost
	listeners map[*listener]bool
	usedUntil time.Time // wanted for the cache until then, even if nobody listens
}

// turn is a number that no channel has had. What is cached outlives the channels, so one that is wanted again must not
// count from the beginning.
func (a *agents) turn() uint64 { return a.turns.Add(1) }

func (a *agents) start(ctx context.Context) { a.ctx = ctx }

// find returns an agent if something was asked of it lately.
func (a *agents) find(name string) *peer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.peers[name]
}

// with calls f with an agent, which stays for the time of the call.
func (a *agents) with(name string, f func(p *peer)) {
	for {
		a.mu.Lock()
		p := a.peers[name]
		if p == nil {
			p = &peer{
				all: a, name: name,
				dialing:  make(chan struct{}, 1),
				channels: map[string]*channel{},
				flights:  map[string]*flight{},
				due:      map[string]map[*listener]bool{},
				changed:  make(chan struct{}, 1),
				retry:    make(chan struct{}, 1),
			}
			a.peers[name] = p
		}
		a.mu.Unlock()
		p.mu.Lock()
		if !p.gone {
			f(p)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// sweep releases what nobody uses: cached values' subscriptions, idle connections, agents.
func (a *agents) sweep(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, p := range a.peers {
		p.mu.Lock()
		for id, ch := range p.channels {
			p.release(id, ch, now)
		}
		if line := p.line.Load(); line != nil && now.UnixNano()-p.lineUsed.Load() > int64(lineIdle) && p.asking.Load() == 0 {
			p.line.Store(nil)
			line.close(errClosed)
		}
		if len(p.channels) == 0 && len(p.flights) == 0 && !p.running && p.line.Load() == nil {
			p.gone = true
			delete(a.peers, name)
		}
		p.mu.Unlock()
	}
}

// close ends all lines, when the Server ends.
func (a *agents) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.peers {
		if line := p.line.Swap(nil); line != nil {
			line.close(errClosed)
		}
	}
}

const (
	lineIdle  = time.Minute
	lineStall = 10 * time.Second // a line on which nothing was answered for so long is given up
	maxAsking = 512              // requests to one agent at a time
)

// connection returns the line to an agent, on which requests are pipelined.
func (p *peer) connection(ctx context.Context) (*client, error) {
	select {
	case p.dialing <- struct{}{}:
		defer func() { <-p.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("agent %s does not answer: %w", p.name, context.Cause(ctx))
	}
	p.lineUsed.Store(time.Now().UnixNano())
	if line := p.line.Load(); line != nil {
		oldest := line.oldest()
		if line.failure() == nil && (oldest.IsZero() || time.Since(oldest) < lineStall) {
			return line, nil
		}
		line.close(errClosed)
	}
	conn, err := p.all.dial(ctx, p.name)
	if err != nil {
		return nil, err
	}
	most := p.all.cfg.MaxValue
	line := newClient(conn, limits{bulk: most, elements: 16, total: 2*most + maxLine})
	p.line.Store(line)
	p.all.tasks.Go(func() {
		select {
		case <-line.done:
		case <-p.all.ctx.Done():
			line.shut()
		}
	})
	return line, nil
}

func (a *agents) dial(ctx context.Context, name string) (net.Conn, error) {
	a.counts.dials.Add(1)
	conn, err := a.cfg.Tunnels.Dial(ctx, name)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// ask sends one request to an agent.
func (p *peer) ask(ctx context.Context, args ...string) ([][]byte, error) {
	if p.asking.Add(1) > maxAsking {
		p.asking.Add(-1)
		return nil, fmt.Errorf("agent %s has %d requests to answer already", p.name, maxAsking)
	}
	defer p.asking.Add(-1)
	p.all.counts.asked.Add(1)
	reply, err := p.exchange(ctx, args)
	if err != nil {
		return nil, err
	}
	values, err := bulks(reply)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", p.name, err)
	}
	return values, nil
}

// exchange asks again if the line breaks under the question: the agent may be back, and reading twice does no harm.
func (p *peer) exchange(ctx context.Context, args []string) ([]byte, error) {
	for again := true; ; again = false {
		line, err := p.connection(ctx)
		if err != nil {
			return nil, err
		}
		reply, err := line.do(ctx, args...)
		if err == nil {
			return reply, nil
		}
		if !again || ctx.Err() != nil {
			return nil, fmt.Errorf("agent %s does not answer: %w", p.name, err)
		}
	}
}
