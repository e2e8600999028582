// Package netem simulates TCP connections over a long and lossy network path. Data arrives late. A lost segment delays
// everything behind it until it is retransmitted, which is how applications observe loss. Connections break at a
// configured rate.
//
// Randomness comes from a seed, so that two runs have the same fault pattern.
package netem

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

// Profile describes a link. The zero value is a link without faults.
type Profile struct {
	Latency time.Duration // one way
	Loss    float64       // share of lost segments, 0 to 1
	Cuts    float64       // broken connections per hour
	Seed    uint64
}

// IsZero reports whether the link has no faults.
func (w Profile) IsZero() bool { return w.Latency == 0 && w.Loss == 0 && w.Cuts == 0 }

// segment is the size of a TCP segment.
const segment = 1460

// resendAfter is the retransmission timeout: at least 200 ms, as on Linux.
func (w Profile) resendAfter() time.Duration { return max(200*time.Millisecond, 4*w.Latency) }

// lag returns the additional delay of a number of bytes. A retransmitted segment can be lost again. The timeout then
// doubles.
func (w Profile) lag(size int, random func() float64) time.Duration {
	var worst time.Duration
	for range (size + segment - 1) / segment {
		var late time.Duration
		for wait := w.resendAfter(); random() < w.Loss && wait < time.Minute; wait *= 2 {
			late += wait
		}
		worst = max(worst, late)
	}
	return worst
}

// untilCut returns the random lifetime of a connection. If 0, it is unlimited.
func (w Profile) untilCut(random *rand.Rand) time.Duration {
	if w.Cuts <= 0 {
		return 0
	}
	return time.Duration(random.ExpFloat64() / w.Cuts * float64(time.Hour))
}

// Counters counts faults.
type Counters struct {
	Late atomic.Int64 // segments that were lost and retransmitted
	Cuts atomic.Int64
}

// Dialer returns a function that dials over the link. Links with different names have different fault patterns.
func (w Profile) Dialer(name string, counters *Counters) func(ctx context.Context, network, address string) (net.Conn, error) {
	h := fnv.New64a()
	fmt.Fprint(h, name)
	var dials atomic.Uint64
	plain := net.Dialer{KeepAlive: -1}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		inner, err := plain.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return w.wrap(inner, rand.New(rand.NewPCG(w.Seed, h.Sum64()+dials.Add(1))), counters), nil
	}
}

func (w Profile) wrap(inner net.Conn, random *rand.Rand, counters *Counters) net.Conn {
	c := &conn{Conn: inner, closed: make(chan struct{})}
	c.out = newWay(w, rand.New(rand.NewPCG(random.Uint64(), 1)), counters)
	c.in = newWay(w, rand.New(rand.NewPCG(random.Uint64(), 2)), counters)
	if life := w.untilCut(random); life > 0 {
		c.cut = time.AfterFunc(life, func() {
			counters.Cuts.Add(1)
			if tcp, ok := inner.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // send a reset
			}
			_ = c.Close()
		})
	}
	go c.carryOut()
	go c.carryIn()
	return c
}
