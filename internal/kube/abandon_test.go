package kube

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// A write outage may outlast sessions. Their queued tasks are answered and never run.
func TestAbandon_CancelsQueuedTasksOfTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, outage = 50, 2 * time.Minute
		ends := time.Now().Add(outage)
		s := &server{answer: func(*http.Request) (int, string, string) {
			if time.Now().Before(ends) {
				return 429, "", "later"
			}
			return 200, "", ""
		}}
		c, err := NewClient(&rest.Config{Host: "http://spoke", Transport: s})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		answers := map[uint64]*reconcile.Failure{}
		w := NewWriter(c, func(_ context.Context, in reconcile.Input) error {
			mu.Lock()
			defer mu.Unlock()
			wrote := in.(reconcile.WriteResult)
			if _, twice := answers[wrote.ID]; twice {
				t.Errorf("write %d was answered twice", wrote.ID)
			}
			answers[wrote.ID] = wrote.Failure
			return nil
		}, NamespacePolicy{}, 1, unhurried, slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)))
		ask := func(id uint64, agent string, whileOpen bool) {
			object := parsed(t, project(fmt.Sprintf("p-%d", id), "1"))
			w.Write(t.Context(), reconcile.Write{ID: id, Verb: reconcile.Create, Ref: refTo(object), Object: object, Agent: agent, WhileOpen: whileOpen})
		}
		for i := range uint64(each) {
			ask(3*i, "w1", true)
			ask(3*i+1, "w1", false) // of no session
			ask(3*i+2, "w2", true)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		before := len(answers)
		mu.Unlock()
		began := time.Now()
		w.Abandon(t.Context(), "w1", false)
		synctest.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		over := 0
		mu.Lock()
		for id, f := range answers {
			if f != nil && f.Message == "the session ended" {
				over++
				if id%3 != 0 || f.Code != engine.Unavailable || f.Stale {
					t.Errorf("write %d: %+v", id, f)
				}
			}
		}
		if len(answers) != before+over || over < each-before {
			t.Errorf("%d answers before, %d after, %d given up", before, len(answers), over)
		}
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		w.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(answers) != 3*each {
			t.Errorf("%d of %d were answered", len(answers), 3*each)
		}
		for id, f := range answers {
			if id%3 == 0 && f == nil {
				t.Errorf("write %d was done after its session", id)
			}
		}
		if load := w.Stats(); load.Waiting != 0 {
			t.Errorf("%+v", load)
		}
	})
}

// A registration that ends takes along what waits for its agent, whether its
// session has asked for that or the hub itself; what others wait for stays.
func TestAbandon_AllStartsNoTaskOfTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &server{answer: func(*http.Request) (int, string, string) {
			<-release
			return 200, "", ""
		}}
		c, err := NewClient(&rest.Config{Host: "http://hub", Transport: s})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		done := map[uint64]bool{}
		w := NewWriter(c, func(_ context.Context, in reconcile.Input) error {
			mu.Lock()
			defer mu.Unlock()
			done[in.(reconcile.WriteResult).ID] = in.(reconcile.WriteResult).Failure == nil
			return nil
		}, NamespacePolicy{}, 1, unhurried, slog.New(slog.DiscardHandler))
		for id, write := range []reconcile.Write{{Agent: "w1", WhileOpen: true}, {Agent: "w1", WhileOpen: true}, {Agent: "w1"}, {Agent: "w2"}, {}} {
			write.ID, write.Object = uint64(id), parsed(t, project(fmt.Sprintf("p-%d", id), "1"))
			write.Ref = refTo(write.Object)
			w.Write(t.Context(), write)
			synctest.Wait()
		}
		w.Abandon(t.Context(), "w1", true)
		close(release)
		w.Wait()
		for id, want := range map[uint64]bool{0: true, 1: false, 2: false, 3: true, 4: true} { // the first was under way
			if done[id] != want {
				t.Errorf("write %d was done: %v, want %v", id, done[id], want)
			}
		}
		if len(done) != 5 {
			t.Errorf("%d of 5 were answered", len(done))
		}
	})
}
