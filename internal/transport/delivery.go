package transport

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// deliveries traces sent items until the peer has acknowledged them. If nil, nothing is traced.
type deliveries struct {
	tracer *trace.Tracer
	agent  string        // empty on an agent
	open   *atomic.Int64 // traced deliveries of all connections

	mu    sync.Mutex
	items map[delivery]sending // nil after the end
}

// delivery names an item that was sent in a session. If the item is sent again, only the last delivery is acknowledged.
type delivery struct {
	scope string
	key   engine.Key
}

type sending struct {
	seq  uint64
	span *trace.Span
}

// Limits of deliveries that are traced at the same time, of one connection and of all together. Deliveries beyond them
// are not traced.
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
		item := &ack.Items[i]
		key := delivery{ack.Scope, item.Key}
		one, known := d.items[key]
		if !known || one.seq != item.Seq {
			continue
		}
		if code := string(item.Code); code != "" {
			one.span.SetString(trace.Outcome, code)
			one.span.Fail(code)
		}
		d.finish(key, one)
	}
}

// end ends the spans of items that will not be acknowledged.
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
