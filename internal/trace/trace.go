// Package trace sends spans to an OpenTelemetry collector.
//
// Without a collector there is no Tracer. A nil Tracer returns nil Spans and nil Steps, whose methods do nothing.
//
// Spans have no content of objects, queries or bodies. Texts are bounded. A collector that is unreachable or slow does not
// block the process.
package trace

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/argocd-agent/argocd-agent/internal/util/text"
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

// Kind is the role of the process in a span.
type Kind = oteltrace.SpanKind

// Kinds of spans.
const (
	KindInternal = oteltrace.SpanKindInternal
	KindServer   = oteltrace.SpanKindServer // of a request from a peer
	KindClient   = oteltrace.SpanKindClient // of a request to a peer
)

// Name sets the agent of this process, which it learns from the hub, for all spans that start later.
func (t *Tracer) Name(agent string) {
	if t != nil {
		name := clip(agent)
		t.agent.Store(&name)
	}
}

// Start starts a span as a child of the span in the context, or as the first one of a trace. The caller must end it.
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

// FromContext returns the span in a context, or nil.
func FromContext(ctx context.Context) *Span {
	s, _ := ctx.Value(spanKey{}).(*Span)
	return s
}

// StartChild starts a child of the span in the context. If the context has none, it returns nil.
func StartChild(ctx context.Context, kind Kind, name string) (context.Context, *Span) {
	s := FromContext(ctx)
	if s == nil {
		return ctx, nil
	}
	return s.tracer.start(ctx, kind, name, time.Now())
}

// Span is an operation with a duration. It is safe for concurrent use. On nil, its methods do nothing.
type Span struct {
	tracer *Tracer
	span   oteltrace.Span
	began  time.Time
}

// NewContext returns a context with the span.
func (s *Span) NewContext(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(oteltrace.ContextWithSpan(ctx, s.span), spanKey{}, s)
}

// SetString sets an attribute, unless the value is empty.
func (s *Span) SetString(key, value string) {
	if s != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, clip(value)))
	}
}

// SetInt sets an attribute.
func (s *Span) SetInt(key string, value int) {
	if s != nil {
		s.span.SetAttributes(attribute.Int(key, value))
	}
}

// Elapsed sets an attribute to the milliseconds since the start.
func (s *Span) Elapsed(key string) {
	if s != nil {
		s.SetInt(key, int(time.Since(s.began).Milliseconds()))
	}
}

// Event adds an event with the current time.
func (s *Span) Event(name string) {
	if s != nil {
		s.span.AddEvent(clip(name))
	}
}

// Fail sets the status to failed, with a short reason.
func (s *Span) Fail(why string) {
	if s != nil {
		s.span.SetStatus(codes.Error, clip(why))
	}
}

// End ends the span. Only the first call counts.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

func (s *Span) endAt(at time.Time) { s.span.End(oteltrace.WithTimestamp(at)) }

// clip bounds a text and makes it valid UTF-8. Invalid UTF-8 would fail the whole batch.
func clip(s string) string { return text.Truncate(s, maxTextLen) }
