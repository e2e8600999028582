package principal

import (
	"log/slog"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/lab/collector"
)

func TestAHopIsPartOfTheRequestsTrace(t *testing.T) {
	collected, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer collected.Close()
	q := newPair(t)
	for name, l := range map[string]*live{"here": q.here, "there": q.there} {
		tracer, err := trace.New(t.Context(), trace.Config{Address: collected.Address(), Insecure: true, Service: name, Log: slog.New(slog.DiscardHandler), Beat: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tracer.Close)
		l.p.cfg.Trace = tracer
	}
	open := func(traced bool) {
		ctx, span := t.Context(), (*trace.Span)(nil)
		if traced {
			ctx, span = q.here.p.cfg.Trace.Start(ctx, trace.KindServer, "get pods")
		}
		conn, err := q.here.open(ctx, "a", targetAPI)
		if err != nil {
			t.Fatal(err)
		}
		span.End()
		_ = conn.Close()
		_ = (<-q.tunnels).Close()
	}
	open(false) // a tunnel that nobody waits for is of no interest
	open(true)
	q.here.p.cfg.Trace.Close()
	q.there.p.cfg.Trace.Close()

	spans := map[string]collector.Span{}
	for _, s := range collected.Spans() {
		spans[s.Resource["service.name"]+": "+s.Name] = s
	}
	request, hop, there := spans["here: get pods"], spans["here: ask the principal that has the agent"], spans["there: open a tunnel for another principal"]
	if len(collected.Spans()) != 3 || hop.Parent != request.ID || there.Parent != hop.ID || there.Trace != request.Trace {
		t.Errorf("%+v", spans)
	}
	if hop.Attributes[trace.Principal] != "there" || there.Attributes[trace.Agent] != "a" {
		t.Errorf("%+v", spans)
	}
}
