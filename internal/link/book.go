package link

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// book is the hub's account of one connection's tunnels. A token is in the book
// of the connection on which it was sent, so no other connection can use it, and
// is struck out with its first use.
type book struct {
	conn     *Conn
	limits   TunnelLimits
	counters *Counters

	mu      sync.Mutex
	told    bool                 // the agent has said what it serves
	offer   []string             // which targets
	waiting map[string]*wish     // by token
	spares  map[string][]*Tunnel // by target, the oldest first
	asked   map[string]int       // spares on their way, by target
	mute    map[string]bool      // targets that the agent does not serve
	used    int                  // tunnels in use or being opened
	usedFor map[string]int       // of those, by target
	calls   map[string]int       // tunnels that the agent has opened to targets of the hub
}

// wish is a tunnel that the agent was asked for.
type wish struct {
	target string
	expire *time.Timer // of a spare; nil: somebody waits for the answer
	answer chan answer
}

// answer is what became of a wish.
type answer struct {
	tunnel *Tunnel
	err    error
}

func newBook(c *Conn, limits TunnelLimits, counters *Counters) *book {
	return &book{conn: c, limits: limits, counters: counters}
}

// reserve counts one more tunnel, if there may be one. One target can not take
// them all: somebody who watches many logs must not keep others from trees.
func (b *book) reserve(target string) error {
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
func (b *book) unreserve(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unreserveLocked(target)
}

func (b *book) unreserveLocked(target string) {
	b.used--
	if b.usedFor[target]--; b.usedFor[target] == 0 {
		delete(b.usedFor, target)
	}
	b.counters.Tunnels.Open.Add(-1)
}

// begin finds a spare tunnel, or notes a wish for one with a new token. It also
// returns tokens for the spares that shall follow.
func (b *book) begin(target string) (spare *Tunnel, token string, w *wish, ahead []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting, b.spares, b.asked, b.mute = map[string]*wish{}, map[string][]*Tunnel{}, map[string]int{}, map[string]bool{}
	}
	if list := b.spares[target]; len(list) > 0 {
		spare = list[0]
		b.spares[target] = list[1:]
		spare.reserved = true
		b.counters.Tunnels.Spare.Add(-1)
	} else {
		token, w = rand.Text(), &wish{target: target, answer: make(chan answer, 1)}
		b.waiting[token] = w
	}
	for !b.mute[target] && len(b.spares[target])+b.asked[target] < b.limits.Spares {
		next := rand.Text()
		b.waiting[next] = &wish{target: target, expire: time.AfterFunc(b.limits.Open, func() { b.withdraw(next) })}
		b.asked[target]++
		ahead = append(ahead, next)
	}
	return spare, token, w, ahead
}

// ask tells the agent of a wish.
func (b *book) ask(token, target string) error {
	err := b.conn.Send(engine.Open{Token: token, Target: target})
	if err != nil {
		b.withdraw(token)
	}
	return err
}

// withdraw makes a token worthless. It returns false if it was used before; the
// answer to the wish is then there.
func (b *book) withdraw(token string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiting[token]
	if w == nil {
		return false
	}
	b.strike(token, w)
	return true
}

func (b *book) strike(token string, w *wish) {
	delete(b.waiting, token)
	if w.expire != nil {
		w.expire.Stop()
		b.asked[w.target]--
	}
}

// claim gives the stream of an agent to whoever asked for it. It returns false
// if nobody did.
func (b *book) claim(first *frame, t *Tunnel) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiting[first.token]
	if w == nil {
		return false
	}
	b.strike(first.token, w)
	t.describe(b.conn, w.target)
	switch {
	case first.reason != "" && w.expire != nil:
		b.mute[w.target] = true
	case first.reason != "":
		w.answer <- answer{err: &TunnelError{Agent: b.conn.Agent, Target: w.target, Reason: first.reason}}
	case w.expire != nil:
		b.spares[w.target] = append(b.spares[w.target], t)
		b.counters.Tunnels.Spare.Add(1)
	default:
		t.reserved = true
		w.answer <- answer{tunnel: t}
	}
	return true
}

// drop takes a spare tunnel away, if it is one.
func (b *book) drop(t *Tunnel) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, spare := range b.spares[t.target] {
		if spare == t {
			b.spares[t.target] = append(b.spares[t.target][:i:i], b.spares[t.target][i+1:]...)
			b.counters.Tunnels.Spare.Add(-1)
			return true
		}
	}
	return false
}

// release notes that a tunnel is gone.
func (b *book) release(t *Tunnel) {
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
