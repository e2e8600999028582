package kube

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// The queue does what a list would: whatever is added, taken and withdrawn, in
// whichever order.
func TestQueue_KeepsOrder(t *testing.T) {
	type entry struct {
		id      uint64
		agent   string
		closes  bool // it can be given up
		session bool
	}
	idOf := func(one queuedTask) uint64 { return one.cancel().(reconcile.WriteResult).ID }
	for seed := range uint64(20) {
		chance := rand.New(rand.NewPCG(seed, 1))
		var q queue
		var list []entry
		id := uint64(0)
		for step := range 5000 {
			agent := fmt.Sprint("w", chance.IntN(5))
			switch most := 1 + step/1000%2; {
			case chance.IntN(3) < most: // it grows, and shrinks
				id++
				e := entry{id, agent, chance.IntN(4) > 0, chance.IntN(2) > 0}
				one := queuedTask{agent: agent, session: e.session, cancel: func() reconcile.Input { return reconcile.WriteResult{ID: e.id} }}
				if !e.closes {
					one.agent, one.cancel = "", nil
				}
				q.add(one)
				list = append(list, e)
			case chance.IntN(50) == 0:
				all := chance.IntN(2) == 0
				var want []uint64
				list = slices.DeleteFunc(list, func(e entry) bool {
					if e.closes && e.agent == agent && (all || e.session) {
						want = append(want, e.id)
						return true
					}
					return false
				})
				var got []uint64
				for _, one := range q.removeSession(agent, all) {
					got = append(got, idOf(one))
				}
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: withdrawn are %d, want %d", seed, got, want)
				}
			case len(list) > 0:
				one := q.take()
				if (one.cancel != nil) != list[0].closes || list[0].closes && idOf(one) != list[0].id {
					t.Fatalf("seed %d: taken is another than %+v", seed, list[0])
				}
				list = list[1:]
			}
			if q.len() != len(list) {
				t.Fatalf("seed %d: %d wait, want %d", seed, q.len(), len(list))
			}
		}
		for q.len() > 0 {
			q.take()
		}
		if len(q.byAgent) > 0 {
			t.Errorf("seed %d: left of agents: %v", seed, q.byAgent)
		}
	}
}

func TestQueue_RemovesFromEmptyQueue(t *testing.T) {
	var q queue
	if got := q.removeSession("w", true); len(got) > 0 || q.len() != 0 {
		t.Errorf("%d were withdrawn from an empty queue", len(got))
	}
}
