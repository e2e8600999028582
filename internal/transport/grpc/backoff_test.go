package grpc

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestDialer_PausesGrowWithinBounds(t *testing.T) {
	leakCheck(t)
	l, err := Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	must(t, l.Close()) // no server listens there
	ca := newCA(t, "ca")
	ms := func(list ...int) (out []time.Duration) {
		for _, n := range list {
			out = append(out, time.Duration(n)*time.Millisecond)
		}
		return out
	}
	for _, test := range []struct {
		jitter float64
		want   []time.Duration
	}{
		{1, ms(500, 1000, 2000, 4000, 8000, 16000, 30000, 30000)},
		{0.5, ms(275, 525, 1025, 2025, 4025, 8025, 15025, 15025)},
		{0, ms(50, 50, 50, 50, 50, 50, 50, 50)}, // never at once
	} {
		var pauses []time.Duration
		d := newSpoke(spokeConfig{
			Address: l.Addr().String(), TLS: ca.clientTLS("agent-a"), Events: newRecorder(t), Log: (&journal{}).logger(),
			Random: func() float64 { return test.jitter },
			Wait: func(_ context.Context, pause time.Duration) error {
				if pauses = append(pauses, pause); len(pauses) == len(test.want) {
					return errors.New("enough")
				}
				return nil
			},
		})
		must(t, d.Run(t.Context()))
		if !slices.Equal(pauses, test.want) {
			t.Errorf("jitter %v: pauses %v instead of %v", test.jitter, pauses, test.want)
		}
		if n := d.Counters().Failures.Load(); n != uint64(len(test.want)) {
			t.Errorf("%d failures counted", n)
		}
	}
}

func TestDialer_WaitsAsTheHubRequests(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	pauses := make(chan time.Duration, 10)
	waiter := func(_ context.Context, d time.Duration) error {
		pauses <- d
		return nil
	}
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a"), Wait: waiter, Random: func() float64 { return 1 }})

	// The hub sends the agent away.
	s.next("connected")
	h.next("connected").conn.CloseAfter(engine.Overloaded, "later", 40*time.Second)
	if bye := s.bye(); bye.RetryAfter != 40*time.Second {
		t.Errorf("the agent learns %v", bye)
	}
	if pause := <-pauses; pause != 40*time.Second+500*time.Millisecond {
		t.Errorf("the agent waits %s", pause)
	}
	_ = h.bye()

	// The agent itself wants a pause, after a session that was really opened.
	h.next("connected")
	c := s.next("connected").conn
	c.Established()
	c.CloseAfter(engine.WrongProtocol, "no", 20*time.Second)
	if bye := s.bye(); !bye.Local {
		t.Errorf("it ended by %v", bye)
	}
	if pause := <-pauses; pause < 20*time.Second || pause > 22*time.Second {
		t.Errorf("the agent waits %s", pause)
	}
	if bye := h.bye(); bye.Code != engine.WrongProtocol || bye.RetryAfter != 20*time.Second {
		t.Errorf("the hub learns %v", bye)
	}
}
