package grpc

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// greet has the agent say Hello, and the hub welcome it when that has come.
func greet(t *testing.T, handlers map[string]tunnel.Handler, capabilities ...string) (*hub, *transport.Conn, engine.Hello) {
	t.Helper()
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	s := dial(t, spokeConfig{Address: h.address, Name: "agent-a", TLS: ca.clientTLS("agent-a"), Tunnels: handlers})
	must(t, s.next("connected").conn.Send(engine.Hello{Capabilities: capabilities}))
	c := h.next("connected").conn
	hello, ok := h.next("received").message.(engine.Hello)
	if !ok {
		t.Fatal("the first message is no Hello")
	}
	must(t, c.Send(engine.Welcome{Agent: "agent-a"}))
	return h, c, hello
}

// sentOn returns how many messages were sent on a connection.
func sentOn(t *testing.T, c *transport.Conn) uint64 {
	t.Helper()
	eventually(t, "the queue is sent", func() bool { return c.Queued() == 0 })
	return c.Traffic.MessagesOut.Load()
}

func TestOpenTunnel_DoesNotRequestTargetsThatAreNotOffered(t *testing.T) {
	leakCheck(t)
	for name, c := range map[string]struct {
		handlers map[string]tunnel.Handler
		said     []string
	}{
		"one":  {map[string]tunnel.Handler{"echo": echo}, []string{"other", "tunnels=echo"}},
		"none": {nil, []string{"other", "tunnels="}},
	} {
		t.Run(name, func(t *testing.T) {
			h, conn, hello := greet(t, c.handlers, "other")
			if !slices.Equal(hello.Capabilities, c.said) {
				t.Errorf("the agent said %q", hello.Capabilities)
			}
			before := sentOn(t, conn)
			_, err := h.OpenTunnel(t.Context(), "agent-a", "api")
			if refused := new(tunnel.AgentError); !errors.As(err, &refused) || refused.Reason != `the agent has no tunnels to "api"` {
				t.Errorf("%v", err)
			}
			if sentOn(t, conn) != before {
				t.Error("the agent was asked")
			}
			if n := h.Counters().Refused()["tunnel_agent"]; n != 1 {
				t.Errorf("counted %d", n)
			}
			if c.handlers == nil {
				return
			}
			opened, err := h.OpenTunnel(t.Context(), "agent-a", "echo")
			must(t, err)
			_, err = opened.Write([]byte("x"))
			must(t, err)
			_, err = opened.Read(make([]byte, 1))
			must(t, err)
			must(t, opened.Close())
		})
	}
}

func TestOpenTunnel_RequestsAnyTargetWithoutAnOffer(t *testing.T) {
	leakCheck(t)
	h, conn, hello := greet(t, map[string]tunnel.Handler{"echo": echo, strings.Repeat("x", 64): echo}, "other") // too long for an offer
	if len(hello.Capabilities) != 1 {
		t.Fatalf("capabilities %q", hello.Capabilities)
	}
	opened, err := h.OpenTunnel(t.Context(), "agent-a", "echo")
	must(t, err)
	must(t, opened.Close())
	before := sentOn(t, conn)
	_, err = h.OpenTunnel(t.Context(), "agent-a", "api")
	if refused := new(tunnel.AgentError); !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
	if sentOn(t, conn) == before {
		t.Error("the agent was not asked")
	}
}
