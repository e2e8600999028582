package principal

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// workQueue are things to be done for agents on the hub's cluster, a few at a
// time: one for each agent at most, however often it is asked for. What does not
// work is tried again after a pause that grows; the others do not wait for it.
type workQueue struct {
	what        string
	do          func(ctx context.Context, agent string) error
	parallel    int
	interval    time.Duration // between the beginnings of two, once burst is used up; 0: none
	burst       int
	minInterval time.Duration // from the end of one to the next for the same agent, however much is asked for; 0: none
	log         *slog.Logger

	wake chan struct{} // of one: there may be something to do

	mu           sync.Mutex
	pausedUntil  time.Time            // none begins before: the API server is in trouble
	outageLogged bool                 // people were told of that
	ready        []string             // agents whose turn it is, in order
	all          map[string]*workItem // agents for whom something is to be done, or is being done
	delayed      map[string]*workItem // of those: the ones that pause
}

type workItem struct {
	queued  bool
	running bool
	waiting bool // it was done just now; so it pauses
	again   bool // asked for while it was running or resting
	delay   time.Duration
	due     time.Time
	logged  string // the last failure that was logged
}

// prepare makes errands of which the parts above are given.
func (e *workQueue) prepare() *workQueue {
	e.wake, e.all, e.delayed = make(chan struct{}, 1), map[string]*workItem{}, map[string]*workItem{}
	return e
}

// The pause after a failure grows between these. Whatever is asked for meanwhile
// shortens it, though not below the first of them.
const (
	minRetryDelay = time.Second
	maxRetryDelay = 2 * time.Minute
	workTimeout   = 30 * time.Second
)

// add asks for something to be done for an agent. It never waits.
func (e *workQueue) add(agent string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	one := e.all[agent]
	switch {
	case one == nil:
		one = &workItem{}
		e.all[agent] = one
	case one.running, one.waiting:
		one.again = true
		return
	case one.queued:
		return
	case !one.due.IsZero():
		if soon := time.Now().Add(minRetryDelay); one.due.After(soon) {
			one.due = soon
		}
		return
	}
	e.enqueue(agent, one)
}

func (e *workQueue) enqueue(agent string, one *workItem) {
	one.queued, one.due = true, time.Time{}
	delete(e.delayed, agent)
	e.ready = append(e.ready, agent)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run does what there is to do until the context ends.
func (e *workQueue) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, e.parallel)
	beat := time.NewTicker(minRetryDelay)
	defer beat.Stop()
	budget, paid := float64(e.burst), time.Now()
	for {
		agent, ok := e.next()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-e.wake:
			case now := <-beat.C:
				e.requeueDue(now)
			}
			continue
		}
		if e.interval > 0 {
			now := time.Now()
			budget = min(budget+float64(now.Sub(paid))/float64(e.interval), float64(e.burst))
			paid = now
			if budget--; budget < 0 && !sleep(ctx, time.Duration(-budget*float64(e.interval))) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case slots <- struct{}{}:
		}
		if !sleep(ctx, e.pauseLeft()) {
			return nil
		}
		wg.Go(func() {
			defer func() { <-slots }()
			limited, cancel := context.WithTimeout(ctx, workTimeout)
			defer cancel()
			e.done(ctx, agent, e.do(limited, agent))
		})
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// outagePause is how long nothing is tried after the API server was found to be
// overloaded, out of space or away.
const outagePause = 3 * time.Second

func (e *workQueue) pauseLeft() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Until(e.pausedUntil)
}

func (e *workQueue) next() (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.ready) == 0 {
		e.ready = nil // and what it had grown to
		return "", false
	}
	agent := e.ready[0]
	e.ready = e.ready[1:]
	one := e.all[agent]
	one.queued, one.running, one.again = false, true, false
	return agent, true
}

func (e *workQueue) done(ctx context.Context, agent string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	one := e.all[agent]
	one.running = false
	if err == nil {
		e.outageLogged = false
	}
	switch {
	case err == nil && e.minInterval > 0:
		one.delay, one.logged, one.waiting, one.due = 0, "", true, time.Now().Add(e.minInterval)
		e.delayed[agent] = one
	case err == nil && one.again:
		one.delay, one.logged = 0, ""
		e.enqueue(agent, one)
	case err == nil:
		delete(e.all, agent)
	default:
		one.delay = min(max(2*one.delay, minRetryDelay), maxRetryDelay)
		one.due = time.Now().Add(one.delay)
		if one.again {
			one.due = time.Now().Add(minRetryDelay)
		}
		e.delayed[agent] = one
		retryAfter, trouble := kube.ServerUnavailable(err)
		if trouble { // of all agents alike
			e.pausedUntil = time.Now().Add(max(outagePause, min(retryAfter, workTimeout)))
		}
		if ctx.Err() == nil && err.Error() != one.logged && !(trouble && e.outageLogged) {
			one.logged, e.outageLogged = err.Error(), trouble
			e.log.WarnContext(ctx, "something for an agent does not work; trying again", "task", e.what, "agent", agent, "error", err)
		}
	}
}

// requeueDue takes up what has paused long enough.
func (e *workQueue) requeueDue(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for agent, one := range e.delayed {
		switch {
		case one.due.After(now):
		case one.waiting && !one.again:
			delete(e.delayed, agent)
			delete(e.all, agent)
		default:
			one.waiting = false
			e.enqueue(agent, one)
		}
	}
}

// left tells how much there is to do.
func (e *workQueue) left() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.all)
}
