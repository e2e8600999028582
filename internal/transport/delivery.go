package transport

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// deliveries trace what is sent until the other side has answered that it is
// written there. Nil: nothing is traced.
type deliveries struct {
	tracer *trace.Tracer
	agent  string        // empty: this one
	open   *atomic.Int64 // on all connections

	mu    sync.Mutex
	items map[delivery]sending // nil: the end
}

// delivery names an item that was sent in a session. An item that is sent again is
// another delivery of the same: the earlier one is not answered any more.
type delivery struct {
	scope string
	key   engine.Key
}

type sending struct {
	seq  uint64
	span *trace.Span
}

// What is traced at a time is bounded, on one connection and on all of them
// together; of what is sent beyond that nobody knows when it arrives.
const (
	maxDeliveries    = 1024
	maxAllDeliveries = 8192
)

func newDeliveries(tracer *trace.Tracer, agent string, open *atomic.Int64) *deliveries {
	if tracer == nil {
		return nil
	}
	return &deliveries{tracer: tracer, agent: agent, open: open, items: map[delivery]sending{}}
}

// sent notes what goes out.
func (d *deliveries) sent(m engine.Message) {
	if d == nil {
		return
	}
	delta, ok := m.(engine.Delta)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range delta.Items {
		d.begin(delta.Scope, &delta.Items[i])
	}
}

func (d *deliveries) begin(scope string, item *engine.DeltaItem) {
	key := delivery{scope, item.Key}
	if earlier, again := d.items[key]; again {
		earlier.span.SetString(trace.Outcome, "sent again")
		d.finish(key, earlier)
	}
	if d.items == nil || len(d.items) >= maxDeliveries {
		return
	}
	if d.open.Add(1) > maxAllDeliveries {
		d.open.Add(-1)
		return
	}
	span := d.tracer.StartItem(context.Background(), trace.KindClient, "deliver "+scope, trace.Item{
		Agent: d.agent, Scope: scope, Namespace: item.Key.Namespace, Name: item.Key.Name, Version: item.Version.String()})
	span.SetString(trace.Namespace, item.Key.Namespace)
	span.SetString(trace.Object, item.Key.Name)
	d.items[key] = sending{item.Seq, span}
}

func (d *deliveries) finish(key delivery, one sending) {
	one.span.End()
	delete(d.items, key)
	d.open.Add(-1)
}

// received notes answers.
func (d *deliveries) received(m engine.Message) {
	if d == nil {
		return
	}
	ack, ok := m.(engine.Ack)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range ack.Items {
		answer := &ack.Items[i]
		key := delivery{ack.Scope, answer.Key}
		one, known := d.items[key]
		if !known || one.seq != answer.Seq {
			continue
		}
		if code := string(answer.Code); code != "" {
			one.span.SetString(trace.Outcome, code)
			one.span.Fail(code)
		}
		d.finish(key, one)
	}
}

// end ends what will not be answered any more.
func (d *deliveries) end() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, one := range d.items {
		one.span.Fail("the connection ended")
		d.finish(key, one)
	}
	d.items = nil
}
