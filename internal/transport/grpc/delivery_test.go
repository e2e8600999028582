package grpc

import (
	"log/slog"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/lab/collector"
)

func TestDelivery_IsTracedUntilItIsAcknowledged(t *testing.T) {
	collected, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	must(t, err)
	defer collected.Close()
	tracer, err := trace.New(t.Context(), trace.Config{Address: collected.Address(), Insecure: true, Service: "hub", Log: slog.New(slog.DiscardHandler), BatchTimeout: time.Millisecond})
	must(t, err)
	defer tracer.Close()
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), Trace: tracer})
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a")})
	agent, hub := s.next("connected").conn, h.next("connected").conn

	content := []byte("{}")
	version := engine.VersionOf(content)
	delta := engine.Delta{Scope: "application"}
	for i, name := range []string{"taken", "refused", "left"} {
		delta.Items = append(delta.Items, engine.DeltaItem{Seq: uint64(i + 1), Key: engine.Key{Name: name}, Version: version, Content: content})
	}
	must(t, hub.Send(delta))
	s.next("received")
	must(t, agent.Send(engine.Ack{Scope: "application", Items: []engine.AckItem{
		{Seq: 1, Key: engine.Key{Name: "taken"}, Version: version},
		{Seq: 2, Key: engine.Key{Name: "refused"}, Version: version, Code: engine.Forbidden, Message: "hidden"},
		{Seq: 77, Key: engine.Key{Name: "never-sent"}, Version: version}, // a peer may say anything
	}}))
	h.next("received")
	s.stop()
	h.stop()
	tracer.Close()

	spans := map[string]collector.Span{}
	for _, span := range collected.Spans() {
		if span.Name == "deliver application" {
			spans[span.Attributes[trace.Object]] = span
		}
	}
	if len(spans) != 3 || spans["taken"].Failed || spans["refused"].Why != "Forbidden" || spans["left"].Why != "the connection ended" {
		t.Errorf("%+v", spans)
	}
	// The other side, which writes it, finds the same trace.
	there := traceElsewhere(t, trace.Item{Scope: "application", Name: "taken", Version: version.String()})
	if got := spans["taken"]; got.Trace != there || got.Trace == spans["left"].Trace || got.Attributes[trace.Agent] != "agent-a" {
		t.Errorf("%+v is not in trace %s", got, there)
	}
}

// traceElsewhere returns the trace ID of agent-a for an item.
func traceElsewhere(t *testing.T, item trace.Item) string {
	t.Helper()
	tracer, err := trace.New(t.Context(), trace.Config{Address: "127.0.0.1:1", Insecure: true, Service: "agent", Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(tracer.Close)
	tracer.Name("agent-a")
	const begin, length = len("00-"), 32
	return tracer.StartItem(t.Context(), trace.KindInternal, "x", item).TraceParent()[begin : begin+length]
}
