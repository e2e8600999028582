package resource

import (
	"cmp"
	"context"
	"net/http"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// A request is one span here and one on the other side, however long it streams. They say what is asked for, of whom,
// and what came of it. Whatever is in a query, a header, a body or behind a proxied path stays out of them.

// traced begins the span of a request, within that of whoever asks. Nil: nothing is traced.
func traced(ctx context.Context, tracer *trace.Tracer, r *http.Request, q *Request) *trace.Span {
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

// answered ends it. Code 0: whoever asked went away.
func answered(span *trace.Span, code int) {
	switch {
	case span == nil:
		return
	case code == 0:
		span.Fail("the caller went away before there was an answer")
	case code >= http.StatusInternalServerError:
		span.Fail(http.StatusText(code))
	}
	if code > 0 {
		span.SetInt(trace.StatusCode, code)
	}
	span.End()
}
