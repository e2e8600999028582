package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
)

func TestPool_CanceledOpenLeavesNoRequest(t *testing.T) {
	var running sync.WaitGroup
	var counters Counters
	requested := 0
	ctx, cancel := context.WithCancel(t.Context())
	p := NewPool(Config{Limits: Limits{Standby: -1}.WithDefaults(), Counters: &counters, Refuse: func(string) {},
		Log: func(string, error) *slog.Logger { return slog.New(slog.DiscardHandler) }, Running: &running}, nil,
		Peer{Agent: "agent-a", Closing: make(chan struct{}), Welcomed: func() bool { return true },
			Request: func(string, string) error {
				requested++
				cancel()
				return nil
			}})
	if _, err := p.Open(ctx, "api"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if requested != 1 || len(p.requests) != 0 || len(p.used) != 0 || counters.Open.Load() != 0 {
		t.Errorf("%d requests were sent, %d are left, %d tunnels are used, %d open", requested, len(p.requests), len(p.used), counters.Open.Load())
	}
}
