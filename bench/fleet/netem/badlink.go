// Package badlink makes TCP connections behave as if they went a long and lossy way: everything takes its time, and what
// is lost holds up all that comes behind it until it has been sent again, which is all that an application ever sees of
// loss on a TCP link. Now and then a connection breaks.
//
// Chance comes from a seed, so that two runs have the same weather.
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

// Profile is how bad a link is. The zero value is a good one.
type Profile struct {
	Latency time.Duration // one way
	Loss    float64       // share of segments that are lost, 0 to 1
	Cuts    float64       // how often a connection breaks, per hour
	Seed    uint64
}

// IsZero tells that nothing is wrong with it.
func (w Profile) IsZero() bool { return w.Latency == 0 && w.Loss == 0 && w.Cuts == 0 }

// segment is what TCP sends, and loses, at once.
const segment = 1460

// resendAfter is how long a sender waits for an answer before it sends again: never less than 200 ms, as on Linux.
func (w Profile) resendAfter() time.Duration { return max(200*time.Millisecond, 4*w.Latency) }

// lag is how much later than others so many bytes arrive. What is sent again can be lost again, and the sender then waits
// twice as long.
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

// untilCut draws how long a connection lives; 0: forever.
func (w Profile) untilCut(random *rand.Rand) time.Duration {
	if w.Cuts <= 0 {
		return 0
	}
	return time.Duration(random.ExpFloat64() / w.Cuts * float64(time.Hour))
}

// Counters count what befell the connections.
type Counters struct {
	Late atomic.Int64 // pieces that were lost, and came later
	Cuts atomic.Int64
}

// Dialer returns a function that dials over a bad link. The name makes one link's weather differ from another's.
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
				_ = tcp.SetLinger(0) // a reset, not a goodbye
			}
			_ = c.Close()
		})
	}
	go c.carryOut()
	go c.carryIn()
	return c
}
