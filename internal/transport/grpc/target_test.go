package grpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/nettest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// These tests are about tunnels that agents open.

// caller is a hub with targets, and an agent that connects to them.
type caller struct {
	*hub
	spoke    *spoke
	conn     *transport.Conn // the hub's
	accepted *tunnel.Listener
}

// target hands out what it gets, until that is closed.
func (c *caller) target() tunnel.Target {
	return tunnel.Target{
		PerAgent: 4,
		Admit: func(agent string) error {
			if agent != "agent-a" {
				return fmt.Errorf("agent %s may not use the store", agent)
			}
			return nil
		},
		Serve: func(ctx context.Context, agent string, conn net.Conn) {
			c.accepted.Handle(ctx, conn)
		},
	}
}

func call(t testing.TB, agent string) *caller {
	t.Helper()
	ca := newCA(t, "ca")
	c := &caller{accepted: tunnel.NewListener()}
	c.hub = startHub(t, hubConfig{TLS: ca.serverTLS(), Targets: map[string]tunnel.Target{"store": c.target()}})
	c.spoke = dial(t, spokeConfig{Address: c.address, Name: agent, TLS: ca.clientTLS(agent)})
	c.conn = c.welcome(agent)
	c.spoke.next("connected")
	c.spoke.next("received") // the Welcome
	return c
}

func (c *caller) open(t testing.TB) (agent, hub *tunnel.Tunnel) {
	t.Helper()
	near, err := c.spoke.OpenTunnel(t.Context(), "store")
	must(t, err)
	far, err := c.accepted.Accept()
	must(t, err)
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return near.(*tunnel.Tunnel), far.(*tunnel.Tunnel)
}

func (c *caller) quiet(t testing.TB) {
	t.Helper()
	eventually(t, "all tunnels are gone", func() bool {
		return c.Counters().Tunnels.Open.Load() == 0 && c.spoke.Counters().Tunnels.Open.Load() == 0
	})
}

func TestTunnelToHub_IsANetConn(t *testing.T) {
	c := call(t, "agent-a")
	for _, agentFirst := range []bool{true, false} {
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			c.quiet(t) // of the one before
			agent, hub := c.open(t)
			stop = func() {
				_ = agent.Close()
				_ = hub.Close()
			}
			if agentFirst {
				return agent, hub, stop, nil
			}
			return hub, agent, stop, nil
		})
	}
	c.quiet(t)
}

func TestTunnelToHub_EndsAtBothEnds(t *testing.T) {
	leakCheck(t)
	c := call(t, "agent-a")
	for name, end := range map[string]func(agent, hub *tunnel.Tunnel){
		"the agent closes": func(agent, _ *tunnel.Tunnel) { must(t, agent.Close()) },
		"the hub closes":   func(_, hub *tunnel.Tunnel) { must(t, hub.Close()) },
	} {
		agent, hub := c.open(t)
		end(agent, hub)
		for _, other := range []*tunnel.Tunnel{agent, hub} {
			if _, err := other.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: there is something to read", name)
			}
			must(t, other.Close())
		}
		c.quiet(t)
	}
	// What was written before the end is not lost.
	agent, hub := c.open(t)
	_, err := hub.Write([]byte("goodbye"))
	must(t, err)
	must(t, hub.Close())
	if got, err := io.ReadAll(agent); err != nil || string(got) != "goodbye" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTunnelToHub_ReturnsTheReasonOfARefusal(t *testing.T) {
	leakCheck(t)
	c := call(t, "agent-b")
	for target, why := range map[string]string{
		"store":   "agent agent-b may not use the store",
		"nowhere": `agents cannot connect to "nowhere" of the hub`,
	} {
		_, err := c.spoke.OpenTunnel(t.Context(), target)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if n := c.Counters().Refused()["tunnel_target"]; n != 2 {
		t.Errorf("counted %d", n)
	}
	c.quiet(t)
}

func TestTunnelToHub_IsLimited(t *testing.T) {
	leakCheck(t)
	c := call(t, "agent-a")
	var open []*tunnel.Tunnel
	for range 4 {
		_, hub := c.open(t)
		open = append(open, hub)
	}
	if _, err := c.spoke.OpenTunnel(t.Context(), "store"); err == nil || !strings.Contains(err.Error(), tunnel.ErrTooManyTunnels.Error()) {
		t.Errorf("one too many: %v", err)
	}
	must(t, open[0].Close())
	eventually(t, "there is room again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		near, err := c.spoke.OpenTunnel(ctx, "store")
		if err != nil {
			return false
		}
		conn, err := c.accepted.Accept()
		must(t, err)
		_ = conn.Close()
		return near.Close() == nil
	})
}

func TestTunnelToHub_NeedsASession(t *testing.T) {
	leakCheck(t)
	c := call(t, "agent-a")
	agent, hub := c.open(t)
	c.conn.Close(engine.Revoked, "go away")
	for _, end := range []*tunnel.Tunnel{agent, hub} { // at once, at both ends
		if _, err := end.Read(make([]byte, 1)); err == nil {
			t.Error("it can be read from")
		}
		must(t, end.Close())
	}
	lonely := newSpoke(spokeConfig{Address: "127.0.0.1:1"})
	if _, err := lonely.OpenTunnel(t.Context(), "store"); !errors.Is(err, tunnel.ErrNotConnected) {
		t.Errorf("without a connection: %v", err)
	}
}

func TestTunnelToHub_RejectsOtherFirstFrames(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	c := &caller{accepted: tunnel.NewListener()}
	c.hub = startHub(t, hubConfig{TLS: ca.serverTLS(), Targets: map[string]tunnel.Target{"store": c.target()}})
	i := c.impostor(t, ca, "agent-a")
	for name, first := range map[string]*api.Frame{
		"a token too": {Target: "store", Token: "x"},
		"data":        {Target: "store", Data: []byte("x")},
		"an error":    {Target: "store", Error: "x"},
		"an end":      {Target: "store", End: true},
		"a long name": {Target: strings.Repeat("x", 65)},
	} {
		_, err := i.open(first).Recv()
		if code := status.Code(err); code != codes.InvalidArgument && code != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	unwelcome := byHand(t, c.address, ca.clientTLS("agent-a")) // has no session yet
	openSync(t, unwelcome)
	c.next("connected")
	if _, err := (&impostor{t: t, client: unwelcome}).open(&api.Frame{Target: "store"}).Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("before the session: %v", err)
	}
	if n := c.Counters().Tunnels.Opened.Load(); n != 0 {
		t.Errorf("%d tunnels were opened", n)
	}
}

func TestTunnelToHub_StalledReaderBlocksNoOther(t *testing.T) {
	leakCheck(t)
	c := call(t, "agent-a")
	stalled, unread := c.open(t)
	written := make(chan error)
	go func() {
		_, err := stalled.Write(make([]byte, 64<<20))
		written <- err
	}()
	agent, hub := c.open(t)
	go func() {
		_, _ = agent.Write(make([]byte, 8<<20))
		_ = agent.Close()
	}()
	if n, err := io.Copy(io.Discard, hub); err != nil || n != 8<<20 {
		t.Errorf("%d bytes came: %v", n, err)
	}
	must(t, unread.Close())
	if err := <-written; err == nil {
		t.Error("all was written")
	}
}
