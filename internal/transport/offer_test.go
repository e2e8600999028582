package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// greet has the agent say Hello, and the hub welcome it when that has come.
func greet(t *testing.T, handlers map[string]TunnelHandler, capabilities ...string) (*hub, *Conn, engine.Hello) {
	t.Helper()
	ca := newCA(t, "ca")
	h := startHub(t, ServerConfig{TLS: ca.serverTLS()})
	s := dial(t, DialerConfig{Address: h.address, Name: "agent-a", TLS: ca.clientTLS("agent-a"), Tunnels: handlers})
	must(t, s.next("connected").conn.Send(engine.Hello{Capabilities: capabilities}))
	c := h.next("connected").conn
	hello, ok := h.next("received").message.(engine.Hello)
	if !ok {
		t.Fatal("the first message is no Hello")
	}
	must(t, c.Send(engine.Welcome{Agent: "agent-a"}))
	return h, c, hello
}

// sentOn is how many messages were sent on a connection, or shall be.
func sentOn(c *Conn) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seq
}

func TestHubAsksForNoTunnelThatTheAgentDoesNotServe(t *testing.T) {
	leakCheck(t)
	for name, c := range map[string]struct {
		handlers map[string]TunnelHandler
		said     []string
	}{
		"one":  {map[string]TunnelHandler{"echo": echo}, []string{"other", "tunnels=echo"}},
		"none": {nil, []string{"other", "tunnels="}},
	} {
		t.Run(name, func(t *testing.T) {
			h, conn, hello := greet(t, c.handlers, "other")
			if !slices.Equal(hello.Capabilities, c.said) {
				t.Errorf("the agent said %q", hello.Capabilities)
			}
			before := sentOn(conn)
			_, err := h.OpenTunnel(t.Context(), "agent-a", "api")
			if told := new(TunnelError); !errors.As(err, &told) || told.Reason != `the agent has no tunnels to "api"` {
				t.Errorf("%v", err)
			}
			if sentOn(conn) != before {
				t.Error("the agent was asked")
			}
			if n := h.Counters().Refused()[refusedTunnelAgent]; n != 1 {
				t.Errorf("counted %d", n)
			}
			if c.handlers == nil {
				return
			}
			tunnel, err := h.OpenTunnel(t.Context(), "agent-a", "echo")
			must(t, err)
			_, err = tunnel.Write([]byte("x"))
			must(t, err)
			_, err = tunnel.Read(make([]byte, 1))
			must(t, err)
			must(t, tunnel.Close())
		})
	}
}

func TestAgentThatDoesNotSayWhatItServesIsAsked(t *testing.T) {
	leakCheck(t)
	h, conn, _ := greet(t, map[string]TunnelHandler{"echo": echo})
	conn.tunnels.recordOffer(engine.Hello{Capabilities: []string{"other"}}) // as one of an older release would say
	tunnel, err := h.OpenTunnel(t.Context(), "agent-a", "echo")
	must(t, err)
	must(t, tunnel.Close())
	before := sentOn(conn)
	_, err = h.OpenTunnel(t.Context(), "agent-a", "api")
	if told := new(TunnelError); !errors.As(err, &told) {
		t.Errorf("%v", err)
	}
	if sentOn(conn) == before {
		t.Error("the agent was not asked")
	}
}

func TestOfferThatWouldBreakTheHelloIsLeftOut(t *testing.T) {
	nothing := func(context.Context, net.Conn) {}
	if offer := offerOf(map[string]TunnelHandler{"b": nothing, "a": nothing}); offer != "tunnels=a,b" {
		t.Errorf("%q", offer)
	}
	if offer := offerOf(map[string]TunnelHandler{strings.Repeat("a", maxOffer): nothing}); offer != "" {
		t.Errorf("%q", offer)
	}
}
