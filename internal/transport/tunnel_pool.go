package transport

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// tunnelPool is the hub's account of one connection's tunnels. A token is in the book
// of the connection on which it was sent, so no other connection can use it, and
// is struck out with its first use.
type tunnelPool struct {
	conn     *Conn
	limits   TunnelLimits
	counters *Counters

	mu            sync.Mutex
	offerReceived bool                      // the agent has said what it serves
	offer         []string                  // which targets
	waiting       map[string]*tunnelRequest // by token
	standby       map[string][]*Tunnel      // by target, the oldest first
	asked         map[string]int            // spares on their way, by target
	unsupported   map[string]bool           // targets that the agent does not serve
	used          int                       // tunnels in use or being opened
	usedFor       map[string]int            // of those, by target
	calls         map[string]int            // tunnels that the agent has opened to targets of the hub
}

// tunnelRequest is a tunnel that the agent was asked for.
type tunnelRequest struct {
	target string
	expire *time.Timer // of a spare; nil: somebody waits for the answer
	answer chan tunnelResult
}

// tunnelResult is what became of a wish.
type tunnelResult struct {
	tunnel *Tunnel
	err    error
}

func newBook(c *Conn, limits TunnelLimits, counters *Counters) *tunnelPool {
	return &tunnelPool{conn: c, limits: limits, counters: counters}
}

// reserve counts one more tunnel, if there may be one. One target cannot take
// them all: somebody who watches many logs must not keep others from trees.
func (b *tunnelPool) reserve(target string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used >= b.limits.PerAgent || b.usedFor[target] >= b.limits.PerAgent-b.limits.PerAgent/8 {
		b.counters.refuse(refusedTunnelLimit)
		return ErrTooManyTunnels
	}
	if b.counters.Tunnels.Open.Add(1) > int64(b.limits.Total) {
		b.counters.Tunnels.Open.Add(-1)
		b.counters.refuse(refusedTunnelTotal)
		return ErrTooManyTunnels
	}
	if b.usedFor == nil {
		b.usedFor = map[string]int{}
	}
	b.used++
	b.usedFor[target]++
	return nil
}

// unreserve is for a tunnel that came to nothing.
func (b *tunnelPool) unreserve(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unreserveLocked(target)
}

func (b *tunnelPool) unreserveLocked(target string) {
	b.used--
	if b.usedFor[target]--; b.usedFor[target] == 0 {
		delete(b.usedFor, target)
	}
	b.counters.Tunnels.Open.Add(-1)
}

// begin finds a spare tunnel, or notes a wish for one with a new token. It also
// returns tokens for the spares that shall follow.
func (b *tunnelPool) begin(target string) (spare *Tunnel, token string, w *tunnelRequest, ahead []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting, b.standby, b.asked, b.unsupported = map[string]*tunnelRequest{}, map[string][]*Tunnel{}, map[string]int{}, map[string]bool{}
	}
	if list := b.standby[target]; len(list) > 0 {
		spare = list[0]
		b.standby[target] = list[1:]
		spare.reserved = true
		b.counters.Tunnels.Spare.Add(-1)
	} else {
		token, w = rand.Text(), &tunnelRequest{target: target, answer: make(chan tunnelResult, 1)}
		b.waiting[token] = w
	}
	for !b.unsupported[target] && len(b.standby[target])+b.asked[target] < b.limits.Standby {
		next := rand.Text()
		b.waiting[next] = &tunnelRequest{target: target, expire: time.AfterFunc(b.limits.Open, func() { b.withdraw(next) })}
		b.asked[target]++
		ahead = append(ahead, next)
	}
	return spare, token, w, ahead
}

// ask tells the agent of a wish.
func (b *tunnelPool) ask(token, target string) error {
	err := b.conn.Send(engine.Open{Token: token, Target: target})
	if err != nil {
		b.withdraw(token)
	}
	return err
}

// withdraw makes a token worthless. It returns false if it was used before; the
// answer to the wish is then there.
func (b *tunnelPool) withdraw(token string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiting[token]
	if w == nil {
		return false
	}
	b.removeRequest(token, w)
	return true
}

func (b *tunnelPool) removeRequest(token string, w *tunnelRequest) {
	delete(b.waiting, token)
	if w.expire != nil {
		w.expire.Stop()
		b.asked[w.target]--
	}
}

// attach gives the stream of an agent to whoever asked for it. It returns false
// if nobody did.
func (b *tunnelPool) attach(first *frame, t *Tunnel) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiting[first.token]
	if w == nil {
		return false
	}
	b.removeRequest(first.token, w)
	t.describe(b.conn, w.target)
	switch {
	case first.reason != "" && w.expire != nil:
		b.unsupported[w.target] = true
	case first.reason != "":
		w.answer <- tunnelResult{err: &TunnelError{Agent: b.conn.Agent, Target: w.target, Reason: first.reason}}
	case w.expire != nil:
		b.standby[w.target] = append(b.standby[w.target], t)
		b.counters.Tunnels.Spare.Add(1)
	default:
		t.reserved = true
		w.answer <- tunnelResult{tunnel: t}
	}
	return true
}

// drop takes a spare tunnel away, if it is one.
func (b *tunnelPool) drop(t *Tunnel) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, spare := range b.standby[t.target] {
		if spare == t {
			b.standby[t.target] = append(b.standby[t.target][:i:i], b.standby[t.target][i+1:]...)
			b.counters.Tunnels.Spare.Add(-1)
			return true
		}
	}
	return false
}

// release notes that a tunnel is gone.
func (b *tunnelPool) release(t *Tunnel) {
	if b.drop(t) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.reserved {
		t.reserved = false
		b.unreserveLocked(t.target)
	}
}
