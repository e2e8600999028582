package fleet

import (
	"log/slog"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
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
	return NewStatusWriter(StatusWriterConfig{Registry: registry, Replicas: NewReplicas(nil, registry, "argocd", "here", "", log), Log: log,
		Hello: func(string, engine.Epoch) (Hello, bool) { return Hello{}, false }})
}
