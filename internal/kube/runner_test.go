package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestPostFromPeer_EndsWithTheConnection(t *testing.T) {
	h := NewRunner(nil, RunnerConfig{Log: slog.New(slog.DiscardHandler)}) // not running
	closing := make(chan struct{})
	close(closing)
	if err := h.PostFromPeer(t.Context(), closing, reconcile.Tick{}); !errors.Is(err, errDone) {
		t.Errorf("connection closed: %v", err)
	}
	ended, end := context.WithCancelCause(t.Context())
	why := errors.New("the end")
	end(why)
	if err := h.PostFromPeer(ended, make(chan struct{}), reconcile.Tick{}); !errors.Is(err, why) {
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

func TestPostFromPeer_ConnectionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewRunner(nil, RunnerConfig{Reconciler: reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: "argocd"}), Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		var order []string
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = h.Run(ctx, Handlers{Applied: func(in reconcile.Input) {
				order = append(order, in.(reconcile.FromPeer).Agent)
				time.Sleep(time.Millisecond) // until all connections wait again
			}})
		}()
		busy := make(chan struct{})
		go func() { _ = h.Do(ctx, func(*reconcile.Reconciler) { <-busy }) }()
		synctest.Wait()
		post := func(agent string, count int) {
			for range count {
				_ = h.PostFromPeer(ctx, nil, reconcile.FromPeer{Agent: agent})
			}
		}
		go post("flood", 2*inboxSize)
		synctest.Wait() // as much of it as possible waits
		go post("w1", 1)
		synctest.Wait()
		go post("w2", 2)
		synctest.Wait()
		close(busy)
		time.Sleep(time.Minute)
		cancel()
		<-ended
		if first := order[:3]; len(order) != 2*inboxSize+3 || !slices.Equal(first, []string{"flood", "w1", "w2"}) || !slices.Contains(order[3:5], "w2") {
			t.Errorf("%d inputs, first %q", len(order), order[:5])
		}
	})
}

// The registration of an agent is posted before the Hello of its connection, which the core would ignore otherwise.
func TestPostFromPeer_DoesNotOvertakeEarlierInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewRunner(nil, RunnerConfig{Reconciler: reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: "argocd"}), Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		var order []string
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = h.Run(ctx, Handlers{Applied: func(in reconcile.Input) { order = append(order, fmt.Sprintf("%T", in)) }})
		}()
		for range 50 {
			busy := make(chan struct{})
			go func() { _ = h.Do(ctx, func(*reconcile.Reconciler) { <-busy }) }()
			synctest.Wait()
			go func() {
				_ = h.Post(ctx, reconcile.Unregister{Agent: "w1"})
				_ = h.PostFromPeer(ctx, nil, reconcile.FromPeer{Agent: "w1"})
			}()
			synctest.Wait()
			close(busy)
			synctest.Wait()
		}
		cancel()
		<-ended
		for i, want := range slices.Repeat([]string{"reconcile.Unregister", "reconcile.FromPeer"}, 50) {
			if order[i] != want {
				t.Fatalf("input %d is %s, want %s", i, order[i], want)
			}
		}
	})
}
