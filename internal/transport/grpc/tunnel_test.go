package grpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// line is a hub and an agent with a session, between which tunnels can be opened.
type line struct {
	*hub
	spoke    *spoke
	conn     *transport.Conn // the hub's
	accepted *tunnel.Listener
}

func connect(t testing.TB, limits tunnel.Limits, handlers map[string]tunnel.Handler) *line {
	t.Helper()
	ca := newCA(t, "ca")
	l := &line{hub: startHub(t, hubConfig{TLS: ca.serverTLS(), Tunnels: limits}), accepted: tunnel.NewListener()}
	if handlers == nil {
		handlers = map[string]tunnel.Handler{}
	}
	handlers["api"] = l.accepted.Handle
	l.spoke = dial(t, spokeConfig{Address: l.address, Name: "agent-a", TLS: ca.clientTLS("agent-a"), Tunnels: handlers, TunnelLimits: limits})
	l.conn = l.welcome("agent-a")
	return l
}

// welcome begins a session, as the engine would.
func (h *hub) welcome(agent string) *transport.Conn {
	h.t.Helper()
	c := h.next("connected").conn
	must(h.t, c.Send(engine.Welcome{Agent: agent}))
	return c
}

// open opens a tunnel and returns both ends.
func (l *line) open(t testing.TB) (hub, agent *tunnel.Tunnel) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	near, err := l.OpenTunnel(ctx, "agent-a", "api")
	must(t, err)
	far, err := l.accepted.Accept()
	must(t, err)
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return near.(*tunnel.Tunnel), far.(*tunnel.Tunnel)
}

func TestTunnel_IsANetConn(t *testing.T) {
	for name, limits := range map[string]tunnel.Limits{"spare": {}, "on demand": {Standby: -1}} {
		t.Run(name, func(t *testing.T) {
			l := connect(t, limits, nil)
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				hub, agent := l.open(t)
				return hub, agent, func() {
					_ = hub.Close()
					_ = agent.Close()
				}, nil
			})
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				hub, agent := l.open(t)
				return agent, hub, func() {
					_ = hub.Close()
					_ = agent.Close()
				}, nil
			})
			l.quiet(t)
		})
	}
}

// quiet waits until no tunnel is in use.
func (l *line) quiet(t testing.TB) {
	t.Helper()
	eventually(t, "all tunnels are gone", func() bool {
		return l.Counters().Tunnels.Open.Load() == 0 && l.spoke.Counters().Tunnels.Open.Load() == 0
	})
}

func TestTunnel_EitherEndCanCloseOneDirection(t *testing.T) {
	leakCheck(t)
	l := connect(t, tunnel.Limits{}, nil)
	for _, hubFirst := range []bool{true, false} {
		first, second := l.open(t)
		if !hubFirst {
			first, second = second, first
		}
		big := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
		var work sync.WaitGroup
		work.Go(func() {
			_, err := first.Write(big)
			must(t, err)
			must(t, first.CloseWrite())
		})
		got, err := io.ReadAll(second)
		must(t, err)
		work.Wait()
		if !bytes.Equal(got, big) {
			t.Errorf("%d bytes came", len(got))
		}
		if _, err := first.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("writing after CloseWrite: %v", err)
		}
		work.Go(func() {
			_, err := second.Write(big)
			must(t, err)
			must(t, second.Close()) // what was written still arrives
		})
		got, err = io.ReadAll(first)
		must(t, err)
		work.Wait()
		if !bytes.Equal(got, big) {
			t.Errorf("%d bytes came back", len(got))
		}
		<-first.Done()
		must(t, first.Close())
	}
	l.quiet(t)
}

func TestTunnel_CloseEndsTheOtherEnd(t *testing.T) {
	leakCheck(t)
	l := connect(t, tunnel.Limits{}, nil)
	for _, hubFirst := range []bool{true, false} {
		closing, other := l.open(t)
		if !hubFirst {
			closing, other = other, closing
		}
		writing := make(chan error)
		go func() { // to an end that does not read
			_, err := other.Write(make([]byte, 64<<20))
			writing <- err
		}()
		reading := make(chan error)
		go func() {
			_, err := other.Read(make([]byte, 1))
			reading <- err
		}()
		eventually(t, "the writer has begun", func() bool { return l.Counters().Tunnels.BytesIn.Load()+l.spoke.Counters().Tunnels.BytesIn.Load() > 0 })
		must(t, closing.Close())
		if err := <-reading; !errors.Is(err, io.EOF) {
			t.Errorf("the reader gets %v", err)
		}
		if err := <-writing; !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the writer gets %v", err)
		}
		must(t, other.Close())
	}
	l.quiet(t)
}

func TestTunnel_StalledReaderBlocksNoOther(t *testing.T) {
	leakCheck(t)
	l := connect(t, tunnel.Limits{}, nil)
	stalledHub, stalledAgent := l.open(t)
	var writers sync.WaitGroup
	for _, end := range []*tunnel.Tunnel{stalledHub, stalledAgent} {
		writers.Go(func() { _, _ = end.Write(make([]byte, 64<<20)) })
	}
	for _, end := range []*tunnel.Tunnel{stalledHub, stalledAgent} {
		eventually(t, "it stalls", func() bool { return end.IdleFor() > 50*time.Millisecond })
	}
	if n := l.spoke.Counters().Tunnels.BytesIn.Load(); n > streamWindow {
		t.Errorf("%d bytes came through a window of %d", n, streamWindow)
	}
	// Another one carries much more than all windows together, and messages still arrive.
	hub, agent := l.open(t)
	const size = 32 << 20
	writers.Go(func() {
		_, err := agent.Write(make([]byte, size))
		must(t, err)
		must(t, agent.Close())
	})
	n, err := io.Copy(io.Discard, hub)
	if must(t, err); n != size {
		t.Errorf("%d bytes came", n)
	}
	l.spoke.next("connected")
	l.spoke.next("received") // the Welcome
	for i := range 100 {
		must(t, l.conn.Send(roots(i)))
		l.spoke.next("received")
	}
	must(t, stalledHub.Close())
	must(t, stalledAgent.Close())
	writers.Wait()
}

func TestOpenTunnel_ReturnsTheReasonOfTheAgent(t *testing.T) {
	leakCheck(t)
	l := connect(t, tunnel.Limits{}, map[string]tunnel.Handler{
		"redis": func(_ context.Context, conn net.Conn) { conn.(*tunnel.Tunnel).Abort("Redis does not answer") },
	})
	for range 3 { // spares of it make no difference
		_, err := l.OpenTunnel(t.Context(), "agent-a", "nowhere")
		if refused, ok := err.(*tunnel.AgentError); !ok || refused.Reason != `the agent has no tunnels to "nowhere"` {
			t.Errorf("%v", err)
		}
	}
	conn, err := l.OpenTunnel(t.Context(), "agent-a", "redis")
	must(t, err)
	_, err = conn.Read(make([]byte, 1))
	if refused := new(tunnel.AgentError); !errors.As(err, &refused) || !strings.Contains(err.Error(), "tunnel to redis of agent agent-a: Redis does not answer") {
		t.Errorf("%v", err)
	}
	must(t, conn.Close())
	l.quiet(t)
	if n := l.Counters().Refused()["tunnel_agent"]; n != 3 {
		t.Errorf("counted %d", n)
	}
}

func TestOpenTunnel_LeavesNothingWhenCanceled(t *testing.T) {
	leakCheck(t)
	served := make(chan struct{}, 1000)
	l := connect(t, tunnel.Limits{Standby: -1}, map[string]tunnel.Handler{
		"counted": func(context.Context, net.Conn) { served <- struct{}{} },
	})
	opened := 0
	for i := range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
		conn, err := l.OpenTunnel(ctx, "agent-a", "counted")
		if timer.Stop(); err == nil {
			opened++
			_, _ = conn.Read(make([]byte, 1)) // until it was served
			must(t, conn.Close())
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		cancel()
	}
	l.quiet(t)
	if len(served) != opened {
		t.Errorf("%d tunnels were opened and %d served", opened, len(served))
	}
}

func TestOpenTunnel_IsLimited(t *testing.T) {
	leakCheck(t)
	l := connect(t, tunnel.Limits{PerAgent: 3}, nil)
	var ends []*tunnel.Tunnel
	for range 3 {
		hub, agent := l.open(t)
		ends = append(ends, hub, agent)
	}
	if _, err := l.OpenTunnel(t.Context(), "agent-a", "api"); !errors.Is(err, tunnel.ErrTooManyTunnels) {
		t.Errorf("one too many: %v", err)
	}
	for _, end := range ends {
		must(t, end.Close())
	}
	l.quiet(t)
	l.open(t)
	if n := l.Counters().Refused()["tunnel_limit"]; n != 1 {
		t.Errorf("counted %d", n)
	}
	if n := l.Counters().Tunnels.Opened.Load(); n != 4 {
		t.Errorf("%d opened", n)
	}
}

func TestOpenTunnel_LimitsOneTarget(t *testing.T) {
	leakCheck(t)
	other := tunnel.NewListener()
	l := connect(t, tunnel.Limits{PerAgent: 8}, map[string]tunnel.Handler{"redis": other.Handle})
	for range 7 {
		l.open(t)
	}
	if _, err := l.OpenTunnel(t.Context(), "agent-a", "api"); !errors.Is(err, tunnel.ErrTooManyTunnels) {
		t.Errorf("one too many: %v", err)
	}
	near, err := l.OpenTunnel(t.Context(), "agent-a", "redis")
	must(t, err)
	far, err := other.Accept()
	must(t, err)
	must(t, near.Close())
	must(t, far.Close())
}

func TestStandbyTunnels_AreReplaced(t *testing.T) {
	leakCheck(t)
	l := connect(t, tunnel.Limits{}, nil)
	for range 20 {
		hub, agent := l.open(t)
		_, err := hub.Write([]byte("x"))
		must(t, err)
		_, err = agent.Read(make([]byte, 1))
		must(t, err)
		eventually(t, "two are ready", func() bool { return l.Counters().Tunnels.Standby.Load() == 2 })
		must(t, hub.Close())
		must(t, agent.Close())
	}
	l.quiet(t)
	l.conn.Close(engine.Revoked, "go away")
	eventually(t, "they end with the session", func() bool {
		return l.Counters().Tunnels.Standby.Load() == 0 && l.spoke.Counters().Tunnels.Standby.Load() == 0
	})
}
