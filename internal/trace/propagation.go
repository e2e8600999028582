package trace

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Header is the header of W3C Trace Context. It names the span that a request belongs to, and has no other data.
const Header = "Traceparent"

// maxHeader bounds the header. Later versions may be longer than the 55 bytes of the current one.
const maxHeader = 128

// SanitizeHeaders removes all trace headers of a request except a valid Header. The others have free text of the
// sender's systems, which may not be meant for the receiver.
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

// WithRemoteParent returns a context whose spans belong to the span that a Header names, if it is valid.
func (t *Tracer) WithRemoteParent(ctx context.Context, header string) context.Context {
	if t == nil || header == "" {
		return ctx
	}
	return extract(ctx, header)
}

// TraceParent returns the Header that names the span, or "".
func (s *Span) TraceParent() string {
	if s == nil {
		return ""
	}
	return format(s.span.SpanContext())
}

// Inject sets the Header of a request, if there is a span.
func (s *Span) Inject(header http.Header) {
	if text := s.TraceParent(); text != "" {
		header[Header] = []string{text}
	}
}

func canonical(header string) string {
	return format(oteltrace.SpanContextFromContext(extract(context.Background(), header)))
}

func extract(ctx context.Context, header string) context.Context {
	if len(header) > maxHeader {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": header})
}

func format(span oteltrace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(oteltrace.ContextWithSpanContext(context.Background(), span.WithTraceState(oteltrace.TraceState{})), carrier)
	return carrier["traceparent"]
}
