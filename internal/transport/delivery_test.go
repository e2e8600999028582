package transport

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/lab/collector"
)

// During a write outage an agent acknowledges only the last delivery of an item. Earlier deliveries must not use up the
// limit for the rest of the session, which may last for months.
func TestDeliveries_TraceAnItemThatIsSentAgain(t *testing.T) {
	collected, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	must(t, err)
	defer collected.Close()
	tracer, err := trace.New(t.Context(), trace.Config{Address: collected.Address(), Insecure: true, Service: "hub", Log: slog.New(slog.DiscardHandler), BatchTimeout: time.Millisecond})
	must(t, err)
	defer tracer.Close()
	var open atomic.Int64
	d := newDeliveries(tracer, "agent-a", &open)
	seq := uint64(0)
	send := func(name string) engine.AckItem {
		seq++
		d.sent(engine.Delta{Scope: "application", Items: []engine.DeltaItem{{Seq: seq, Key: engine.Key{Name: name}}}})
		return engine.AckItem{Seq: seq, Key: engine.Key{Name: name}}
	}
	early, last := send("a"), engine.AckItem{}
	for range 2 * maxDeliveries {
		last = send("a")
	}
	d.received(engine.Ack{Scope: "application", Items: []engine.AckItem{early}})
	if open.Load() != 1 {
		t.Errorf("an earlier delivery was acknowledged: %d are open", open.Load())
	}
	d.received(engine.Ack{Scope: "application", Items: []engine.AckItem{last, last}})
	if open.Load() != 0 || len(d.items) != 0 {
		t.Errorf("all items are acknowledged, and %d are open", open.Load())
	}

	// The limit of all connections holds.
	open.Store(maxAllDeliveries - 1)
	send("b")
	send("c")
	d.end()
	d.end()
	if send("d"); open.Load() != maxAllDeliveries-1 {
		t.Errorf("after the end %d are open", open.Load())
	}
	tracer.Close()
	count := map[string]int{}
	for _, span := range collected.Spans() {
		count[span.Attributes[trace.Object]+": "+span.Attributes[trace.Outcome]]++
	}
	if count["a: sent again"] != 2*maxDeliveries || count["a: "] != 1 || count["b: "] != 1 || len(count) != 3 {
		t.Errorf("%v", count)
	}
}
