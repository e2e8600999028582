package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// job is something to be done to one object. It looks at the object as it is
// when its turn comes, and looks again when its write finds the object changed:
// so every write is based on what is there, and none is lost to a race.
//
// For each object one job runs at a time. There is at most one job for each
// name, so the number of jobs is bounded by what there is to do. A job that has to
// be answered has a name that no other job has: one that is replaced is not.
type job struct {
	name   string
	why    string
	agent  string     // whom it is about; empty: nobody, or this one
	sync   *agentSync // of that agent, as it was registered when the job was given
	origin Origin
	writes int  // so far
	open   bool // it is for the session, and ends with it
	decide func(local *kind.Object) decision
	wrote  func(*kind.Object) // hears what was stored, before it decides again; may be nil
	done   func(result)
}

// decision is what a job wants now.
type decision struct {
	verb   Verb
	object *kind.Object // nil: nothing is to be written; the job is done
	again  bool         // after this write the job decides again
	begins string       // ID of the command that this write begins
	fail   *Failure     // the job ends without success
	gone   bool         // done because there is nothing left to delete
	leftUnchanged   bool         // done because the object is to be left as it is
}

// result is how a job ended.
type result struct {
	object   *kind.Object // as it is now; nil: there is none
	replaced *kind.Object // what the last write replaced, if there was one
	written  bool
	gone     bool
	left     bool
	fail     *Failure
}

// objectQueue is the work to be done on one object: the job under way and the others.
type objectQueue struct {
	ref        kind.Ref
	jobs       []job
	writeID    uint64       // under way; 0: none
	verb       Verb         // of it
	base       *kind.Object // what it is based on
	again      bool
	written    bool
	replaced   *kind.Object
	staleSince engine.Time // since when the cache is known to be behind; 0: it is not
	readID     uint64      // of the read that is to show what it lacks; 0: none yet
}

// rereadAfter is how long the watch may take to show a change that a write has
// run into, before the object is read.
const rereadAfter = 5 * engine.Second

// enqueue gives an object something to be done. A job of the same name that has
// not begun yet is replaced.
func (n *Reconciler) enqueue(ref kind.Ref, j job) {
	if j.agent != "" {
		if j.sync = n.syncs[j.agent]; j.sync == nil {
			return // of a registration that is no more
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

// work lets the first job decide, until one has to wait for a write.
func (n *Reconciler) work(d *objectQueue) {
	for d.idle() && len(d.jobs) > 0 {
		local := n.cache.get(d.ref)
		if j := &d.jobs[0]; j.agent != "" && n.syncs[j.agent] != j.sync {
			n.endJob(d, result{object: local, fail: &Failure{Code: engine.Unavailable, Message: "the agent's registration has changed"}})
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
		write := Write{ID: d.writeID, Verb: dec.verb, Ref: d.ref, Object: dec.object, Reason: j.why, Agent: j.agent, Origin: j.origin, Attempt: j.writes, WhileOpen: j.open}
		if n.remembers(dec) {
			write.Remember = new(n.Memory())
		}
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

// wrote takes the answer to a write.
func (n *Reconciler) wrote(in WriteResult) {
	d := n.writing[in.ID]
	if d == nil {
		return
	}
	delete(n.writing, in.ID)
	d.writeID = 0
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
		// The job is over before others hear of the object: they may have
		// something to do to it in turn.
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
			// Changed again before the answer came. What the job was told is
			// the past, and nothing else would say so.
			n.notifySyncs(d.ref.Resource, in.Object, now, true)
		}
	}
	n.work(d)
}

// stored takes an object from a write's answer. It may be gone by then: because
// the write took the last finalizer from an object that is being deleted, or
// because the watch has come past it and does not have it any more.
func (n *Reconciler) stored(ref kind.Ref, o *kind.Object) {
	switch {
	case o.IsDeleting() && len(o.Finalizers()) == 0:
		n.knownGone(ref, o.UID(), revision(o))
	case n.cache.get(ref) == nil && revision(o) <= n.cache.tables[ref.Resource].frontier:
	default:
		n.observed(ref.Resource, o)
	}
}

// stale waits for the watch to show what a write has run into, unless the cache
// has moved on already.
func (n *Reconciler) stale(d *objectQueue) {
	if n.cache.get(d.ref) != d.base {
		return
	}
	d.staleSince, d.readID = n.now, 0
	n.staleQueues[d.ref] = d
	n.scheduleHousekeeping(n.now + rereadAfter)
}

// objectChanged lets a waiting job look again: its object has changed.
func (n *Reconciler) objectChanged(ref kind.Ref) {
	d := n.objectQueues[ref]
	if d == nil || d.staleSince == 0 {
		return
	}
	d.staleSince = 0
	delete(n.staleQueues, ref)
	n.work(d)
}

// reread asks for objects whose change the watch does not show.
func (n *Reconciler) reread() {
	for _, ref := range sortedRefs(n.staleQueues) {
		d := n.staleQueues[ref]
		if n.now-d.staleSince < rereadAfter {
			continue
		}
		d.staleSince = n.now // ask again after as long
		d.readID = n.emitRead(ref)
	}
}

// emitRead asks for one object, and returns the ID that the answer will have.
func (n *Reconciler) emitRead(ref kind.Ref) uint64 {
	n.reads++
	e := Read{Ref: ref, ID: n.reads}
	if o := n.cache.get(ref); o != nil {
		e.UID = o.UID()
	}
	n.emit(e)
	return n.reads
}
