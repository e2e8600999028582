package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// job is a change of one object. It decides with the cached object when its turn comes, and decides again if its write
// finds the object changed. So every write is based on the current object, and none is lost to a race.
//
// Per object one job runs at a time, and there is at most one job per name, so the number of jobs is bounded. A job
// that must be answered has a unique name: a job that is replaced is not answered.
type job struct {
	name   string
	why    string
	agent  string     // empty if none, or on a spoke
	sync   *agentSync // of that agent, as registered when the job was created
	origin Origin
	writes int  // so far
	open   bool // it ends with the session
	decide func(local *kind.Object) decision
	wrote  func(*kind.Object) // called with what was stored, before the job decides again; may be nil
	done   func(result)
}

// decision is what a job does next.
type decision struct {
	verb          Verb
	object        *kind.Object // if nil, there is nothing to write and the job is done
	again         bool         // the job decides again after this write
	begins        string       // ID of the command that this write starts
	ends          bool         // the replica ends because the hub ordered it
	fail          *Failure     // the job failed
	gone          bool         // done: there is nothing left to delete
	leftUnchanged bool         // done: the object stays as it is
	offline       bool         // see Write
	mustStore     []string     // see Write
}

// ifChanged returns a decision to write an object if change returns another one. A missing object stays missing.
func ifChanged(change func(*kind.Object) *kind.Object) func(*kind.Object) decision {
	return func(local *kind.Object) decision {
		if local == nil {
			return decision{}
		}
		after := change(local)
		if after == local {
			return decision{}
		}
		return decision{verb: Update, object: after}
	}
}

type result struct {
	object   *kind.Object // nil if there is none
	replaced *kind.Object // by the last write, if there was one
	written  bool
	gone     bool
	left     bool
	fail     *Failure
}

// objectQueue has the jobs of one object. The first one is running.
type objectQueue struct {
	ref        kind.Ref
	jobs       []job
	writeID    uint64 // of the running write; 0 if none
	verb       Verb
	base       *kind.Object // the object that the write is based on
	again      bool
	written    bool
	replaced   *kind.Object
	staleSince engine.Time // since when the cached object is known to be stale; 0 if it is not
	readID     uint64      // of the read that refreshes it; 0 if none yet
	remember   *Memory     // of the running write; nil if none
}

// rereadAfter is how long the watch may take to show a change that a write conflicted with, before the object is read.
const rereadAfter = 5 * engine.Second

// enqueue adds a job for an object. It replaces a job of the same name that has not started.
func (n *Reconciler) enqueue(ref kind.Ref, j job) {
	if j.agent != "" {
		if j.sync = n.syncs[j.agent]; j.sync == nil {
			return // its registration has ended
		}
	}
	d := n.objectQueues[ref]
	if d == nil {
		d = &objectQueue{ref: ref}
		n.objectQueues[ref] = d
	}
	for i := range d.jobs {
		if d.jobs[i].name == j.name && (i > 0 || d.idle()) {
			d.jobs[i] = j
			n.work(d)
			return
		}
	}
	d.jobs = append(d.jobs, j)
	n.work(d)
}

func (d *objectQueue) idle() bool { return d.writeID == 0 && d.staleSince == 0 }

// work runs jobs until one waits for a write.
func (n *Reconciler) work(d *objectQueue) {
	for d.idle() && len(d.jobs) > 0 {
		local := n.cache.get(d.ref)
		if j := &d.jobs[0]; j.agent != "" && n.syncs[j.agent] != j.sync {
			n.endJob(d, result{object: local, fail: &Failure{Code: engine.Unavailable, Message: "the agent's registration has changed"}})
			continue
		}
		if local != nil && local.IsReduced() {
			n.endJob(d, result{object: local, fail: &Failure{Code: engine.Unavailable, Message: "another principal replica has the session of the agent"}})
			continue
		}
		dec := d.jobs[0].decide(local)
		if dec.fail != nil || dec.object == nil {
			n.endJob(d, result{object: local, written: d.written, replaced: d.replaced, gone: dec.gone, left: dec.leftUnchanged, fail: dec.fail})
			continue
		}
		n.writes++
		d.writeID, d.verb, d.base, d.again = n.writes, dec.verb, local, dec.again
		n.writing[d.writeID] = d
		j := &d.jobs[0]
		j.writes++
		write := Write{ID: d.writeID, Verb: dec.verb, Ref: d.ref, Object: dec.object, Reason: j.why, Agent: j.agent, Origin: j.origin, Attempt: j.writes, WhileOpen: j.open, Offline: dec.offline, MustStore: dec.mustStore}
		if d.remember = nil; n.remembers(dec) {
			d.remember = n.sharedMemory()
		}
		write.Remember = d.remember
		n.emit(write)
	}
	if len(d.jobs) == 0 && d.idle() {
		delete(n.objectQueues, d.ref)
	}
}

func (n *Reconciler) endJob(d *objectQueue, r result) {
	j := d.jobs[0]
	d.jobs = d.jobs[1:]
	d.written, d.replaced = false, nil
	if j.done != nil {
		j.done(r)
	}
}

// wrote handles the result of a write.
func (n *Reconciler) wrote(in WriteResult) {
	d := n.writing[in.ID]
	if d == nil {
		return
	}
	delete(n.writing, in.ID)
	d.writeID = 0
	if d.remember != nil && in.Failure == nil {
		n.recorded = d.remember.storeTrust()
	}
	d.remember = nil
	switch {
	case in.Failure != nil && in.Failure.Stale:
		n.stale(d)
	case in.Failure != nil:
		n.endJob(d, result{object: n.cache.get(d.ref), fail: in.Failure})
	case in.Object == nil:
		d.written = true
		n.knownGone(d.ref, d.base.UID(), 0)
	case d.again:
		d.written, d.replaced = true, d.base
		if d.jobs[0].wrote != nil {
			d.jobs[0].wrote(in.Object)
		}
		n.stored(d.ref, in.Object)
	default:
		// The job must end before others see the object, because they may enqueue jobs for it.
		j, base := d.jobs[0], d.base
		d.jobs = d.jobs[1:]
		d.written, d.replaced = false, nil
		n.stored(d.ref, in.Object)
		r := result{object: in.Object, replaced: base, written: true}
		now := n.cache.get(d.ref)
		if now == nil {
			r.object = nil
		}
		if j.done != nil {
			j.done(r)
		}
		if now != nil && now != in.Object {
			// The object changed again before the result came, and no other event would report that.
			n.notifySyncs(d.ref.Resource, in.Object, now, true)
		}
	}
	n.work(d)
}

// stored handles an object from the result of a write. The object may be gone: the write removed the last finalizer, or
// the watch is already past its deletion.
func (n *Reconciler) stored(ref kind.Ref, o *kind.Object) {
	switch {
	case o.IsDeleting() && len(o.Finalizers()) == 0:
		n.knownGone(ref, o.UID(), revision(o))
	case n.cache.get(ref) == nil && revision(o) <= n.cache.tables[ref.Resource].parts.of(ref.Namespace).frontier:
	default:
		n.observed(ref.Resource, o)
	}
}

// stale waits for the watch to show what a write conflicted with, unless the cache already has it.
func (n *Reconciler) stale(d *objectQueue) {
	if n.cache.get(d.ref) != d.base {
		return
	}
	d.staleSince, d.readID = n.now, 0
	n.staleQueues[d.ref] = d
	n.scheduleHousekeeping(n.now + rereadAfter)
}

// objectChanged lets a waiting job decide again.
func (n *Reconciler) objectChanged(ref kind.Ref) {
	d := n.objectQueues[ref]
	if d == nil || d.staleSince == 0 {
		return
	}
	d.staleSince = 0
	delete(n.staleQueues, ref)
	n.work(d)
}

// reread reads objects whose change the watch does not show.
func (n *Reconciler) reread() {
	for _, ref := range sortedRefs(n.staleQueues) {
		d := n.staleQueues[ref]
		if n.now-d.staleSince < rereadAfter {
			continue
		}
		d.staleSince = n.now // read again after the same time
		d.readID = n.emitRead(ref)
	}
}

// emitRead reads one object and returns the ID of the answer.
func (n *Reconciler) emitRead(ref kind.Ref) uint64 {
	n.reads++
	e := Read{Ref: ref, ID: n.reads}
	if o := n.cache.get(ref); o != nil {
		e.UID = o.UID()
	}
	n.emit(e)
	return n.reads
}
