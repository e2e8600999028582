package kube

import (
	"context"
	"errors"
	"log/slog"
	"testing"

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
