package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Of the proofs that two sides are equal, which come each minute from each agent,
// only the first of all scopes in a session is news.
func TestInSyncKnown_FirstOfSession(t *testing.T) {
	r := newTestStatusWriter(NewRegistry(RegistryConfig{}))
	status := func(times ...engine.Time) engine.Status {
		s := engine.Status{Scopes: []engine.ScopeStatus{{Name: kind.CommandScope}}}
		for _, at := range times {
			s.Scopes = append(s.Scopes, engine.ScopeStatus{InSyncAt: at})
		}
		return s
	}
	hello := engine.Event{Type: engine.Opened, Hello: &engine.Hello{}}
	for _, step := range []struct {
		what   string
		fact   engine.Event
		status engine.Status
		known  bool
	}{
		{"no session", engine.Event{}, engine.Status{}, true},
		{"nothing is compared yet", hello, status(0, 0), false},
		{"one of two scopes is", engine.Event{Type: engine.InSync}, status(5, 0), false},
		{"both are", engine.Event{Type: engine.InSync}, status(5, 6), true},
		{"it is gone", engine.Event{Type: engine.Closed}, status(5, 6), true},
		{"it is back", hello, status(0, 0), false},
		{"one of two scopes is, again", engine.Event{Type: engine.InSync}, status(0, 7), false},
		{"both are, again", engine.Event{Type: engine.InSync}, status(8, 7), true},
	} {
		r.HandleEvent("w1", step.fact, step.status)
		if got := r.InSyncKnown("w1"); got != step.known {
			t.Errorf("%s: %v", step.what, got)
		}
	}
}

func newTestStatusWriter(registry *Registry) *StatusWriter {
	log := slog.New(slog.DiscardHandler)
	return NewStatusWriter(StatusWriterConfig{Registry: registry, Replicas: NewReplicas(nil, registry, "argocd", "here", "", log), Upgrades: NewUpgrades(registry, nil), Log: log,
		Hello: func(string, engine.Epoch) (Hello, bool) { return Hello{}, false }})
}

// When both sides were last in sync is written every minute, and less often with many agents.
func TestStatusWriter_WritesAgesEveryMinute(t *testing.T) {
	for agents, want := range map[int]time.Duration{1: time.Minute, 600: time.Minute, 1000: 100 * time.Second, 10_000: 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			d := newTestRegistry(t)
			d.see(agent("w1", 1, "managed"))
			r := newTestStatusWriter(d.Registry)
			defer func() { // the queue has a goroutine
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				_ = r.queue.Run(ended)
			}()
			r.cfg.Do = func(context.Context, func(*reconcile.Reconciler)) error { return nil }
			session := openSession(1)
			r.sessions["w1"] = *session
			_, written, due := r.due("w1")
			if !due {
				t.Fatal("a new session is not written")
			}
			d.see(agent("w1", 2, "managed", func(a *v1alpha1.Agent) { a.Status = written }))
			for i := 1; i < agents; i++ {
				d.see(agent(fmt.Sprint("other-", i), 3, "managed"))
			}
			if _, err := r.pollCounts(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.wrote["w1"] = time.Now()
			session.engine.Scopes[0].InSyncAt, session.engine.Scopes[1].InSyncAt = 2_000_000, 2_000_000
			time.Sleep(want - time.Second)
			if _, _, due := r.due("w1"); due {
				t.Errorf("%d agents: an age is written before %s", agents, want)
			}
			time.Sleep(2 * time.Second)
			if _, s, due := r.due("w1"); !due || s.LastConfirmed.Unix() != 2000 {
				t.Errorf("%d agents: after %s, in sync at %v, due %v", agents, want, s.LastConfirmed, due)
			}
		})
	}
}
