package agent

import (
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func TestHandling_MeasuresApplicationsOfSession(t *testing.T) {
	var h handling
	start := time.Unix(100, 0)
	delta := func(scope string, numbers ...uint64) engine.Delta {
		d := engine.Delta{Scope: scope}
		for _, n := range numbers {
			d.Items = append(d.Items, engine.DeltaItem{Seq: n})
		}
		return d
	}
	h.received(1, delta(kind.ApplicationScope, 1, 2, 3), start)
	h.received(1, delta(kind.AppProjectScope, 9), start)
	ack := func(session uint64, scope string, n uint64, after time.Duration) int64 {
		sent := engine.Ack{Scope: scope, Items: []engine.AckItem{{Seq: n}}}
		got := h.acknowledged(session, sent, start.Add(after))
		if sent.Items[0].HandledMillis != 0 {
			t.Error("the message of the engine was changed")
		}
		return got.Items[0].HandledMillis
	}
	for _, test := range []struct {
		session uint64
		scope   string
		seq     uint64
		after   time.Duration
		want    int64
	}{
		{1, kind.ApplicationScope, 1, 250 * time.Millisecond, 250},
		{1, kind.ApplicationScope, 1, time.Second, 0}, // only once
		{1, kind.ApplicationScope, 2, time.Microsecond, 1},
		{1, kind.ApplicationScope, 7, time.Second, 0},
		{1, kind.AppProjectScope, 9, time.Second, 0},
		{2, kind.ApplicationScope, 3, time.Second, 0},
	} {
		if got := ack(test.session, test.scope, test.seq, test.after); got != test.want {
			t.Errorf("session %d, %s, %d: %d, want %d", test.session, test.scope, test.seq, got, test.want)
		}
	}
	h.received(2, delta(kind.ApplicationScope, 3), start)
	if got := ack(2, kind.ApplicationScope, 3, time.Second); got != 1000 || len(h.since) != 0 {
		t.Errorf("after a new session: %d, %d items", got, len(h.since))
	}
	for n := range uint64(2 * maxHandling) {
		h.received(2, delta(kind.ApplicationScope, n), start)
	}
	if len(h.since) != maxHandling {
		t.Errorf("%d items are measured", len(h.since))
	}
}
