package kube

import (
	"container/list"

	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// queue holds tasks in order. Removing the tasks of one session costs in proportion to their number, because thousands
// of sessions may end at once. The zero value is empty.
type queue struct {
	tasks   list.List                  // of queuedTask
	byAgent map[string][]*list.Element // agent to its cancelable tasks, in order
}

type queuedTask struct {
	do      task
	agent   string
	session bool                   // belongs to the agent's session and ends with it
	cancel  func() reconcile.Input // ends the task without running it; nil if it cannot be canceled
}

func (q *queue) len() int { return q.tasks.Len() }

func (q *queue) add(t queuedTask) {
	element := q.tasks.PushBack(t)
	if t.cancel == nil {
		return
	}
	if q.byAgent == nil {
		q.byAgent = map[string][]*list.Element{}
	}
	q.byAgent[t.agent] = append(q.byAgent[t.agent], element)
}

// take removes and returns the oldest task. The queue must not be empty.
func (q *queue) take() queuedTask {
	t, _ := q.tasks.Remove(q.tasks.Front()).(queuedTask)
	if t.cancel != nil { // it is also the oldest task of its agent
		q.byAgent[t.agent][0] = nil
		q.setTasks(t.agent, q.byAgent[t.agent][1:])
	}
	return t
}

// removeSession removes and returns the tasks of an agent's session or, with all, every cancelable task of the agent.
func (q *queue) removeSession(agent string, all bool) []queuedTask {
	var removed []queuedTask
	var left []*list.Element
	for _, element := range q.byAgent[agent] {
		if t, _ := element.Value.(queuedTask); all || t.session {
			removed = append(removed, t)
			q.tasks.Remove(element)
		} else {
			left = append(left, element)
		}
	}
	q.setTasks(agent, left)
	return removed
}

func (q *queue) setTasks(agent string, left []*list.Element) {
	if len(left) == 0 {
		delete(q.byAgent, agent)
	} else {
		q.byAgent[agent] = left
	}
}
