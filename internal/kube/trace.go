package kube

import (
	"context"

	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// startSpan starts the span of a write when it is queued. Spans do not contain object content.
func (w *Writer) startSpan(ctx context.Context, write reconcile.Write) *trace.Span {
	if w.trace == nil {
		return nil
	}
	from := write.Origin
	span := w.trace.StartItem(ctx, trace.KindInternal, write.Verb.String()+" "+write.Ref.Resource.Plural, trace.Item{
		Agent: write.Agent, Scope: from.Scope, Namespace: from.Key.Namespace, Name: from.Key.Name, Version: from.Version.String()})
	span.SetString(trace.Group, write.Ref.Resource.Group)
	span.SetString(trace.Resource, write.Ref.Resource.Plural)
	span.SetString(trace.Namespace, write.Ref.Namespace)
	span.SetString(trace.Object, write.Ref.Name)
	span.SetString(trace.Reason, write.Reason)
	span.SetInt(trace.Attempt, write.Attempt)
	return span
}

// endSpan ends the span with the result of the write. It leaves out error messages, because they quote object content.
func endSpan(span *trace.Span, f *reconcile.Failure) {
	switch {
	case f == nil:
		span.SetString(trace.Outcome, "written")
	case f.Stale:
		span.SetString(trace.Outcome, "stale")
	default:
		span.SetString(trace.Outcome, string(f.Code))
		span.Fail(string(f.Code))
	}
	span.End()
}
