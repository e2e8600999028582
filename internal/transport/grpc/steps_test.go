package grpc

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/lab/collector"
)

func TestTrace_CoversBothEndsOfASession(t *testing.T) {
	collected, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	must(t, err)
	defer collected.Close()
	tracer := func(service string) *trace.Tracer {
		tracer, err := trace.New(t.Context(), trace.Config{Address: collected.Address(), Insecure: true, Service: service, Log: slog.New(slog.DiscardHandler), BatchTimeout: time.Millisecond})
		must(t, err)
		t.Cleanup(tracer.Close)
		return tracer
	}
	forHub, forAgent := tracer("hub"), tracer("agent")
	ca := newCA(t, "ca")
	refuse := make(chan error, 1)
	refuse <- errors.New("come back")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), Trace: forHub, Admit: func(transport.Peer) (time.Duration, error) {
		select {
		case err := <-refuse:
			return time.Millisecond, err
		default:
			return 0, nil
		}
	}})
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a"), Trace: forAgent})
	agent, hub := s.next("connected").conn, h.next("connected").conn
	agent.Steps.Next("greet")
	agent.Steps.End()
	hub.Steps.Next("greet") // and never gets further
	s.stop()
	h.stop()
	forHub.Close()
	forAgent.Close()

	type place struct{ service, parent string }
	seen := map[string][]place{}
	whole := map[string]collector.Span{}
	names := map[string]string{}
	for _, span := range collected.Spans() {
		names[span.ID] = span.Name
	}
	for _, span := range collected.Spans() {
		seen[span.Name] = append(seen[span.Name], place{span.Resource["service.name"], names[span.Parent]})
		if span.Name == "accept an agent" || span.Name == "connect to the principal" {
			whole[span.Resource["service.name"]] = span // the last one
		}
	}
	for _, want := range []struct {
		name string
		at   place
	}{
		{"connect to the principal", place{"agent", ""}}, {"dial", place{"agent", "connect to the principal"}}, {"handshake", place{"agent", "connect to the principal"}},
		{"wait to be accepted", place{"agent", "connect to the principal"}}, {"accept an agent", place{"hub", "connect to the principal"}},
		{"handshake", place{"hub", "accept an agent"}}, {"admit", place{"hub", "accept an agent"}}, {"wait for hello", place{"hub", "accept an agent"}},
		{"greet", place{"hub", "accept an agent"}}, {"greet", place{"agent", "connect to the principal"}},
	} {
		found := false
		for _, at := range seen[want.name] {
			found = found || at == want.at
		}
		if !found {
			t.Errorf("no %q at %v: %v", want.name, want.at, seen[want.name])
		}
	}
	if len(seen["admit"]) != 2 || len(seen["accept an agent"]) != 2 {
		t.Errorf("the first attempt is missing: %v", seen)
	}
	if whole["agent"].Failed || !whole["hub"].Failed || whole["hub"].Attributes[trace.Agent] != "agent-a" {
		t.Errorf("%+v", whole)
	}
}
