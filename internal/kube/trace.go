package kube

import (
	"context"

	"github.com/argocd-agent/argocd-agent/internal/node"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// traced begins the span of a write: it waits for its turn from here on. Spans
// say what is written and why, and never what is in it.
func (w *Writer) traced(ctx context.Context, write node.Write) *trace.Span {
	if w.trace == nil {
		return nil
	}
	from := write.Origin
	span := w.trace.StartItem(ctx, trace.Inside, write.Verb.String()+" "+write.Ref.Resource.Plural, trace.Item{
		Agent: write.Agent, Scope: from.Scope, Namespace: from.Key.Namespace, Name: from.Key.Name, Version: from.Version.String()})
	span.Text(trace.Group, write.Ref.Resource.Group)
	span.Text(trace.Resource, write.Ref.Resource.Plural)
	span.Text(trace.Namespace, write.Ref.Namespace)
	span.Text(trace.Object, write.Ref.Name)
	span.Text(trace.Why, write.Why)
	span.Number(trace.Attempt, write.Attempt)
	return span
}

// told ends it with what became of the write. Messages of an API server quote
// what they refuse: the log has them.
func told(span *trace.Span, f *node.Failure) {
	switch {
	case f == nil:
		span.Text(trace.Outcome, "written")
	case f.Stale:
		span.Text(trace.Outcome, "stale: to be looked at again")
	default:
		span.Text(trace.Outcome, string(f.Code))
		span.Fail(string(f.Code))
	}
	span.End()
}
