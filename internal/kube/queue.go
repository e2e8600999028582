package kube

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// queue holds tasks in the order of each agent, and returns those of different agents in turn, so that the flood of one
// agent does not delay the others. At most perAgent tasks of one agent are in progress. Removing the tasks of one session
// costs in proportion to their number, because thousands of sessions may end at once.
type queue struct {
	perAgent int // if zero, an agent is not limited. Tasks without an agent never are.
	byAgent  map[string]*agentTasks
	ready    []*agentTasks // with a task that may run, in the order of their turns
	waiting  int
	runnable int // tasks that may run now
}

// agentTasks has the tasks of one agent. Tasks without an agent share one.
type agentTasks struct {
	agent    string
	waiting  []queuedTask
	progress int  // number of tasks in progress
	ready    bool // it is in queue.ready
}

type queuedTask struct {
	do      task
	agent   string
	bytes   int                    // of the object that is written
	session bool                   // belongs to the agent's session and ends with it
	cancel  func() reconcile.Input // ends the task without running it; nil if it cannot be canceled
}

func (q *queue) len() int { return q.waiting }

func (q *queue) add(t queuedTask) {
	a := q.byAgent[t.agent]
	if a == nil {
		if q.byAgent == nil {
			q.byAgent = map[string]*agentTasks{}
		}
		a = &agentTasks{agent: t.agent}
		q.byAgent[t.agent] = a
	}
	q.change(a, func() { a.waiting = append(a.waiting, t) })
}

// take removes and returns the oldest task of the agent whose turn it is. It returns false if none may run. The caller
// must call done after the task.
func (q *queue) take() (t queuedTask, ok bool) {
	for len(q.ready) > 0 {
		a := q.ready[0]
		q.ready[0] = nil
		q.ready = q.ready[1:]
		a.ready = false
		if q.runnableOf(a) == 0 { // its tasks were removed
			continue
		}
		q.change(a, func() {
			t = a.waiting[0]
			a.waiting[0] = queuedTask{}
			a.waiting = a.waiting[1:]
			a.progress++
		})
		return t, true
	}
	return queuedTask{}, false
}

// done reports the end of a task that was taken.
func (q *queue) done(agent string) {
	if a := q.byAgent[agent]; a != nil {
		q.change(a, func() { a.progress-- })
	}
}

// removeSession removes and returns the tasks of an agent's session or, with all, every cancelable task of the agent.
func (q *queue) removeSession(agent string, all bool) (removed []queuedTask) {
	a := q.byAgent[agent]
	if a == nil {
		return nil
	}
	q.change(a, func() {
		a.waiting = slices.DeleteFunc(a.waiting, func(t queuedTask) bool {
			remove := t.cancel != nil && (all || t.session)
			if remove {
				removed = append(removed, t)
			}
			return remove
		})
	})
	return removed
}

func (q *queue) runnableOf(a *agentTasks) int {
	if q.perAgent == 0 || a.agent == "" {
		return len(a.waiting)
	}
	return min(len(a.waiting), max(0, q.perAgent-a.progress))
}

// change changes the tasks of an agent, and updates the totals and the turns.
func (q *queue) change(a *agentTasks, change func()) {
	waiting, runnable := len(a.waiting), q.runnableOf(a)
	change()
	q.waiting += len(a.waiting) - waiting
	q.runnable += q.runnableOf(a) - runnable
	switch {
	case !a.ready && q.runnableOf(a) > 0:
		a.ready = true
		q.ready = append(q.ready, a)
	case len(a.waiting) == 0 && a.progress == 0:
		delete(q.byAgent, a.agent)
	}
	if q.runnable == 0 { // no turn is left, only entries of agents whose tasks were removed
		for _, other := range q.ready {
			other.ready = false
		}
		q.ready = nil
	}
}
