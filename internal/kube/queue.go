package kube

import "github.com/argocd-agent/argocd-agent/internal/reconcile"

// queue is what waits for its turn, in the order in which it was asked for. What a
// session has asked for can be taken out at its end, at a cost that goes by how much
// that is and not by what others wait for: thousands of sessions may end at once.
// The zero value is empty.
type queue struct {
	tasks map[uint64]queuedTask // by number; those that were taken out leave gaps
	first uint64                // no lower number waits
	last  uint64                // that was given
	byAgent map[string][]uint64   // agent → what waits and can be given up, in order
	grown bool                  // there was much at a time
}

// queuedTask is a task whose turn has not come.
type queuedTask struct {
	do      task
	agent   string                 // whom it is about
	session bool                   // that agent's session has asked for it, and it ends with that
	cancel  func() reconcile.Input // ends it undone; nil: it cannot be given up
}

func (q *queue) len() int { return len(q.tasks) }

func (q *queue) add(one queuedTask) {
	if q.tasks == nil {
		q.tasks, q.byAgent, q.first = map[uint64]queuedTask{}, map[string][]uint64{}, q.last+1
	}
	q.last++
	q.tasks[q.last] = one
	if one.cancel != nil {
		q.byAgent[one.agent] = append(q.byAgent[one.agent], q.last)
	}
	q.grown = q.grown || len(q.tasks) > shrinkThreshold
}

// take returns what has waited longest. There must be something.
func (q *queue) take() queuedTask {
	one, there := q.tasks[q.first]
	for !there {
		q.first++
		one, there = q.tasks[q.first]
	}
	delete(q.tasks, q.first)
	if one.cancel != nil { // of what is about its agent, too, it has waited longest
		if left := q.byAgent[one.agent][1:]; len(left) > 0 {
			q.byAgent[one.agent] = left
		} else {
			delete(q.byAgent, one.agent)
		}
	}
	q.shrink()
	return one
}

// removeSession takes out what waits for an agent's session or, with all, everything
// that is about the agent.
func (q *queue) removeSession(agent string, all bool) []queuedTask {
	var out []queuedTask
	var left []uint64
	for _, n := range q.byAgent[agent] {
		if one := q.tasks[n]; all || one.session {
			out = append(out, one)
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
	return out
}

// shrinkThreshold is more than waits on most days.
const shrinkThreshold = 1024

// shrink gives back, once it is empty, what a rush has made it grow to.
func (q *queue) shrink() {
	if q.grown && len(q.tasks) == 0 {
		*q = queue{last: q.last}
	}
}
