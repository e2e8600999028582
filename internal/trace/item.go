package trace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"
)

// Item is one version of an item.
type Item struct {
	Agent           string // if empty, the agent of this process
	Scope           string // if empty, the span is not about an item
	Namespace, Name string // of the key
	Version         string
}

// StartItem starts a span about an item. Both sides compute the same trace ID for it, so that its spans form one trace,
// which is sampled on both sides or on neither.
func (t *Tracer) StartItem(ctx context.Context, kind Kind, name string, item Item) *Span {
	if t == nil {
		return nil
	}
	if agent := t.agent.Load(); agent != nil && item.Agent == "" {
		item.Agent = *agent
	}
	if item.Scope != "" {
		ctx = context.WithValue(ctx, traceKey{}, item.trace())
	}
	_, span := t.start(ctx, kind, name, time.Now())
	span.SetString(Agent, item.Agent)
	span.SetString(Scope, item.Scope)
	span.SetString(Version, item.Version)
	return span
}

func (i Item) trace() oteltrace.TraceID {
	hash := sha256.New()
	for _, part := range []string{"argocd-agent item 1", i.Agent, i.Scope, i.Namespace, i.Name, i.Version} {
		hash.Write([]byte(part))
		hash.Write([]byte{0})
	}
	return oteltrace.TraceID(hash.Sum(nil)[:16])
}

type traceKey struct{}

// idGenerator generates random IDs, unless the context has a trace ID.
type idGenerator struct{}

func (n idGenerator) NewIDs(ctx context.Context) (oteltrace.TraceID, oteltrace.SpanID) {
	id, ok := ctx.Value(traceKey{}).(oteltrace.TraceID)
	for !ok || !id.IsValid() {
		_, _ = rand.Read(id[:])
		ok = true
	}
	return id, n.NewSpanID(ctx, id)
}

func (idGenerator) NewSpanID(context.Context, oteltrace.TraceID) (id oteltrace.SpanID) {
	for !id.IsValid() {
		_, _ = rand.Read(id[:])
	}
	return id
}
