package live

import (
	"log/slog"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/lab/collector"
)

func TestForward_IsPartOfTheRequestTrace(t *testing.T) {
	collected, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer collected.Close()
	tracers := map[string]*trace.Tracer{}
	for _, name := range []string{"here", "there"} {
		if tracers[name], err = trace.New(t.Context(), trace.Config{Address: collected.Address(), Insecure: true, Service: name, Log: slog.New(slog.DiscardHandler), BatchTimeout: time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tracers[name].Close)
	}
	q := newPair(t, tracers["here"], tracers["there"])
	open := func(traced bool) {
		ctx, span := t.Context(), (*trace.Span)(nil)
		if traced {
			ctx, span = tracers["here"].Start(ctx, trace.KindServer, "get pods")
		}
		conn, err := q.here.open(ctx, "a", targetAPI)
		if err != nil {
			t.Fatal(err)
		}
		span.End()
		_ = conn.Close()
		_ = (<-q.tunnels).Close()
	}
	open(false) // without a request there is no trace
	open(true)
	tracers["here"].Close()
	tracers["there"].Close()

	spans := map[string]collector.Span{}
	for _, s := range collected.Spans() {
		spans[s.Resource["service.name"]+": "+s.Name] = s
	}
	request, forwarded, there := spans["here: get pods"], spans["here: ask the principal that has the agent"], spans["there: open a tunnel for another principal"]
	if len(collected.Spans()) != 3 || forwarded.Parent != request.ID || there.Parent != forwarded.ID || there.Trace != request.Trace {
		t.Errorf("%+v", spans)
	}
	if forwarded.Attributes[trace.Principal] != "there" || there.Attributes[trace.Agent] != "a" {
		t.Errorf("%+v", spans)
	}
}
