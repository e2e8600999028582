package grpc

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// far is a connection on which what is written arrives a while later, and on
// which any amount can be on its way. It needs virtual time.
type far struct {
	net.Conn
	delay time.Duration
	sent  chan parcel
	once  sync.Once
	gone  chan struct{}
}

type parcel struct {
	data []byte
	due  time.Time
}

func newFar(conn net.Conn, delay time.Duration) *far {
	f := &far{Conn: conn, delay: delay, sent: make(chan parcel, 1<<16), gone: make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-f.sent:
				select {
				case <-time.After(time.Until(p.due)):
				case <-f.gone:
					return
				}
				if _, err := conn.Write(p.data); err != nil {
					return
				}
			case <-f.gone:
				return
			}
		}
	}()
	return f
}

func (f *far) Write(b []byte) (int, error) {
	select {
	case f.sent <- parcel{append([]byte(nil), b...), time.Now().Add(f.delay)}:
		return len(b), nil
	case <-f.gone:
		return 0, net.ErrClosed
	}
}

func (f *far) Close() error {
	f.once.Do(func() { close(f.gone) })
	return f.Conn.Close()
}

// TestWindows_FitADistantAgent measures what windows allow over a round trip of
// 50 ms, where neither CPU nor bandwidth matters.
func TestWindows_FitADistantAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := connectInMemory(t, tunnel.Limits{}, 25*time.Millisecond)
		for _, tunnels := range []int{1, 20} {
			const size = 16 << 20
			begin := time.Now()
			var work sync.WaitGroup
			for range tunnels {
				hub, agent := l.open(t)
				work.Go(func() {
					_, err := agent.Write(make([]byte, size))
					must(t, err)
					must(t, agent.Close())
				})
				work.Go(func() {
					n, err := io.Copy(io.Discard, struct{ io.Reader }{hub})
					if must(t, err); n != size {
						t.Errorf("%d bytes came", n)
					}
					must(t, hub.Close())
				})
			}
			work.Wait()
			rate := float64(tunnels*size) / 1e6 / time.Since(begin).Seconds()
			t.Logf("%d tunnels: %.1f MB/s", tunnels, rate)
			if want := []float64{14, 30}[min(tunnels-1, 1)]; rate < want {
				t.Errorf("that is less than %.0f MB/s", want)
			}
		}
	})
}

func TestTunnel_FirstByteReachesADistantTargetSoon(t *testing.T) {
	const half = 25 * time.Millisecond
	for name, c := range map[string]struct {
		spares int
		want   time.Duration
	}{
		"spare":     {2, half},      // the byte
		"on demand": {-1, 3 * half}, // the request, the stream, the byte
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := connectInMemory(t, tunnel.Limits{Standby: c.spares}, half)
				for i := range 5 {
					begin := time.Now()
					hub, err := l.OpenTunnel(t.Context(), "agent-a", "api")
					must(t, err)
					_, err = hub.Write([]byte("x"))
					must(t, err)
					agent, err := l.accepted.Accept()
					must(t, err)
					_, err = agent.Read(make([]byte, 1))
					must(t, err)
					if took := time.Since(begin); took != c.want && i > 0 { // the first one has no spare yet
						t.Errorf("after %s instead of %s", took, c.want)
					}
					begin = time.Now()
					must(t, hub.Close())
					<-agent.(*tunnel.Tunnel).Done()
					if took := time.Since(begin); took != half {
						t.Errorf("the end is known after %s", took)
					}
					must(t, agent.Close())
					time.Sleep(time.Second)
				}
			})
		})
	}
}
