package grpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// These tests run whole connections, TLS and HTTP/2 included, in memory and
// under virtual time: minutes pass in no time and always in the same way. What
// is left running at their end fails them.

// cable connects a Dialer with a Server in memory.
type cable struct {
	net.Listener
	accept chan net.Conn
	closed chan struct{}
	cut    atomic.Bool   // nothing arrives, without notice
	delay  time.Duration // of everything, in either direction
}

func newCable() *cable {
	return &cable{accept: make(chan net.Conn), closed: make(chan struct{})}
}

func (c *cable) Accept() (net.Conn, error) {
	select {
	case conn := <-c.accept:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

func (c *cable) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return nil
}

func (c *cable) Addr() net.Addr { return &net.UnixAddr{Name: "cable"} }

func (c *cable) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if c.cut.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	if c.delay > 0 {
		near, far = newFar(near, c.delay), newFar(far, c.delay)
	}
	select {
	case c.accept <- &end{far, &c.cut}:
		return &end{near, &c.cut}, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

// end is one end of a cable.
type end struct {
	net.Conn
	cut *atomic.Bool
}

func (e *end) Write(b []byte) (int, error) {
	if e.cut.Load() {
		return len(b), nil
	}
	return e.Conn.Write(b)
}

func TestKeepalive_FindsAHalfOpenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		h := startHubOn(t, hubConfig{TLS: ca.serverTLS()}, c)
		s := dial(t, spokeConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Dial: c.dial})
		s.next("connected")
		h.next("connected")
		time.Sleep(10 * time.Minute) // alive as long as the cable is
		synctest.Wait()
		if len(s.calls)+len(h.calls) > 0 {
			t.Fatal("an idle connection did not last")
		}
		c.cut.Store(true)
		cut := time.Now()
		found := func(r *recorder, within time.Duration) {
			t.Helper()
			for range 300 {
				synctest.Wait()
				if len(r.calls) > 0 {
					break
				}
				time.Sleep(time.Second)
			}
			if after := time.Since(cut); after > within {
				t.Errorf("found after %s", after)
			} else if got := r.next("disconnected"); got.err == nil {
				t.Error("it is not known as broken")
			}
		}
		found(s.recorder, agentInterval+10*time.Second+time.Second)
		found(h.recorder, hubInterval+10*time.Second+time.Second)

		c.cut.Store(false)
		s.next("connected") // and it is whole again
		h.next("connected")
	})
}

func TestKeepalive_CostsFewBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		h := startHubOn(t, hubConfig{TLS: ca.serverTLS()}, c)
		s := dial(t, spokeConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Dial: c.dial})
		s.next("connected")
		h.next("connected")
		time.Sleep(time.Minute)
		in, out := h.Counters().WireIn.Load(), h.Counters().WireOut.Load()
		time.Sleep(time.Hour)
		in, out = (h.Counters().WireIn.Load()-in)/60, (h.Counters().WireOut.Load()-out)/60
		t.Logf("an idle minute: %d bytes to the hub, %d from it", in, out)
		if in > 200 || out > 200 {
			t.Error("that is too much")
		}
	})
}

// An agent at rest sends a short beacon each minute, and the hub answers. With pings, HTTP/2 and TLS, that must cost at
// most 20 kB per hour. The revision changes each minute, as it does with Argo CD.
func TestIdleAgent_CostsAtMost20kBPerHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		c.delay = 10 * time.Millisecond
		h := startHubOn(t, hubConfig{TLS: ca.serverTLS()}, c)
		s := dial(t, spokeConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Dial: c.dial})
		agent, hub := s.next("connected").conn, h.next("connected").conn
		sum := engine.Sum{Hi: 1 << 63, Lo: 1}
		must(t, agent.Send(engine.Hello{Epoch: engine.Epoch{Incarnation: 120, Attempt: 3}}))
		h.next("received")
		hour := func(seen bool) uint64 {
			before := h.Counters().WireIn.Load() + h.Counters().WireOut.Load()
			for minute := range 60 {
				time.Sleep(time.Minute)
				beacon := engine.Equal{Sum: sum}
				if seen {
					beacon.Seen = []engine.Seen{{Scope: "status", Revision: 100_000_000 + uint64(minute)}}
				}
				must(t, agent.Send(beacon))
				h.next("received")
				must(t, hub.Send(engine.Equal{Sum: sum}))
				s.next("received")
			}
			return h.Counters().WireIn.Load() + h.Counters().WireOut.Load() - before
		}
		quiet, busy := hour(false), hour(true)
		t.Logf("an idle hour: %d bytes, %d if the revision changes each minute", quiet, busy)
		if quiet > 20_000 || busy > 22_000 {
			t.Error("that is too much")
		}
	})
}

func TestConnector_GivesUpOnASilentHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		var silent atomic.Bool
		silent.Store(true)
		s := dial(t, spokeConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Dial: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe() // a silent server
			t.Cleanup(func() { _ = far.Close() })
			return &end{near, &silent}, nil
		}})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if len(s.failures) != 1 {
			t.Fatalf("%d attempts have failed", len(s.failures))
		}
		if err := s.failure(); !strings.Contains(err.Error(), "no answer within 20s") {
			t.Error(err)
		}
	})
}

// A hub that accepts no more sessions refuses connections before the handshake. Its open session continues.
func TestStopAccepting_KeepsOpenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		h := startHubOn(t, hubConfig{TLS: ca.serverTLS()}, c)
		s := dial(t, spokeConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Dial: c.dial})
		agent, hub := s.next("connected").conn, h.next("connected").conn
		h.StopAccepting()
		synctest.Wait()
		if _, err := c.dial(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a connection is accepted: %v", err)
		}
		time.Sleep(time.Hour)
		must(t, agent.Send(roots(1)))
		must(t, hub.Send(roots(2)))
		if got := numberOf(t, h.next("received").message); got != 1 {
			t.Errorf("the hub got %d", got)
		}
		if got := numberOf(t, s.next("received").message); got != 2 {
			t.Errorf("the agent got %d", got)
		}
		h.stop()
		if bye := s.bye(); bye.Code != engine.ShuttingDown {
			t.Errorf("the session ends with %v", bye)
		}
	})
}
