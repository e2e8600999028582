package reconcile

import (
	"container/heap"
	"maps"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file schedules syncs. A hub has thousands of them and an input concerns few, so its cost must not depend on
// their number.

type syncIndex struct {
	ordered        []*agentSync          // by name; replaced, never changed, so that it can be iterated during changes
	opening        map[string]*agentSync // those that wait for Begin
	wakes          timerHeap             // those with a wake time, the earliest first
	touched        []*agentSync          // those whose wake time may have changed in this step
	housekeepingAt engine.Time           // not later than the next task of the Reconciler itself; 0 if none
}

func (r *syncIndex) add(l *agentSync) {
	i, _ := slices.BinarySearchFunc(r.ordered, l.name, byName)
	r.ordered = slices.Insert(slices.Clone(r.ordered), i, l)
}

func (r *syncIndex) remove(l *agentSync) {
	if i, ok := slices.BinarySearchFunc(r.ordered, l.name, byName); ok {
		r.ordered = slices.Delete(slices.Clone(r.ordered), i, i+1)
	}
	delete(r.opening, l.name)
	r.wakes.drop(l)
}

func compareSyncs(a, b *agentSync) int { return strings.Compare(a.name, b.name) }

func byName(l *agentSync, name string) int { return strings.Compare(l.name, name) }

// touch records that the wake time of a sync may have changed.
func (l *agentSync) touch() {
	if !l.touched {
		l.touched = true
		l.reconciler.index.touched = append(l.reconciler.index.touched, l)
	}
}

// nextWake returns when a sync needs a Tick. It returns false if it needs none.
func (l *agentSync) nextWake() (engine.Time, bool) {
	at, ok := l.peer.NextWake()
	if l.openingEvent != nil && (!ok || l.relistAt < at) {
		at, ok = l.relistAt, true
	}
	return at, ok
}

// rearm updates the wake times after a step.
func (n *Reconciler) rearm() {
	r := &n.index
	for i, l := range r.touched {
		r.touched[i] = nil
		l.touched = false
		if at, ok := l.nextWake(); ok && n.syncs[l.name] == l {
			r.wakes.set(l, at)
		} else {
			r.wakes.drop(l)
		}
	}
	r.touched = r.touched[:0]
}

// scheduleHousekeeping schedules the Reconciler's own tasks.
func (n *Reconciler) scheduleHousekeeping(at engine.Time) {
	if n.index.housekeepingAt == 0 || at < n.index.housekeepingAt {
		n.index.housekeepingAt = at
	}
}

// NextWake returns when the Reconciler needs a Tick. It returns false if it needs none.
func (n *Reconciler) NextWake() (engine.Time, bool) {
	at, ok := n.index.housekeepingAt, n.index.housekeepingAt != 0
	if w := n.index.wakes; len(w) > 0 && (!ok || w[0].wakeAt < at) {
		at, ok = w[0].wakeAt, true
	}
	if next := n.fleet.nextAt; n.fleet.on && next != 0 && (!ok || next < at) {
		at, ok = next, true
	}
	return at, ok
}

func (n *Reconciler) tick() {
	for _, l := range n.index.wakes.due(n.now) {
		l.touch()
		if t, ok := l.peer.NextWake(); ok && t <= n.now {
			l.step(engine.Tick{})
		}
		l.tryBegin()
	}
	n.forgetDeleted()
	n.forgetArrivals()
	if at := n.index.housekeepingAt; at != 0 && at <= n.now {
		n.runHousekeeping()
	}
}

// runHousekeeping retries what failed or was not answered.
func (n *Reconciler) runHousekeeping() {
	n.index.housekeepingAt = 0
	n.reread()
	n.retryReads()
	n.retryRestores()
	for _, ref := range sortedRefs(n.retries) {
		if n.retries[ref] <= n.now {
			delete(n.retries, ref)
			if o := n.cache.get(ref); o != nil {
				n.reconcileObject(ref.Resource, o)
			}
		}
	}
	if l := n.syncs[""]; l != nil {
		l.compareDue()
	}
	for _, d := range n.staleQueues {
		n.scheduleHousekeeping(d.staleSince + rereadAfter)
	}
	for _, t := range n.retries {
		n.scheduleHousekeeping(t)
	}
	for _, a := range n.repositories.reads {
		n.scheduleHousekeeping(a.at + rereadAfter)
	}
}

// sortedSyncs returns all syncs in the order of their names.
func (n *Reconciler) sortedSyncs() []*agentSync { return n.index.ordered }

// beginAll begins the sessions that waited for a newer view.
func (n *Reconciler) beginAll() {
	if len(n.index.opening) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.index.opening)) {
		if l := n.index.opening[name]; l != nil {
			l.tryBegin()
		}
	}
}

// objects returns what may concern a sync, in order. On the hub these are the Applications in its namespace and those
// that name it as their destination.
func (l *agentSync) objects(r kind.Resource) []*kind.Object {
	c := l.reconciler.cache
	if l.reconciler.cfg.Side == kind.Spoke || l.isStandby() || r != kind.Applications {
		return sortedObjects(c.tables[r].objects)
	}
	found := slices.Concat(c.byNS[l.env.Agent.HubNamespace], c.byDestination[l.name], c.byDestination[l.env.Agent.ClusterURL()])
	slices.SortFunc(found, compareNames)
	return slices.Compact(found) // most are in both
}

// timerHeap is a heap of syncs by wake time.
type timerHeap []*agentSync

func (w timerHeap) Len() int { return len(w) }

func (w timerHeap) Less(i, j int) bool {
	return w[i].wakeAt < w[j].wakeAt || w[i].wakeAt == w[j].wakeAt && w[i].name < w[j].name
}

func (w timerHeap) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].heapIndex, w[j].heapIndex = i+1, j+1
}

func (w *timerHeap) Push(x any) {
	l := x.(*agentSync)
	*w = append(*w, l)
	l.heapIndex = len(*w)
}

func (w *timerHeap) Pop() any {
	last := len(*w) - 1
	l := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	l.heapIndex = 0
	return l
}

func (w *timerHeap) set(l *agentSync, at engine.Time) {
	switch {
	case l.heapIndex == 0:
		l.wakeAt = at
		heap.Push(w, l)
	case l.wakeAt != at:
		l.wakeAt = at
		heap.Fix(w, l.heapIndex-1)
	}
}

func (w *timerHeap) drop(l *agentSync) {
	if l.heapIndex != 0 {
		heap.Remove(w, l.heapIndex-1)
	}
}

// due removes and returns the syncs that are due, in the order of their names.
func (w *timerHeap) due(now engine.Time) []*agentSync {
	var out []*agentSync
	for len(*w) > 0 && (*w)[0].wakeAt <= now {
		out = append(out, heap.Pop(w).(*agentSync))
	}
	slices.SortFunc(out, compareSyncs)
	return out
}
