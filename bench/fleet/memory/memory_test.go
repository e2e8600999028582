package memory

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recorder passes events on to a test.
type recorder struct {
	connected    chan *transport.Conn
	received     chan engine.Message
	disconnected chan error
}

func newRecorder() *recorder {
	return &recorder{make(chan *transport.Conn, 10), make(chan engine.Message, 10_000), make(chan error, 10)}
}

func (r *recorder) Connected(c *transport.Conn)                  { r.connected <- c }
func (r *recorder) Received(_ *transport.Conn, m engine.Message) { r.received <- m }
func (r *recorder) Disconnected(_ *transport.Conn, err error)    { r.disconnected <- err }

// pair is a hub and an agent with a session.
type pair struct {
	server         *transport.Server
	dialer         *transport.Dialer
	hub, agent     *recorder
	onHub, onAgent *transport.Conn
	accepted       *tunnel.Listener
	acceptedOnHub  *tunnel.Listener
	stop           func()
	dialing        sync.WaitGroup
}

func connect(t testing.TB) *pair {
	t.Helper()
	p := &pair{hub: newRecorder(), agent: newRecorder(), accepted: tunnel.NewListener(), acceptedOnHub: tunnel.NewListener()}
	log := slog.New(slog.DiscardHandler)
	p.server = transport.NewServer(transport.ServerConfig{Events: p.hub, Log: log, Targets: map[string]tunnel.Target{"store": {
		Admit: func(string) error { return nil },
		Serve: func(ctx context.Context, _ string, conn net.Conn) { p.acceptedOnHub.Handle(ctx, conn) },
	}}})
	p.dialer = transport.NewDialer(transport.DialerConfig{
		Connectors: []transport.Connector{NewConnector(p.server, transport.Peer{Agent: "agent-a"})}, Name: "agent-a", Events: p.agent, Log: log,
		Tunnels: map[string]tunnel.Handler{"api": p.accepted.Handle},
		Wait:    func(context.Context, time.Duration) error { return errors.New("one session is enough") },
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p.dialing.Go(func() { _ = p.dialer.Run(ctx) })
	p.stop = func() {
		cancel()
		p.dialing.Wait()
		p.server.Drain()
		p.server.Wait()
	}
	t.Cleanup(p.stop)
	p.onHub, p.onAgent = <-p.hub.connected, <-p.agent.connected
	must(t, p.onHub.Send(engine.Welcome{Agent: "agent-a"}))
	<-p.agent.received
	return p
}

func roots(n int) engine.Roots {
	return engine.Roots{Items: []engine.Root{{Scope: "application", Count: uint64(n)}}}
}

func TestSession_DeliversMessagesInOrder(t *testing.T) {
	p := connect(t)
	const n = 1000
	for i := range n {
		must(t, p.onAgent.Send(roots(i)))
		must(t, p.onHub.Send(roots(i)))
	}
	for i := range n {
		for _, r := range []*recorder{p.hub, p.agent} {
			if m := (<-r.received).(engine.Roots); m.Items[0].Count != uint64(i) {
				t.Fatalf("message %d has number %d", i, m.Items[0].Count)
			}
		}
	}
}

func TestSession_EndsWithBye(t *testing.T) {
	p := connect(t)
	p.onHub.CloseAfter(engine.Overloaded, "later", time.Second)
	bye := new(transport.ByeError)
	if err := <-p.agent.disconnected; !errors.As(err, &bye) || bye.Code != engine.Overloaded || bye.RetryAfter != time.Second || bye.Local {
		t.Errorf("the agent gets %v", err)
	}
	if err := <-p.hub.disconnected; !errors.As(err, &bye) || !bye.Local {
		t.Errorf("the hub gets %v", err)
	}
}

func TestSession_IsRefusedWhileTheHubDrains(t *testing.T) {
	p := connect(t)
	p.stop()
	_, err := NewConnector(p.server, transport.Peer{Agent: "agent-b"}).Connect(t.Context(), nil, nil)
	if refused := new(transport.RefusedError); !errors.As(err, &refused) || refused.Code != engine.ShuttingDown {
		t.Errorf("error %v", err)
	}
}

func TestServer_CutsAStalledAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t)
		stalled := NewConnector(p.server, transport.Peer{Agent: "agent-b"})
		session, err := stalled.Connect(t.Context(), nil, nil)
		must(t, err)
		defer session.Close()
		c := <-p.hub.connected
		hello, err := wire.Encode(engine.Hello{}, wire.Meta{Source: "agent"})
		must(t, err)
		must(t, session.Send(hello))
		for i := range 2 * queueSize {
			must(t, c.Send(roots(i)))
		}
		time.Sleep(3*time.Minute + time.Second)
		synctest.Wait()
		if !errors.Is(c.Cause(), transport.ErrSlowReader) {
			t.Errorf("ended by %v", c.Cause())
		}
		p.stop()
	})
}

func (p *pair) open(t testing.TB, toHub bool) (hub, agent net.Conn) {
	t.Helper()
	var err error
	if toHub {
		agent, err = p.dialer.OpenTunnel(t.Context(), "store")
		must(t, err)
		hub, err = p.acceptedOnHub.Accept()
	} else {
		hub, err = p.server.OpenTunnel(t.Context(), "agent-a", "api")
		must(t, err)
		agent, err = p.accepted.Accept()
	}
	must(t, err)
	return hub, agent
}

func TestTunnel_IsANetConn(t *testing.T) {
	p := connect(t)
	for name, toHub := range map[string]bool{"to the agent": false, "to the hub": true} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				hub, agent := p.open(t, toHub)
				return hub, agent, func() {
					_ = hub.Close()
					_ = agent.Close()
				}, nil
			})
		})
	}
}

func TestTunnel_CarriesAllDataBeforeClose(t *testing.T) {
	p := connect(t)
	for _, toHub := range []bool{false, true} {
		hub, agent := p.open(t, toHub)
		for from, to := range map[net.Conn]net.Conn{hub: agent} {
			const size = 10 << 20
			var writing sync.WaitGroup
			writing.Go(func() {
				_, err := from.Write(make([]byte, size))
				if err != nil {
					t.Error(err)
				}
				_ = from.Close()
			})
			n, err := io.Copy(io.Discard, to)
			if err != nil || n != size {
				t.Errorf("to the hub %v: %d bytes, %v", toHub, n, err)
			}
			writing.Wait()
			_ = to.Close()
		}
	}
}

func TestTunnels_EndWithTheirSession(t *testing.T) {
	p := connect(t)
	hub, agent := p.open(t, false)
	p.onHub.Close(engine.Revoked, "certificate revoked")
	for _, end := range []net.Conn{hub, agent} {
		<-end.(*tunnel.Tunnel).Done()
		if _, err := end.Write([]byte("x")); err == nil {
			t.Error("data was written after the end")
		}
		_ = end.Close()
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	p := connect(b)
	for b.Loop() {
		must(b, p.onAgent.Send(roots(1)))
		<-p.hub.received
		must(b, p.onHub.Send(roots(1)))
		<-p.agent.received
	}
}
