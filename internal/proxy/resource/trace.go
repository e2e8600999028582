package resource

import (
	"cmp"
	"context"
	"net/http"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// startSpan starts the span of a request, as a child of the caller's span. The span has no content of queries, headers,
// bodies and proxied paths. It returns nil if there is no tracer.
func startSpan(ctx context.Context, tracer *trace.Tracer, r *http.Request, q *Request) *trace.Span {
	if tracer == nil {
		return nil
	}
	what := "document"
	if q.Verb != "" {
		what = q.Verb + " " + q.Resource
	}
	if q.Subresource != "" {
		what += "/" + q.Subresource
	}
	_, span := tracer.Start(tracer.WithRemoteParent(ctx, r.Header.Get(trace.Header)), trace.KindServer, what)
	span.SetString(trace.Method, r.Method)
	span.SetString(trace.Group, q.Group)
	span.SetString(trace.Resource, q.Resource)
	span.SetString(trace.Subresource, q.Subresource)
	span.SetString(trace.Namespace, q.Namespace)
	span.SetString(trace.Object, cmp.Or(q.Name, q.Selected))
	return span
}

// endSpan ends the span of a request. Code 0 means that the caller disconnected.
func endSpan(span *trace.Span, code int) {
	switch {
	case span == nil:
		return
	case code == 0:
		span.Fail("the caller disconnected before the response")
	case code >= http.StatusInternalServerError:
		span.Fail(http.StatusText(code))
	}
	if code > 0 {
		span.SetInt(trace.StatusCode, code)
	}
	span.End()
}
