package sim

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// apiFault is what may happen to a request.
type apiFault uint8

const (
	fine      apiFault = iota
	throttled          // 429, not done
	failed             // 500, not done
	failedYet          // 500, but done
	timedOut           // never answered, not done
	doneLate           // the caller gives up, and then it is done
	doneYet            // done, but the answer is lost
	conflict           // 409 although nothing had changed
	notRouted          // 404 from something in front of the API server, which is not asked
	apiFaults
)

// ask sends a request to the process' API server and passes the answer on, if the process is still the same then. A
// request that is on its way when the process dies may still arrive.
func (p *process) ask(do func() (*kind.Object, *apiError), answer func(*kind.Object, *apiError)) {
	w, c, life := p.w, p.cluster, p.life
	w.after(w.between(1, 30), func() {
		if p.life != life && w.chance(50) {
			return
		}
		reply := func(d engine.Time, o *kind.Object, err *apiError) {
			p.in(life, d, func() { answer(o, err) })
		}
		if c.down() {
			reply(w.between(10, second), nil, &apiError{"ServiceUnavailable", "connection refused"})
			return
		}
		switch t := c.fault(); t {
		case throttled:
			reply(w.between(1, 30), nil, &apiError{"TooManyRequests", "try again later"})
		case failed:
			reply(w.between(1, 30), nil, &apiError{"InternalError", "etcdserver: leader changed"})
		case failedYet:
			do()
			reply(w.between(1, 30), nil, &apiError{"InternalError", "etcdserver: leader changed"})
		case timedOut:
			reply(10*second, nil, &apiError{"Timeout", "context deadline exceeded"})
		case doneYet:
			do()
			reply(10*second, nil, &apiError{"Timeout", "context deadline exceeded"})
		case doneLate:
			w.after(w.between(11*second, 30*second), func() {
				w.late = true
				do()
				w.late = false
			})
			reply(10*second, nil, &apiError{"Timeout", "context deadline exceeded"})
		case conflict:
			reply(w.between(1, 30), nil, &apiError{"Conflict", "the object has been modified"})
		case notRouted:
			reply(w.between(1, 30), nil, &apiError{"", "404 page not found"})
		default:
			o, err := do()
			reply(w.between(1, 30), o, err)
		}
	})
}

// write executes a Write of the Reconciler, after what is to be remembered before it.
func (p *process) write(e reconcile.Write) {
	afterwards := func(err *apiError) {
		if err != nil {
			p.step(reconcile.WriteResult{ID: e.ID, Failure: &reconcile.Failure{Code: engine.Unavailable, Message: err.message}})
			return
		}
		p.carryOut(e)
	}
	switch {
	case e.Offline:
		p.ask(func() (*kind.Object, *apiError) {
			if p.online {
				return nil, &apiError{"Superseded", "a session has begun"}
			}
			if p.cluster.recall(leases, "agent").Incarnation != p.incarnation {
				return nil, &apiError{"Superseded", "another process of this agent has started"}
			}
			return nil, nil
		}, func(_ *kind.Object, err *apiError) { afterwards(err) })
	case e.Remember != nil && p.part != receiver: // a standby keeps no Lease
		p.remember(*e.Remember, afterwards)
	default:
		p.carryOut(e)
	}
}

func (p *process) carryOut(e reconcile.Write) {
	if p.w.mutant.swallow(p, e) {
		p.later(10, func() { p.step(reconcile.WriteResult{ID: e.ID, Object: e.Object}) })
		return
	}
	who := p.actor(e.Reason)
	st := p.cluster.st
	p.ask(func() (o *kind.Object, err *apiError) {
		object := p.w.mutant.written(p, e)
		err = p.cluster.denied(e.Verb.String(), e.Ref.Resource)
		switch {
		case err != nil:
		case e.Verb == reconcile.Create:
			o, err = st.create(who, e.Ref.Resource, object)
		case e.Verb == reconcile.Update:
			o, err = st.update(who, e.Ref.Resource, object)
		case e.Verb == reconcile.Delete:
			o, err = st.delete(who, e.Ref, object.UID(), object.ResourceVersion())
		}
		if p.w.trace != nil {
			p.w.tracef("%s: %s %s (%s): %s", p.name, e.Verb, short(e.Ref), e.Reason, outcome(o, err))
		}
		return o, err
	}, func(o *kind.Object, err *apiError) {
		p.step(reconcile.WriteResult{ID: e.ID, Object: o, Failure: failureOf(err)})
	})
}

// actor is the process as the sender of a request. The request may arrive when the process is gone and the agent has
// another mode.
func (p *process) actor(why string) actor {
	who := actor{what: p.name, proc: p, why: why, generation: p.generation}
	if p.spoke != nil {
		who.mode = p.spoke.agent.Mode
	}
	return who
}

func outcome(o *kind.Object, err *apiError) string {
	switch {
	case err != nil:
		return err.reason
	case o == nil:
		return "gone"
	}
	return "stored at " + o.ResourceVersion()
}

// failureOf is what kube will make of an API server's answer.
func failureOf(err *apiError) *reconcile.Failure {
	if err == nil {
		return nil
	}
	f := &reconcile.Failure{Message: err.message, Code: engine.Unavailable}
	switch err.reason {
	case "Conflict", "AlreadyExists", "NotFound":
		f.Stale = true
	case "Invalid":
		f.Code = engine.Invalid
	case "Forbidden":
		f.Code = engine.Forbidden
	case "RequestEntityTooLarge":
		f.Code = engine.TooLarge
	case "TooManyRequests":
		f.RetryAfter = second
	}
	return f
}

// read executes a Read of the Reconciler.
func (p *process) read(e reconcile.Read) {
	ref := e.Ref
	p.ask(func() (*kind.Object, *apiError) {
		if err := p.cluster.denied("get", ref.Resource); err != nil {
			return nil, err
		}
		if o := p.cluster.st.get(ref); o != nil {
			return o, nil
		}
		return nil, &apiError{"NotFound", "not found"}
	}, func(o *kind.Object, err *apiError) {
		switch {
		case o != nil:
			p.step(reconcile.Observed{Resource: ref.Resource, Object: p.w.mutant.seen(p, o), Read: true, ID: e.ID})
		case err.reason == "NotFound":
			p.step(reconcile.Deleted{Ref: ref, UID: e.UID, Read: true, ID: e.ID})
		} // else the Reconciler requests it again
	})
}

func short(ref kind.Ref) string { return ref.Resource.Plural + " " + ref.Namespace + "/" + ref.Name }
