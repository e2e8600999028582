package sim

import (
	"slices"
	"sort"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// watch is one watch at an API server: it passes changes on in their order, one after the other, late.
type watch struct {
	st        *store
	resource  kind.Resource
	namespace string // "": all
	pos       uint64 // the last revision passed on
	ended     bool
	planned   bool
	plan      func(run func()) // after the lag of the moment
	deliver   func(change)
	expired   func()
	closed    func()
}

// next returns the index of the next change to pass on, or that of none.
func (w *watch) next(log []change, from int) int {
	for from < len(log) && w.namespace != "" && log[from].ref.Namespace != w.namespace {
		from++
	}
	return from
}

func (s *store) watch(w *watch) {
	w.st = s
	s.watches = append(s.watches, w)
	w.kick()
}

func (w *watch) kick() {
	if w.planned || w.ended {
		return
	}
	w.planned = true
	w.plan(w.pump)
}

func (w *watch) pump() {
	w.planned = false
	if w.ended {
		return
	}
	if w.pos < w.st.floor {
		w.stop()
		w.expired()
		return
	}
	log := w.st.logs[w.resource]
	i := w.next(log, sort.Search(len(log), func(i int) bool { return log[i].rev > w.pos }))
	if i == len(log) {
		return
	}
	w.pos = log[i].rev
	more := w.next(log, i+1) < len(log)
	w.deliver(log[i])
	if more {
		w.kick()
	}
}

func (w *watch) stop() {
	w.ended = true
	w.st.watches = slices.DeleteFunc(w.st.watches, func(o *watch) bool { return o == w })
}

// end is a cut by the server or on the way.
func (w *watch) end() {
	if w.ended {
		return
	}
	w.stop()
	w.closed()
}

// reflector keeps the Reconciler of a process informed of one resource: list, then watch, and again from the list when
// the watch cannot go on.
type reflector struct {
	p         *process
	resource  kind.Resource
	namespace string // "": all
	watch     *watch
	listing   bool
	frontier  uint64 // the highest revision heard of
}

func (r *reflector) list() {
	if r.listing {
		return
	}
	r.listing = true
	var objects []*kind.Object
	var rev uint64
	r.p.ask(func() (*kind.Object, *apiError) {
		if err := r.p.cluster.denied("list", r.resource); err != nil {
			return nil, err
		}
		objects, rev = r.p.cluster.st.list(r.resource), r.p.cluster.st.rev
		objects = slices.DeleteFunc(objects, func(o *kind.Object) bool { return r.namespace != "" && o.Namespace() != r.namespace })
		return nil, nil
	}, func(_ *kind.Object, err *apiError) {
		r.listing = false
		if err != nil {
			r.p.step(reconcile.Unreadable{Resource: r.resource, Namespace: r.namespace, Reason: err.message})
			r.p.later(r.p.w.between(second, 5*second), r.list)
			return
		}
		if rev < r.frontier {
			// The store has regressed. This process can no longer trust its state.
			r.p.w.tracef("%s: the API server has gone back from %d to %d: start afresh", r.p.name, r.frontier, rev)
			r.p.resetMarks()
			r.p.restartIn(second)
			return
		}
		r.frontier = rev
		objects = r.p.w.mutant.listed(r.p, objects)
		r.pass(reconcile.List{Resource: r.resource, Namespace: r.namespace, Objects: objects, Revision: rev})
	})
}

// pass passes a list to the Reconciler, and then watches. Applications come in pages, with other inputs in between.
func (r *reflector) pass(in reconcile.List) {
	if count := len(in.Objects); r.p.w.shape.pages && r.resource == kind.Applications && count > 1 && r.p.w.pages.IntN(3) > 0 {
		first := in
		first.Objects, first.More = in.Objects[:1+r.p.w.pages.IntN(count-1)], true
		r.p.step(first)
		in.Objects, in.Continues = in.Objects[len(first.Objects):], true
		r.listing = true
		r.p.later(engine.Time(r.p.w.pages.IntN(300)), func() { r.listing = false; r.pass(in) })
		return
	}
	r.p.step(in)
	r.follow(in.Revision)
}

// follow watches from a revision on.
func (r *reflector) follow(rev uint64) {
	if r.watch != nil && !r.watch.ended {
		r.watch.stop()
	}
	p, life := r.p, r.p.life
	again := func() { p.later(p.w.between(50, second), r.list) }
	w := &watch{resource: r.resource, namespace: r.namespace, pos: rev}
	w.plan = func(run func()) { p.in(life, p.cluster.watchLag(), run) }
	w.deliver = func(c change) {
		r.frontier = c.rev
		if c.new != nil {
			p.step(reconcile.Observed{Resource: r.resource, Object: p.w.mutant.seen(p, c.new)})
		} else {
			p.step(reconcile.Deleted{Ref: c.ref, UID: c.old.UID(), Revision: c.rev})
		}
	}
	w.expired = again
	w.closed = func() {
		p.in(life, p.w.between(50, 2*second), func() {
			if p.cluster.down() || p.cluster.st.rev < w.pos {
				again()
				return
			}
			r.follow(w.pos)
		})
	}
	r.watch = w
	p.cluster.st.watch(w)
}

// bookmark reports how far an idle watch is.
func (r *reflector) bookmark() {
	if w := r.watch; w != nil && !w.ended && w.upToDate() {
		w.pos = w.st.rev
		r.frontier = w.pos
		r.p.step(reconcile.Bookmark{Resource: r.resource, Namespace: r.namespace, Revision: w.pos})
	}
}

// upToDate reports whether there is nothing to pass on.
func (w *watch) upToDate() bool {
	log := w.st.logs[w.resource]
	i := sort.Search(len(log), func(i int) bool { return log[i].rev > w.pos })
	return w.pos >= w.st.floor && w.next(log, i) == len(log)
}

func (c *cluster) watchLag() engine.Time {
	if c.w.now < c.lagUntil {
		return c.w.between(second, c.lag)
	}
	return c.w.between(1, 60)
}
