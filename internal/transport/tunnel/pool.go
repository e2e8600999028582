package tunnel

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"
)

// Peer is the session that a Pool belongs to. All fields are required.
type Peer struct {
	Agent string

	// Request asks the agent to open a tunnel with this token. It returns ErrNotConnected if the session is closing.
	Request func(token, target string) error

	// Closing is closed when the session is closing.
	Closing <-chan struct{}

	// Welcomed reports whether the session has begun.
	Welcomed func() bool
}

// Pool has the hub's tunnels of one session. A token belongs to the pool of the session on which it was sent, so that
// no other connection can use it. It is valid once.
type Pool struct {
	cfg     Config
	peer    Peer
	targets map[string]Target

	mu               sync.Mutex
	offerReceived    bool                 // the agent has listed its targets
	offer            []string             // those targets
	requests         map[string]*request  // by token
	standby          map[string][]*Tunnel // by target, the oldest first
	standbyRequested map[string]int       // requested standby tunnels, by target
	unsupported      map[string]bool      // targets that the agent does not serve
	used             map[string]int       // tunnels in use or being opened, by target
	inbound          map[string]int       // tunnels that the agent has opened, by target of the hub
}

// request is a tunnel that the agent was asked for.
type request struct {
	target string
	expire *time.Timer // of a standby tunnel; nil if a caller waits for the result
	result chan result
}

type result struct {
	tunnel *Tunnel
	err    error
}

// NewPool returns a pool without tunnels.
func NewPool(cfg Config, targets map[string]Target, peer Peer) *Pool {
	return &Pool{
		cfg: cfg, targets: targets, peer: peer, requests: map[string]*request{}, standby: map[string][]*Tunnel{},
		standbyRequested: map[string]int{}, unsupported: map[string]bool{}, used: map[string]int{}, inbound: map[string]int{},
	}
}

// InUse returns the number of tunnels to the agent that are in use or being opened.
func (p *Pool) InUse() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, count := range p.used {
		n += count
	}
	return n
}

// reserve counts one more tunnel to a target, or returns why there may be none. The limits are for the target and for
// all targets.
func (p *Pool) reserve(counts map[string]int, target string, limit, total int) (refused string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := 0
	for _, n := range counts {
		all += n
	}
	if counts[target] >= limit || all >= total {
		return limitReached
	}
	if p.cfg.Counters.Open.Add(1) > int64(p.cfg.Limits.Total) {
		p.cfg.Counters.Open.Add(-1)
		return totalReached
	}
	counts[target]++
	return ""
}

// unreserve undoes reserve.
func (p *Pool) unreserve(counts map[string]int, target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unreserveLocked(counts, target)
}

func (p *Pool) unreserveLocked(counts map[string]int, target string) {
	if counts[target]--; counts[target] == 0 {
		delete(counts, target)
	}
	p.cfg.Counters.Open.Add(-1)
}

// takeStandby returns a standby tunnel, or else records a request with a new token. It also returns tokens for the
// standby tunnels to request next.
func (p *Pool) takeStandby(target string) (standby *Tunnel, token string, r *request, ahead []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if list := p.standby[target]; len(list) > 0 {
		standby = list[0]
		p.standby[target] = list[1:]
		standby.reserved = true
		p.cfg.Counters.Standby.Add(-1)
	} else {
		token, r = rand.Text(), &request{target: target, result: make(chan result, 1)}
		p.requests[token] = r
	}
	for !p.unsupported[target] && len(p.standby[target])+p.standbyRequested[target] < p.cfg.Limits.Standby {
		next := rand.Text()
		p.requests[next] = &request{target: target, expire: time.AfterFunc(p.cfg.Limits.Open, func() { p.cancelRequest(next) })}
		p.standbyRequested[target]++
		ahead = append(ahead, next)
	}
	return standby, token, r, ahead
}

func (p *Pool) sendRequest(token, target string) error {
	err := p.peer.Request(token, target)
	if err != nil {
		p.cancelRequest(token)
	}
	return err
}

// cancelRequest invalidates a token. It returns false if the token was used before. The request then has its result.
func (p *Pool) cancelRequest(token string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.requests[token]
	if r == nil {
		return false
	}
	p.removeRequest(token, r)
	return true
}

func (p *Pool) removeRequest(token string, r *request) {
	delete(p.requests, token)
	if r.expire != nil {
		r.expire.Stop()
		p.standbyRequested[r.target]--
	}
}

// attach passes the stream of an agent to the request with its token. It returns false if there is none.
func (p *Pool) attach(first *Frame, t *Tunnel) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.requests[first.Token]
	if r == nil {
		return false
	}
	p.removeRequest(first.Token, r)
	p.describe(t, r.target)
	switch {
	case first.Reason != "" && r.expire != nil:
		p.unsupported[r.target] = true
	case first.Reason != "":
		r.result <- result{err: &AgentError{Agent: p.peer.Agent, Target: r.target, Reason: first.Reason}}
	case r.expire != nil:
		p.standby[r.target] = append(p.standby[r.target], t)
		p.cfg.Counters.Standby.Add(1)
	default:
		t.reserved = true
		r.result <- result{tunnel: t}
	}
	return true
}

// removeStandby removes a standby tunnel. It returns false if the tunnel is not one.
func (p *Pool) removeStandby(t *Tunnel) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.standby[t.target], t)
	if i < 0 {
		return false
	}
	p.standby[t.target] = slices.Delete(p.standby[t.target], i, i+1)
	p.cfg.Counters.Standby.Add(-1)
	return true
}

// release removes a tunnel that has ended.
func (p *Pool) release(t *Tunnel) {
	if p.removeStandby(t) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.reserved {
		t.reserved = false
		p.unreserveLocked(p.used, t.target)
	}
}

func (p *Pool) describe(t *Tunnel, target string) {
	t.agent, t.target = p.peer.Agent, target
	t.local = addr("hub")
	t.remote = addr(p.peer.Agent + "/" + target)
}
