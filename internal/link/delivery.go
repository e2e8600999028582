package link

import (
	"context"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// deliveries trace what is sent until the other side has answered that it is
// written there. Nil: nothing is traced.
type deliveries struct {
	tracer *trace.Tracer
	agent  string // empty: this one

	mu    sync.Mutex
	spans map[delivery]*trace.Span // nil: the end
}

// delivery names an item that was sent in a session.
type delivery struct {
	scope string
	seq   uint64
}

// maxDeliveries bounds what is traced at a time on one connection; of what is sent
// beyond that nobody knows when it arrives.
const maxDeliveries = 1024

func newDeliveries(tracer *trace.Tracer, agent string) *deliveries {
	if tracer == nil {
		return nil
	}
	return &deliveries{tracer: tracer, agent: agent, spans: map[delivery]*trace.Span{}}
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
		item := &delta.Items[i]
		if d.spans == nil || len(d.spans) >= maxDeliveries {
			return
		}
		span := d.tracer.StartItem(context.Background(), trace.Asking, "deliver "+delta.Scope, trace.Item{
			Agent: d.agent, Scope: delta.Scope, Namespace: item.Key.Namespace, Name: item.Key.Name, Version: item.Version.String()})
		span.Text(trace.Namespace, item.Key.Namespace)
		span.Text(trace.Object, item.Key.Name)
		d.spans[delivery{delta.Scope, item.Seq}] = span
	}
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
		key := delivery{ack.Scope, ack.Items[i].Seq}
		span := d.spans[key]
		delete(d.spans, key)
		if code := string(ack.Items[i].Code); code != "" {
			span.Text(trace.Outcome, code)
			span.Fail(code)
		}
		span.End()
	}
}

// end ends what will not be answered any more.
func (d *deliveries) end() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, span := range d.spans {
		span.Fail("the connection ended")
		span.End()
	}
	d.spans = nil
}
