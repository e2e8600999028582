package kube

import "github.com/argocd-agent/argocd-agent/internal/reconcile"

// queue holds tasks in order. Removing the tasks of one session costs in proportion to their number, because thousands
// of sessions may end at once. The zero value is empty.
type queue struct {
	tasks   map[uint64]queuedTask // by number; removed tasks leave gaps
	first   uint64                // no task has a lower number
	last    uint64                // last assigned number
	byAgent map[string][]uint64   // agent to its cancelable tasks, in order
	grown   bool                  // the maps are larger than usual
}

type queuedTask struct {
	do      task
	agent   string
	session bool                   // belongs to the agent's session and ends with it
	cancel  func() reconcile.Input // ends the task without running it; nil if it cannot be canceled
}

func (q *queue) len() int { return len(q.tasks) }

func (q *queue) add(t queuedTask) {
	if q.tasks == nil {
		q.tasks, q.byAgent, q.first = map[uint64]queuedTask{}, map[string][]uint64{}, q.last+1
	}
	q.last++
	q.tasks[q.last] = t
	if t.cancel != nil {
		q.byAgent[t.agent] = append(q.byAgent[t.agent], q.last)
	}
	q.grown = q.grown || len(q.tasks) > shrinkThreshold
}

// take removes and returns the oldest task. The queue must not be empty.
func (q *queue) take() queuedTask {
	t, ok := q.tasks[q.first]
	for !ok {
		q.first++
		t, ok = q.tasks[q.first]
	}
	delete(q.tasks, q.first)
	if t.cancel != nil { // it is also the oldest task of its agent
		if left := q.byAgent[t.agent][1:]; len(left) > 0 {
			q.byAgent[t.agent] = left
		} else {
			delete(q.byAgent, t.agent)
		}
	}
	q.shrink()
	return t
}

// removeSession removes and returns the tasks of an agent's session or, with all, every cancelable task of the agent.
func (q *queue) removeSession(agent string, all bool) []queuedTask {
	var removed []queuedTask
	var left []uint64
	for _, n := range q.byAgent[agent] {
		if t := q.tasks[n]; all || t.session {
			removed = append(removed, t)
			delete(q.tasks, n)
		} else {
			left = append(left, n)
		}
	}
	if len(left) == 0 {
		delete(q.byAgent, agent)
	} else {
		q.byAgent[agent] = left
	}
	q.shrink()
	return removed
}

// shrinkThreshold is the number of tasks from which on the memory is released when the queue is empty again.
const shrinkThreshold = 1024

func (q *queue) shrink() {
	if q.grown && len(q.tasks) == 0 {
		*q = queue{last: q.last}
	}
}
