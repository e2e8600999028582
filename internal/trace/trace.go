// Package trace sends spans to an OpenTelemetry collector.
//
// Without a collector there is no Tracer. A nil Tracer returns nil Spans and nil Steps, whose methods do nothing.
//
// Spans have no content of objects, queries or bodies. Texts are bounded. A collector that is unreachable or slow does not
// block the process.
package trace

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Attributes. Names without prefix argocd_agent follow the conventions of OpenTelemetry.
const (
	Agent       = "argocd_agent.agent"
	Epoch       = "argocd_agent.epoch" // of a session, the same on both sides
	Scope       = "argocd_agent.scope"
	Version     = "argocd_agent.version" // of an item, the same on both sides
	Reason      = "argocd_agent.reason"
	Outcome     = "argocd_agent.outcome"
	Attempt     = "argocd_agent.attempt"
	QueueWait   = "argocd_agent.queue_wait_ms" // of a write
	Application = "argocd_agent.application"
	RefusedBy   = "argocd_agent.refused_by" // the setting that denied it
	FromCache   = "argocd_agent.from_cache"
	Principal   = "argocd_agent.principal" // that has the agent's session

	Method      = "http.request.method"
	StatusCode  = "http.response.status_code"
	PeerAddress = "network.peer.address"
	Server      = "server.address"

	Group       = "k8s.resource.group"
	Resource    = "k8s.resource.name" // plural, as in paths
	Subresource = "k8s.resource.subresource"
	Namespace   = "k8s.namespace.name"
	Object      = "k8s.object.name"
)

// maxTextLen bounds texts. Names in Kubernetes have at most 253 bytes.
const maxTextLen = 256

// Tracer starts spans. If nil, nothing is traced.
type Tracer struct {
	tracer oteltrace.Tracer
	agent  atomic.Pointer[string]
	export *export
}

// Kind is the part that a span's program has in it.
type Kind = oteltrace.SpanKind

// The kinds.
const (
	KindInternal = oteltrace.SpanKindInternal
	KindServer   = oteltrace.SpanKindServer // of a request from a peer
	KindClient   = oteltrace.SpanKindClient // of a request to a peer
)

// Name says which agent this is: an agent learns it from the hub. All spans that
// begin from now on say so.
func (t *Tracer) Name(agent string) {
	if t != nil {
		name := clip(agent)
		t.agent.Store(&name)
	}
}

// Start begins a span: within the one that the context has, else as the first of
// a trace. End it.
func (t *Tracer) Start(ctx context.Context, kind Kind, name string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(ctx, kind, name, time.Now())
}

func (t *Tracer) start(ctx context.Context, kind Kind, name string, at time.Time) (context.Context, *Span) {
	ctx, inner := t.tracer.Start(ctx, clip(name), oteltrace.WithSpanKind(kind), oteltrace.WithTimestamp(at))
	s := &Span{tracer: t, span: inner, began: at}
	if agent := t.agent.Load(); agent != nil {
		s.SetString(Agent, *agent)
	}
	return s.NewContext(ctx), s
}

type spanKey struct{}

// FromContext is the span that a context has; nil: none.
func FromContext(ctx context.Context) *Span {
	s, _ := ctx.Value(spanKey{}).(*Span)
	return s
}

// StartChild begins a span within the one that the context has. There is none where
// that has none.
func StartChild(ctx context.Context, kind Kind, name string) (context.Context, *Span) {
	s := FromContext(ctx)
	if s == nil {
		return ctx, nil
	}
	return s.tracer.start(ctx, kind, name, time.Now())
}

// Span is something that takes time. Its methods may be called from anywhere; on
// nil they do nothing.
type Span struct {
	tracer *Tracer
	span   oteltrace.Span
	began  time.Time
}

// NewContext puts the span into a context.
func (s *Span) NewContext(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(oteltrace.ContextWithSpan(ctx, s.span), spanKey{}, s)
}

// SetString notes a text, if there is one.
func (s *Span) SetString(key, value string) {
	if s != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, clip(value)))
	}
}

// SetInt notes a number.
func (s *Span) SetInt(key string, value int) {
	if s != nil {
		s.span.SetAttributes(attribute.Int(key, value))
	}
}

// Elapsed notes how many milliseconds have passed since the beginning.
func (s *Span) Elapsed(key string) {
	if s != nil {
		s.span.SetAttributes(attribute.Int64(key, time.Since(s.began).Milliseconds()))
	}
}

// Event notes that something has happened by now.
func (s *Span) Event(name string) {
	if s != nil {
		s.span.AddEvent(clip(name))
	}
}

// Fail notes that it did not work, and in a few words why.
func (s *Span) Fail(why string) {
	if s != nil {
		s.span.SetStatus(codes.Error, clip(why))
	}
}

// End ends the span. A second time does nothing.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

func (s *Span) endAt(at time.Time) { s.span.End(oteltrace.WithTimestamp(at)) }

// clip bounds a text and makes it valid UTF-8. Invalid UTF-8 would fail the whole batch.
func clip(text string) string {
	if len(text) > maxTextLen {
		text = text[:maxTextLen]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
