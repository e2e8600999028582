package sim

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// newIdleWorld returns a world of one managed agent in which nothing happens by itself.
func newIdleWorld(t *testing.T) (*world, *spoke) {
	t.Helper()
	w := newWorld(1, shape{replicas: 1, mapping: kind.ByNamespace, steady: true,
		agents: []agentShape{{name: "a", mode: kind.Managed, hubNamespace: "a", argo: "argocd"}}})
	w.install(w.hub)
	return w, w.spokes[0]
}

// copyOf puts a copy of a hub's object on the spoke, as an agent would.
func copyOf(t *testing.T, s *spoke, name, source string) *kind.Object {
	t.Helper()
	app := application("argocd", name, "in-cluster", "r1")
	put(app, tree{sourceKey: source, principalKey: principalUID}, "metadata", "annotations")
	o := s.cluster.create("test", kind.Applications, app)
	if o == nil {
		t.Fatalf("%s is refused", name)
	}
	return o
}

func TestLedger_ReasonEndsWhenOwnerPublishesAgain(t *testing.T) {
	w, s := newIdleWorld(t)
	l := w.ledger
	l.note("src-1", "a", true)
	if l.mayRemove(s, "src-1") {
		t.Error("what is published may be removed")
	}
	l.note("src-1", "a", false)
	if !l.mayRemove(s, "src-1") {
		t.Error("what was given up may not be removed")
	}
	l.note("src-1", "a", true)
	if !l.mayRemove(s, "src-1") {
		t.Error("an agent that cannot have heard of it yet is blamed")
	}
	w.now += 2 * minute
	if l.mayRemove(s, "src-1") {
		t.Error("what is published again may still be removed")
	}
}

func TestLedger_ConfirmationCoversShownItems(t *testing.T) {
	w, s := newIdleWorld(t)
	l := w.ledger
	l.note("src-1", "a", true)
	copyOf(t, s, "kept", "src-1")
	copyOf(t, s, "lost", "src-2")
	shown := func(scope string, cause engine.Cause, elsewhere bool, names ...string) hold {
		h := &engine.Held{Scope: scope, ID: "id", Cause: cause, Count: uint64(len(names))}
		for _, n := range names {
			h.Sample = append(h.Sample, engine.Key{Name: n})
		}
		return hold{agent: "a", scope: scope, id: h.ID, what: h, elsewhere: elsewhere}
	}
	l.confirmed(shown(kind.AppProjectScope, engine.CauseHalf, true, "lost"))
	if l.mayRemove(s, "src-2") {
		t.Error("a confirmation covers another scope")
	}
	l.confirmed(shown(kind.ApplicationScope, engine.CauseHalf, false, "lost"))
	if l.mayRemove(s, "src-2") {
		t.Error("a confirmation of what the hub holds back covers what the agent does")
	}
	l.confirmed(shown(kind.ApplicationScope, engine.CauseHalf, true, "other"))
	if l.mayRemove(s, "src-2") {
		t.Error("a confirmation covers what was not shown")
	}
	l.confirmed(shown(kind.ApplicationScope, engine.CauseFleet, true, "lost"))
	if !l.mayRemove(s, "src-2") || l.agreed["src-2@a"] {
		t.Error("the hub's word is taken for a user's, or does not count at all")
	}
	l.confirmed(shown(kind.ApplicationScope, engine.CauseHalf, true, "kept", "lost"))
	if !l.mayRemove(s, "src-2") || !l.agreed["src-2@a"] {
		t.Error("what was confirmed may not be removed")
	}
	if l.mayRemove(s, "src-1") || l.agreed["src-1@a"] {
		t.Error("a confirmation covers what the owner has")
	}
	l.placed["src-3@a"] = true
	copyOf(t, s, "later", "src-3")
	if l.mayRemove(s, "src-3") {
		t.Error("a confirmation covers what was lost later")
	}
}

func TestLedger_RestoredApplicationIsNotDeleted(t *testing.T) {
	w, s := newIdleWorld(t)
	app := application("a", "web", "a", "r1")
	addFinalizer(app, cascade)
	o := w.hub.create(userName, kind.Applications, app)
	before := w.hub.st.snapshot()
	w.hub.remove(userName, refOf(kind.Applications, o))
	if !w.ledger.mayCascade(s, o.UID()) {
		t.Fatal("a user has deleted it with its resources, and that is not known")
	}
	w.hub.st.restore(before)
	w.ledger.hubRestored()
	w.now += 2 * minute
	if w.ledger.mayCascade(s, o.UID()) {
		t.Error("the backup has brought it back, and its resources may still be deleted")
	}
}

func TestLedger_DetectsOlderSpec(t *testing.T) {
	w, s := newIdleWorld(t)
	o := w.hub.create(userName, kind.Applications, application("a", "web", "a", "r1"))
	w.hub.edit(userName, refOf(kind.Applications, o), func(t tree) { put(t, "r2", "spec", "source", "targetRevision") })
	was := copyOf(t, s, "web", o.UID())
	at := func(revision string) *kind.Object {
		c := decode(was)
		put(c, revision, "spec", "source", "targetRevision")
		return encode(c)
	}
	check := func(from, to string) bool {
		found := false
		w.guardBackward(s, change{ref: refOf(kind.Applications, was), old: at(from), new: at(to)}, func(string) { found = true })
		return found
	}
	if check("r1", "r2") {
		t.Error("a spec that goes forward is called one that goes back")
	}
	if !check("r2", "r1") {
		t.Error("a spec goes back, and that is not noticed")
	}
	if check("local", "r1") {
		t.Error("a corrected edit on the spoke counts as backward")
	}
	w.ledger.hubRestored()
	if !check("r2", "r1") {
		t.Error("a backward spec of an unconfirmed hub is not noticed")
	}
	w.ledger.confirmed(hold{agent: "a", elsewhere: true})
	if check("r2", "r1") {
		t.Error("a user has agreed to the restored hub, and its specs are not accepted")
	}
}

func TestLedger_LostSpecIsOlderExceptInTheStoreThatGotItBack(t *testing.T) {
	for name, c := range map[string]struct {
		lossy, elsewhere, edited bool
		want                     bool // the older spec is noticed
	}{
		"an operator accepted the loss":        {lossy: true},
		"the promoted hub lacked nothing":      {want: true},
		"the agent follows another store":      {lossy: true, elsewhere: true, want: true},
		"users came to another spec afterward": {lossy: true, edited: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := newIdleWorld(t)
			w.shape.hubLease = false
			w.addHub()
			o := w.hub.create(userName, kind.Applications, application("a", "web", "a", "r1"))
			edit := func(revision string) {
				w.hub.edit(userName, refOf(kind.Applications, o), func(t tree) { put(t, revision, "spec", "source", "targetRevision") })
			}
			edit("r2")
			newer := w.hub.st.get(refOf(kind.Applications, o))
			w.group.sites[1].lossy = c.lossy
			w.ledger.received(w.hub, change{ref: refOf(kind.Applications, o), old: newer, new: o})
			from := "r2"
			if c.elsewhere {
				w.ledger.leaveStore(s)
			}
			if c.edited {
				edit("r3")
				from = "r3"
			}
			if got := w.ledger.goesBack(s.agent.Name, o.UID(), from, "r1"); got != c.want {
				t.Errorf("goes back: %v", got)
			}
		})
	}
}

func TestLedger_HooksNeedDeletionByUser(t *testing.T) {
	for name, c := range map[string]struct {
		delete bool
		want   int
	}{
		"a user has deleted it": {true, 0},
		"not deleted":           {false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := newIdleWorld(t)
			o := copyOf(t, s, "web", "src-1")
			if c.delete {
				s.cluster.remove(spokeUser, refOf(kind.Applications, o))
			}
			w.ledger.hookRan(s.cluster, refOf(kind.Applications, o), decode(o), "post-delete")
			if len(w.violations) != c.want {
				t.Errorf("violations: %v", w.violations)
			}
		})
	}
}

func TestLedger_CountsRemovalsByAbsence(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for name, c := range map[string]struct {
		remove int
		before func(*world, *process)
		want   int // violations
	}{
		"half of them":             {2, func(*world, *process) {}, 0},
		"more than half":           {3, func(*world, *process) {}, 1},
		"the owner asked for each": {4, func(_ *world, p *process) { requestRemovals(p, names) }, 0},
		"a user agreed to each": {4, func(w *world, _ *process) {
			for _, n := range names {
				w.ledger.agreed["src-"+n+"@a"] = true
			}
		}, 0},
		"one long ago and half of them now": {2, func(_ *world, p *process) {
			p.absent["a/application"].at["argocd/x"] = -budgetWindow - 1
		}, 0},
		"one just now and half of them now": {2, func(_ *world, p *process) { p.absent["a/application"].at["argocd/x"] = 0 }, 1},
		"one just now and a user agreed to the last": {1, func(w *world, p *process) {
			p.absent["a/application"].at["argocd/x"] = 0
			w.ledger.agreed["src-a@a"] = true
			leaveFirst(w, names)
		}, 0},
		"a user agreed to another one than the last": {1, func(w *world, p *process) {
			w.ledger.agreed["src-b@a"] = true
			leaveFirst(w, names)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := newIdleWorld(t)
			p := s.process
			p.requested, p.asked, p.absent = map[string]bool{}, map[kind.Ref]bool{}, map[string]*absence{"a/application": {at: map[string]engine.Time{}}}
			for _, n := range names {
				copyOf(t, s, n, "src-"+n)
			}
			c.before(w, p)
			for _, n := range names[:c.remove] {
				r := ref(kind.Applications, "argocd", n)
				o := s.cluster.st.get(r)
				p.decides(reconcile.Write{Verb: reconcile.Delete, Ref: r, Reason: "remove application", Origin: reconcile.Origin{Scope: kind.ApplicationScope}})
				if _, err := s.cluster.st.delete(actor{what: "test"}, r, "", ""); err != nil {
					t.Fatal(err.message)
				}
				w.guardBudget(s, actor{what: "a", proc: p, why: "remove application"}, change{ref: r, old: o, final: o},
					func(what string) { w.violate("%s", what) })
			}
			if len(w.violations) != c.want {
				t.Errorf("violations: %v", w.violations)
			}
		})
	}
}

// requestRemovals has the owner ask for the removal of items.
func requestRemovals(p *process, names []string) {
	for _, n := range names {
		p.received("a", engine.Delta{Scope: kind.ApplicationScope, Items: []engine.DeltaItem{{Key: engine.Key{Name: n}, Gone: true}}})
	}
}

// leaveFirst takes all copies but the first off the spoke.
func leaveFirst(w *world, names []string) {
	for _, n := range names[1:] {
		w.spokes[0].cluster.remove(spokeUser, ref(kind.Applications, "argocd", n))
	}
}

// A world rests only when commands are answered, also those of Applications that cannot be finalised.
func TestDifferences_PendingCommandOfDeletingApplication(t *testing.T) {
	own := tree{"metadata": tree{"deletionTimestamp": "2026-01-01T00:00:00Z"}}
	for _, c := range []struct {
		name string
		hub  tree
		want int
	}{
		{"a command is pending", tree{"operation": tree{"sync": tree{}}}, 1},
		{"it was answered", tree{"status": tree{"operationState": tree{"phase": "Error"}}}, 0},
	} {
		d := differ{}
		d.status("argocd/a", c.hub, own)
		if len(d.found) != c.want {
			t.Errorf("%s: %q", c.name, d.found)
		}
	}
}
