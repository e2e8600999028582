package transport

import (
	"hash/maphash"
	"sync"
	"time"
)

// enrollLimiter bounds how often somebody may ask for a certificate. It knows no names:
// each falls into one of a fixed number of slots, so that strangers cannot make
// it grow. Two that share a slot share its pace.
type enrollLimiter struct {
	now  func() time.Time
	seed maphash.Seed

	mu    sync.Mutex
	slots [1024]time.Time // when all that was taken from a slot will be made good
}

const (
	paceEvery = 500 * time.Millisecond // one call, in the long run
	paceBurst = 40                     // and so many at once: many clusters may come from one address
)

func newPace(now func() time.Time) *enrollLimiter {
	return &enrollLimiter{now: now, seed: maphash.MakeSeed()}
}

// take takes one call from a slot, or returns how long to wait for it.
func (p *enrollLimiter) take(who string) (wait time.Duration) {
	i := maphash.String(p.seed, who) % uint64(len(p.slots))
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	full := p.slots[i]
	if full.Before(now) {
		full = now
	}
	if full = full.Add(paceEvery); full.Sub(now) > paceBurst*paceEvery {
		return full.Sub(now) - paceBurst*paceEvery
	}
	p.slots[i] = full
	return 0
}
