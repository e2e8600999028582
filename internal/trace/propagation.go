package trace

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Header is where W3C's Trace Context has the span that a request belongs to:
// two numbers and whether it is looked at, 55 characters, and nothing else.
const Header = "Traceparent"

// SanitizeHeaders leaves of what a request says of its trace only a Header that is one. The
// rest is free text, which the sender's other systems put there: of no use
// beyond, and maybe not meant for others.
func SanitizeHeaders(header http.Header) {
	delete(header, "Tracestate")
	delete(header, "Baggage")
	values, ok := header[Header]
	if !ok {
		return
	}
	delete(header, Header)
	if len(values) != 1 {
		return
	}
	if text := canonical(values[0]); text != "" {
		header[Header] = []string{text}
	}
}

// WithRemoteParent puts into a context that what begins in it belongs to a span elsewhere,
// if the text names one.
func (t *Tracer) WithRemoteParent(ctx context.Context, header string) context.Context {
	if t == nil || header == "" {
		return ctx
	}
	return remote(ctx, header)
}

// TraceParent is the text that names the span to others; empty: there is none.
func (s *Span) TraceParent() string {
	if s == nil {
		return ""
	}
	return written(s.span.SpanContext())
}

// Inject writes into a request which span it belongs to, if there is one.
func (s *Span) Inject(header http.Header) {
	if text := s.TraceParent(); text != "" {
		header[Header] = []string{text}
	}
}

func canonical(header string) string {
	return written(oteltrace.SpanContextFromContext(remote(context.Background(), header)))
}

// longestHeader bounds what is looked at: later versions of the header may be
// longer than 55, and begin like it.
const longestHeader = 128

func remote(ctx context.Context, header string) context.Context {
	if len(header) > longestHeader {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": header})
}

func written(span oteltrace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(oteltrace.ContextWithSpanContext(context.Background(), span.WithTraceState(oteltrace.TraceState{})), carrier)
	return carrier["traceparent"]
}
