package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/lab/collector"
)

func TestWrite_SpanHasQueueWaitAndResult(t *testing.T) {
	collected, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer collected.Close()
	tracer, err := trace.New(t.Context(), trace.Config{Address: collected.Address(), Insecure: true, Service: "test", Log: slog.New(slog.DiscardHandler), BatchTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	var marks []string
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		marks = append(marks, r.Header.Get("Traceparent"))
		if r.Method == http.MethodPut {
			refuse(w, http.StatusUnprocessableEntity)
			return
		}
		fmt.Fprint(w, project("secret-content", "2"))
	})
	w := NewWriter(c, func(context.Context, reconcile.Input) error { return nil }, NamespacePolicy{}, 1, unhurried, slog.New(slog.DiscardHandler))
	w.trace = tracer
	o := parsed(t, project("a", "1"))
	ref := refTo(o)
	w.Write(t.Context(), reconcile.Write{Verb: reconcile.Create, Ref: ref, Object: o, Reason: "apply x", Attempt: 1, Agent: "cluster-1",
		Origin: reconcile.Origin{Scope: "x", Key: engine.Key{Name: "a"}, Version: engine.VersionOf([]byte("v"))}})
	w.Wait()
	w.Write(t.Context(), reconcile.Write{Verb: reconcile.Update, Ref: ref, Object: o, Reason: "apply x", Agent: "cluster-1", Attempt: 2})
	w.Wait()
	tracer.Close()

	spans := map[string]collector.Span{}
	for _, s := range collected.Spans() {
		spans[s.Name] = s
	}
	create, post, update, put := spans["create appprojects"], spans["POST"], spans["update appprojects"], spans["PUT"]
	if len(spans) != 4 || post.Parent != create.ID || put.Parent != update.ID || create.Trace == update.Trace {
		t.Fatalf("%+v", spans)
	}
	for key, want := range map[string]string{trace.Agent: "cluster-1", trace.Object: ref.Name, trace.Namespace: ref.Namespace, trace.Reason: "apply x",
		trace.Attempt: "1", trace.Outcome: "written", trace.Version: engine.VersionOf([]byte("v")).String()} {
		if create.Attributes[key] != want {
			t.Errorf("%s is %q, not %q", key, create.Attributes[key], want)
		}
	}
	if _, ok := create.Attributes[trace.QueueWait]; !ok || create.Failed || post.Attributes[trace.StatusCode] != "200" {
		t.Errorf("%+v %+v", create, post)
	}
	if !update.Failed || update.Attributes[trace.Outcome] != string(engine.Invalid) || put.Attributes[trace.StatusCode] != "422" || update.Attributes[trace.Attempt] != "2" {
		t.Errorf("%+v %+v", update, put)
	}
	if len(marks) != 2 || !strings.Contains(marks[0], post.ID) {
		t.Errorf("the API server does not get the span: %q", marks)
	}
}
