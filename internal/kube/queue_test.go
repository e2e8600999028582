package kube

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Sessions that end before their tasks run leave nothing in the queue, for example during a write outage.
func TestQueue_KeepsNothingOfEndedSessions(t *testing.T) {
	q := queue{perAgent: 1}
	one := func(agent string) queuedTask {
		return queuedTask{agent: agent, session: true, cancel: func() reconcile.Input { return nil }}
	}
	for range 1000 {
		q.add(one("w1"))
		q.add(one("w1"))
		q.removeSession("w1", false)
	}
	if len(q.ready) > 1 || len(q.byAgent) > 0 {
		t.Errorf("%d turns of %d agents", len(q.ready), len(q.byAgent))
	}
	// An agent that waits for its task in progress gets its turn again.
	for _, agent := range []string{"w1", "w1", "w2"} {
		q.add(one(agent))
	}
	if first, ok := q.take(); !ok || first.agent != "w1" {
		t.Fatalf("%+v", first)
	}
	q.removeSession("w2", false)
	if again, ok := q.take(); ok {
		t.Errorf("%+v", again)
	}
	q.done("w1")
	if second, ok := q.take(); !ok || second.agent != "w1" {
		t.Errorf("%+v", second)
	}
	q.done("w1")
	if len(q.ready) > 0 || len(q.byAgent) > 0 || q.runnable != 0 || q.waiting != 0 {
		t.Errorf("%+v", q)
	}
}

// The queue does what one list per agent would: whatever is added, taken and removed, in whichever order. Agents take
// turns, and none has more tasks in progress than permitted.
func TestQueue_KeepsOrderOfEachAgent(t *testing.T) {
	type entry struct {
		id      uint64
		closes  bool // it can be canceled
		session bool
	}
	for seed := range uint64(20) {
		chance := rand.New(rand.NewPCG(seed, 1))
		q := queue{perAgent: int(seed % 4)}
		lists, progress := map[string][]entry{}, map[string]int{}
		last := uint64(0) // task that was canceled or run
		waiting, running := 0, []string{}
		for id := range uint64(5000) {
			agent := []string{"", "w1", "w2", "w3", "w4"}[chance.IntN(5)]
			switch most := 1 + id/1000%2; {
			case chance.Uint64N(3) < most: // it grows, and shrinks
				e := entry{id, chance.IntN(4) > 0, chance.IntN(2) > 0}
				one := queuedTask{agent: agent, session: e.session, do: func(context.Context) (reconcile.Input, error) { last = e.id; return nil, nil }}
				if e.closes {
					one.cancel = func() reconcile.Input { last = e.id; return nil }
				}
				q.add(one)
				lists[agent] = append(lists[agent], e)
				waiting++
			case chance.IntN(50) == 0:
				all := chance.IntN(2) == 0
				var want, got []uint64
				lists[agent] = slices.DeleteFunc(lists[agent], func(e entry) bool {
					remove := e.closes && (all || e.session)
					if remove {
						want = append(want, e.id)
					}
					return remove
				})
				for _, one := range q.removeSession(agent, all) {
					one.cancel()
					got = append(got, last)
				}
				if waiting -= len(want); !slices.Equal(got, want) {
					t.Fatalf("seed %d: removed are %d, want %d", seed, got, want)
				}
			case len(running) > 0 && chance.IntN(2) == 0:
				ended := running[0]
				running = running[1:]
				progress[ended]--
				q.done(ended)
			default:
				runnable := 0
				for agent, list := range lists {
					if agent == "" || q.perAgent == 0 {
						runnable += len(list)
					} else {
						runnable += min(len(list), q.perAgent-progress[agent])
					}
				}
				if runnable != q.runnable {
					t.Fatalf("seed %d: %d may run, want %d", seed, q.runnable, runnable)
				}
				one, ok := q.take()
				if ok != (runnable > 0) {
					t.Fatalf("seed %d: of %d runnable tasks one was taken: %v", seed, runnable, ok)
				}
				if !ok {
					break
				}
				_, _ = one.do(t.Context())
				if want := lists[one.agent][0].id; last != want {
					t.Fatalf("seed %d: task %d of %q was taken, want %d", seed, last, one.agent, want)
				}
				lists[one.agent] = lists[one.agent][1:]
				waiting--
				running = append(running, one.agent)
				progress[one.agent]++
			}
			if q.len() != waiting {
				t.Fatalf("seed %d: %d wait, want %d", seed, q.len(), waiting)
			}
		}
		for _, agent := range running {
			q.done(agent)
		}
		for one, ok := q.take(); ok; one, ok = q.take() {
			q.done(one.agent)
		}
		if len(q.byAgent) > 0 || len(q.ready) > 0 || q.len() > 0 || q.runnable > 0 {
			t.Errorf("seed %d: left: %+v", seed, q)
		}
	}
}

func TestQueue_AgentsTakeTurns(t *testing.T) {
	q := queue{perAgent: 2}
	for range 1000 {
		q.add(queuedTask{agent: "flood"})
	}
	for _, agent := range []string{"w1", "w2", "w1", "", "", ""} {
		q.add(queuedTask{agent: agent})
	}
	var order []string
	for one, ok := q.take(); ok; one, ok = q.take() {
		order = append(order, one.agent)
	}
	if want := []string{"flood", "w1", "w2", "", "flood", "w1", "", ""}; !slices.Equal(order, want) {
		t.Errorf("order %q, want %q", order, want)
	}
	q.done("flood")
	if one, ok := q.take(); !ok || one.agent != "flood" {
		t.Errorf("next is %q, %v", one.agent, ok)
	}
}

func TestQueue_RemovesFromEmptyQueue(t *testing.T) {
	var q queue
	if got := q.removeSession("w", true); len(got) > 0 || q.len() != 0 {
		t.Errorf("%d were withdrawn from an empty queue", len(got))
	}
}
