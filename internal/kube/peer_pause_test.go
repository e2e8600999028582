package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestPostFromPeer_SlowInputsOfAnAgentPauseIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewRunner(nil, RunnerConfig{Reconciler: reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: "argocd"}), PerAgent: AgentLimits{Parallel: 1}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = h.Run(ctx, Handlers{Applied: func(in reconcile.Input) {
				if in.(reconcile.FromPeer).Agent == "flood" {
					time.Sleep(100 * time.Millisecond)
				}
			}})
		}()
		began := time.Now()
		post := func(agent string) time.Duration {
			if err := h.PostFromPeer(ctx, nil, reconcile.FromPeer{Agent: agent}); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			return time.Since(began)
		}
		for i, want := range []time.Duration{0, 100 * time.Millisecond, 900 * time.Millisecond, time.Second, 1800 * time.Millisecond} {
			if got := post("flood"); got != want {
				t.Errorf("input %d of the flood is taken after %v, want %v", i, got, want)
			}
		}
		if got := post("w1"); got != 1900*time.Millisecond { // when the core has processed the last one
			t.Errorf("another agent's input is taken after %v", got)
		}
		closing := make(chan struct{})
		close(closing)
		if err := h.PostFromPeer(ctx, closing, reconcile.FromPeer{Agent: "flood"}); !errors.Is(err, errDone) {
			t.Errorf("connection closed during the pause: %v", err)
		}
		cancel()
		<-ended
	})
}

func TestPeerPauses_AreBounded(t *testing.T) {
	var p peerPauses
	now := time.Unix(1000, 0)
	p.took("w1", minPeerTime-1, now)
	if left := p.left("w1", now); left > 0 {
		t.Errorf("a pause of %v after a short input", left)
	}
	for i := range 2 * maxPeerPauses {
		p.took(fmt.Sprint(i), time.Second, now.Add(time.Duration(i)*time.Minute))
	}
	if len(p.until) > maxPeerPauses {
		t.Errorf("%d pauses are stored", len(p.until))
	}
}
