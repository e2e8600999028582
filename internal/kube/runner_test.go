package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestPostUntil_EndsWithTheConnection(t *testing.T) {
	h := NewRunner(nil, RunnerConfig{Log: slog.New(slog.DiscardHandler)}) // not running
	for range inboxSize {
		if err := h.Post(t.Context(), reconcile.Tick{}); err != nil {
			t.Fatal(err)
		}
	}
	closing := make(chan struct{})
	close(closing)
	if err := h.PostUntil(t.Context(), closing, reconcile.Tick{}); !errors.Is(err, errDone) {
		t.Errorf("connection closed: %v", err)
	}
	ended, end := context.WithCancelCause(t.Context())
	why := errors.New("the end")
	end(why)
	if err := h.PostUntil(ended, make(chan struct{}), reconcile.Tick{}); !errors.Is(err, why) {
		t.Errorf("program ended: %v", err)
	}
}

func TestRunner_SinksOfTheSameWatchShareIt(t *testing.T) {
	var lists, watches atomic.Int32
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			watches.Add(1)
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`, project("a", "6"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		lists.Add(1)
		fmt.Fprint(w, listBody("5", "", project("a", "5"), project("b", "5")))
	})
	ctx, cancel := context.WithCancel(t.Context())
	h := NewRunner(c, RunnerConfig{Reconciler: reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: "argocd"}), Log: slog.New(slog.DiscardHandler), Jitter: unhurried})
	seen := make(chan string, 10)
	see := func(name string) Sink {
		return ObjectSink(name, func(_ context.Context, o *kind.Object) {
			if o == nil {
				seen <- name + " is missing"
			} else {
				seen <- name + "/" + o.ResourceVersion()
			}
		})
	}
	for _, name := range []string{"a", "b", "c"} {
		h.Watch(Watch{Resource: kind.AppProjects, Namespace: "argocd"}, see(name))
	}
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx, Handlers{}) }()
	for _, want := range []string{"a/5", "b/5", "c is missing", "a/6"} {
		if got := <-seen; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || lists.Load() != 1 || watches.Load() != 1 {
		t.Errorf("%d lists, %d watches, ended with %v", lists.Load(), watches.Load(), err)
	}
}
