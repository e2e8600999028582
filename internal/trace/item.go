package trace

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Item is one version of something that is the same on both sides.
type Item struct {
	Agent           string // empty: this one
	Scope           string // empty: it is no item
	Namespace, Name string // of its key
	Version         string
}

// StartItem begins a span about an item. Both sides compute the same trace for it,
// and so see it as one, and sample it or not, without a word between them.
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

// idGenerator are those of spans and traces: by chance, unless the context has one.
type idGenerator struct{}

var _ sdktrace.IDGenerator = idGenerator{}

func (n idGenerator) NewIDs(ctx context.Context) (oteltrace.TraceID, oteltrace.SpanID) {
	id, ok := ctx.Value(traceKey{}).(oteltrace.TraceID)
	for !ok || !id.IsValid() {
		randomBytes(id[:8])
		randomBytes(id[8:])
		ok = true
	}
	return id, n.NewSpanID(ctx, id)
}

func (idGenerator) NewSpanID(context.Context, oteltrace.TraceID) (id oteltrace.SpanID) {
	for !id.IsValid() {
		randomBytes(id[:])
	}
	return id
}

func randomBytes(b []byte) {
	n := rand.Uint64() //nolint:gosec // to tell spans apart, not to hide anything
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
}
