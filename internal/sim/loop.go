package sim

import "github.com/argocd-agent/argocd-agent/internal/engine"

// Units of virtual time.
const (
	millisecond engine.Time = 1
	second                  = 1000 * millisecond
	minute                  = 60 * second
	hour                    = 60 * minute
)

// loop is the world's clock: what is to happen, and when. Things due at the same time happen in the order in which they
// were planned.
type loop struct {
	now   engine.Time
	steps int
	seq   uint64
	heap  []event
}

type event struct {
	at  engine.Time
	seq uint64
	run func()
}

func (l *loop) after(d engine.Time, run func()) {
	l.seq++
	l.heap = append(l.heap, event{l.now + max(d, 0), l.seq, run})
	i := len(l.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !l.heap[i].before(l.heap[up]) {
			break
		}
		l.heap[i], l.heap[up] = l.heap[up], l.heap[i]
		i = up
	}
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// step lets the next thing happen, unless it is due after the given time.
func (l *loop) step(until engine.Time) bool {
	if len(l.heap) == 0 || l.heap[0].at > until {
		l.now = max(l.now, until)
		return false
	}
	e := l.heap[0]
	last := len(l.heap) - 1
	l.heap[0] = l.heap[last]
	l.heap[last] = event{}
	l.heap = l.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if l.heap[child].before(l.heap[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		l.heap[i], l.heap[least] = l.heap[least], l.heap[i]
		i = least
	}
	l.now = e.at
	l.steps++
	e.run()
	return true
}
