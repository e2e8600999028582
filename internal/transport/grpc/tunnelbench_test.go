package grpc

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// echo is a target that answers with what it gets.
func echo(_ context.Context, conn net.Conn) { _, _ = io.Copy(conn, conn) }

// BenchmarkTunnelOpen is the time from asking for a tunnel to the first byte
// that the target answers.
func BenchmarkTunnelOpen(b *testing.B) {
	for name, spares := range map[string]int{"spare": 2, "on demand": -1} {
		b.Run(name, func(b *testing.B) {
			l := connect(b, tunnel.Limits{Standby: spares}, map[string]tunnel.Handler{"echo": echo})
			buf := make([]byte, 1)
			b.ReportAllocs()
			var opening time.Duration
			for b.Loop() {
				begin := time.Now()
				conn, err := l.OpenTunnel(b.Context(), "agent-a", "echo")
				must(b, err)
				opening += time.Since(begin)
				_, err = conn.Write(buf)
				must(b, err)
				_, err = io.ReadFull(conn, buf)
				must(b, err)
				must(b, conn.Close())
				b.StopTimer()
				for spares > 0 && l.Counters().Tunnels.Standby.Load() == 0 {
					time.Sleep(10 * time.Microsecond)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(opening.Nanoseconds())/float64(b.N), "ns/open")
		})
	}
}

// BenchmarkTunnelRoundTrip is the time of a few bytes there and back.
func BenchmarkTunnelRoundTrip(b *testing.B) {
	l := connect(b, tunnel.Limits{}, map[string]tunnel.Handler{"echo": echo})
	conn, err := l.OpenTunnel(b.Context(), "agent-a", "echo")
	must(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	buf := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		_, err := conn.Write(buf)
		must(b, err)
		_, err = io.ReadFull(conn, buf)
		must(b, err)
	}
}

// BenchmarkTunnelThroughput is how much comes from an agent, through one tunnel
// and through many at once.
func BenchmarkTunnelThroughput(b *testing.B) {
	for _, tunnels := range []int{1, 100} {
		b.Run(fmt.Sprint(tunnels), func(b *testing.B) {
			l := connect(b, tunnel.Limits{}, nil)
			piece := make([]byte, tunnel.MaxData)
			var work sync.WaitGroup
			rest := b.N
			hubs, agents := make([]*tunnel.Tunnel, tunnels), make([]*tunnel.Tunnel, tunnels)
			for i := range tunnels {
				hubs[i], agents[i] = l.open(b)
			}
			b.SetBytes(tunnel.MaxData)
			b.ReportAllocs()
			b.ResetTimer()
			for i, hub := range hubs {
				share, agent := rest/(tunnels-i), agents[i]
				rest -= share
				work.Go(func() {
					for range share {
						_, _ = agent.Write(piece)
					}
					_ = agent.Close()
				})
				work.Go(func() {
					n, err := io.Copy(io.Discard, struct{ io.Reader }{hub})
					if err != nil || n != int64(share)*tunnel.MaxData {
						b.Errorf("%d bytes came: %v", n, err)
					}
					_ = hub.Close()
				})
			}
			work.Wait()
		})
	}
}

// BenchmarkTunnelEchoUnderLoad is how long a key stroke takes while 100 logs are
// followed while a client loads lists of 50 MB.
func BenchmarkTunnelEchoUnderLoad(b *testing.B) {
	echoBeside(b, connect(b, tunnel.Limits{}, map[string]tunnel.Handler{"echo": echo}))
}

// BenchmarkTunnelEchoOnANarrowLine is the same over a line that takes 20 MB/s from
// the agent, and keeps little.
func BenchmarkTunnelEchoOnANarrowLine(b *testing.B) {
	ca := newCA(b, "ca")
	l := &line{hub: startHub(b, hubConfig{TLS: ca.serverTLS()}), accepted: tunnel.NewListener()}
	l.spoke = dial(b, spokeConfig{Address: narrow(b, l.address, 20e6), Name: "agent-a", TLS: ca.clientTLS("agent-a"),
		Tunnels: map[string]tunnel.Handler{"api": l.accepted.Handle, "echo": echo}})
	l.conn = l.welcome("agent-a")
	echoBeside(b, l)
}

// narrow is the address of a line to another one.
func narrow(b *testing.B, to string, bytesPerSecond float64) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		agent, err := listener.Accept()
		if err != nil {
			return
		}
		_ = agent.(*net.TCPConn).SetReadBuffer(32 << 10)
		hub, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(agent, hub)
			_ = agent.Close()
		}()
		piece := make([]byte, 16<<10)
		for next := time.Now(); ; {
			n, err := agent.Read(piece)
			if err != nil {
				_ = hub.Close()
				return
			}
			_, _ = hub.Write(piece[:n])
			if now := time.Now(); next.Before(now) {
				next = now
			}
			next = next.Add(time.Duration(float64(n) / bytesPerSecond * 1e9))
			time.Sleep(time.Until(next))
		}
	}()
	return listener.Addr().String()
}

func echoBeside(b *testing.B, l *line) {
	b.Helper()
	var work sync.WaitGroup
	var ends []net.Conn
	follow := func(write func(io.Writer) error) {
		hub, agent := l.open(b)
		ends = append(ends, hub, agent)
		work.Go(func() {
			for write(agent) == nil {
			}
		})
		work.Go(func() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{hub}) })
	}
	for range 100 {
		follow(func(w io.Writer) error {
			time.Sleep(10 * time.Millisecond)
			_, err := w.Write(make([]byte, 200))
			return err
		})
	}
	list := make([]byte, 50<<20)
	follow(func(w io.Writer) error {
		_, err := w.Write(list)
		return err
	})
	conn, err := l.OpenTunnel(b.Context(), "agent-a", "echo")
	must(b, err)
	var took []time.Duration
	key := make([]byte, 1)
	for b.Loop() {
		begin := time.Now()
		_, err := conn.Write(key)
		must(b, err)
		_, err = io.ReadFull(conn, key)
		must(b, err)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
	must(b, conn.Close())
	for _, end := range ends {
		must(b, end.Close())
	}
	work.Wait()
}

// BenchmarkLoopback is the same as BenchmarkTunnelThroughput with nothing but
// TCP, to compare.
func BenchmarkLoopback(b *testing.B) {
	l, err := Listen(b.Context(), "127.0.0.1:0")
	must(b, err)
	near, err := net.Dial("tcp", l.Addr().String())
	must(b, err)
	far, err := l.Accept()
	must(b, err)
	b.SetBytes(tunnel.MaxData)
	go func() {
		for range b.N {
			_, _ = far.Write(make([]byte, tunnel.MaxData))
		}
		_ = far.Close()
	}()
	_, err = io.Copy(io.Discard, struct{ io.Reader }{near})
	must(b, err)
	must(b, near.Close())
	must(b, l.Close())
}
