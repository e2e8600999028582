package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// managedApp returns a pair whose hub has placed Application a on the spoke.
func managedApp(t *testing.T) *pair {
	t.Helper()
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	if p.replica() == nil {
		t.Fatal("the spoke has no copy")
	}
	return p
}

func (p *pair) replica() *kind.Object { return p.stores[kind.Spoke].objects[ref("argocd", "a")] }

// editUnseen changes an object without letting the node see it.
func (p *pair) editUnseen(side kind.Side, r kind.Ref, value string, path ...string) *kind.Object {
	p.t.Helper()
	return p.stores[side].put(r, set(p.t, p.stores[side].objects[r].Raw(), value, path...), false)
}

// once has the next write with a verb on a side answered by f.
func (p *pair) once(side kind.Side, verb Verb, f func(Write)) {
	p.hook = func(s kind.Side, w Write) bool {
		if s != side || w.Verb != verb {
			return false
		}
		p.hook = nil
		f(w)
		return true
	}
}

func (p *pair) stale(side kind.Side, w Write) {
	p.step(side, WriteResult{ID: w.ID, Failure: &Failure{Stale: true}})
}

// Something changes the object between our write and its answer. The watch is the faster.
func TestWriteResult_KeepsChangeObservedBefore(t *testing.T) {
	p := managedApp(t)
	p.once(kind.Spoke, Update, func(w Write) {
		mine := p.stores[kind.Spoke].put(w.Ref, w.Object.Raw(), false)
		theirs := p.editUnseen(kind.Spoke, w.Ref, `"theirs"`, "spec", "source", "targetRevision")
		p.step(kind.Spoke, Observed{Resource: w.Ref.Resource, Object: theirs})
		p.step(kind.Spoke, WriteResult{ID: w.ID, Object: mine})
	})
	p.edit(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
	if got := string(p.replica().Get("spec", "source", "targetRevision")); got != `"v2"` {
		t.Errorf("the spoke has %s, and that is unknown", got)
	}
}

// The object is created and deleted again before the answer to its creation arrives.
func TestWriteResult_ObjectDeletedBefore(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.once(kind.Spoke, Create, func(w Write) {
		c := p.stores[kind.Spoke]
		o := c.put(w.Ref, w.Object.Raw(), true)
		p.step(kind.Spoke, Observed{Resource: w.Ref.Resource, Object: o})
		delete(c.objects, w.Ref)
		c.rev++
		p.step(kind.Spoke, Deleted{Ref: w.Ref, UID: o.UID(), Revision: uint64(c.rev)})
		p.step(kind.Spoke, WriteResult{ID: w.ID, Object: o})
		if p.sides[kind.Spoke].cache.get(w.Ref) != nil {
			t.Error("the answer brings it back")
		}
	})
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.advanceTime(5 * engine.Second)
	if p.replica() == nil {
		t.Error("it is gone, and is not restored")
	}
}

func TestWriteResult_LastFinalizerRemoved(t *testing.T) {
	p := managedApp(t)
	n, r := p.sides[kind.Spoke], ref("argocd", "a")
	p.edit(kind.Spoke, r, quoted(foreignFinalizer), "metadata", "finalizers")
	p.edit(kind.Spoke, r, `"2026-01-01T00:00:00Z"`, "metadata", "deletionTimestamp")
	p.hook = func(side kind.Side, w Write) bool { return side == kind.Spoke } // what else there is to do waits
	stripped := object(t, string(set(t, p.replica().Raw(), `[]`, "metadata", "finalizers")))
	ended := false
	n.enqueue(r, job{name: "strip", decide: func(*kind.Object) decision { return decision{verb: Update, object: stripped} }, done: func(result) { ended = true }})
	var id uint64
	for i := range n.writing {
		id = i
	}
	p.step(kind.Spoke, WriteResult{ID: id, Object: stripped})
	if !ended || n.cache.get(r) != nil {
		t.Error("it counts as existing until the watch reports")
	}
}

func TestJob_RetriesImmediatelyIfCacheIsNewer(t *testing.T) {
	p := managedApp(t)
	p.once(kind.Spoke, Update, func(w Write) {
		p.step(kind.Spoke, Observed{Resource: w.Ref.Resource, Object: p.editUnseen(kind.Spoke, w.Ref, `{"x":"y"}`, "metadata", "labels")})
		p.stale(kind.Spoke, w)
	})
	p.edit(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
	if got := string(p.replica().Get("spec", "source", "targetRevision")); got != `"v2"` {
		t.Errorf("the spoke has %s", got)
	}
}

func TestJob_ReadsObjectThatWatchDoesNotShow(t *testing.T) {
	p := managedApp(t)
	p.once(kind.Spoke, Update, func(w Write) {
		p.editUnseen(kind.Spoke, w.Ref, `{"x":"y"}`, "metadata", "labels")
		p.stale(kind.Spoke, w)
	})
	p.edit(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
	wake, ok := p.sides[kind.Spoke].NextWake()
	if !ok || wake > p.now+rereadAfter {
		t.Fatalf("wants to be woken at %d, now it is %d", wake, p.now)
	}
	p.now = wake
	p.step(kind.Spoke, Tick{})
	p.settle()
	if got := string(p.replica().Get("spec", "source", "targetRevision")); got != `"v2"` {
		t.Errorf("the spoke has %s", got)
	}
}

func TestJob_StartedJobIsAnswered(t *testing.T) {
	p := managedApp(t)
	n, r := p.sides[kind.Spoke], ref("argocd", "a")
	var writes []Write
	p.hook = func(_ kind.Side, w Write) bool {
		writes = append(writes, w)
		return true
	}
	done := 0
	for i := range 2 {
		first := i == 0
		n.enqueue(r, job{name: "x", decide: func(local *kind.Object) decision {
			if !first {
				return decision{}
			}
			return decision{verb: Update, object: local}
		}, done: func(result) { done++ }})
	}
	for i := range n.writing {
		p.step(kind.Spoke, WriteResult{ID: i, Object: p.replica()})
	}
	if done != 2 {
		t.Errorf("%d of 2 jobs are answered", done)
	}
}

func TestRemove_ChangedObjectStays(t *testing.T) {
	p := managedApp(t)
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	deletes := 0
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Verb != Delete {
			return false
		}
		if deletes++; deletes > 1 {
			return false
		}
		changed := p.editUnseen(kind.Spoke, w.Ref, `"from another session"`, "spec", "source", "targetRevision")
		p.stale(kind.Spoke, w)
		p.step(kind.Spoke, Observed{Resource: w.Ref.Resource, Object: changed})
		return true
	}
	p.removeOnHub(ref("w1", "a"), true)
	if deletes != 1 {
		t.Error("it is removed although it is another by now")
	}
}

// The removal itself takes the finalizer off, which is part of what was to be removed.
func TestRemove_ContinuesAfterItsOwnWrite(t *testing.T) {
	p := managedApp(t)
	p.edit(kind.Hub, ref("w1", "a"), quoted(resourcesFinalizer), "metadata", "finalizers")
	if len(p.replica().Finalizers()) == 0 {
		t.Fatal("the finalizer has not arrived")
	}
	p.removeOnHub(ref("w1", "a"), true)
	if p.replica() != nil {
		t.Error("it is still there")
	}
}

// A write of a session that is over has run into a change. Another session may have decided otherwise by now.
func TestJob_OfClosedSessionIsNotRetried(t *testing.T) {
	for name, next := range map[string]func(*pair){
		"no session":      func(*pair) {},
		"another session": func(p *pair) { p.connect() },
	} {
		t.Run(name, func(t *testing.T) {
			p := managedApp(t)
			var pending Write
			p.once(kind.Spoke, Update, func(w Write) { pending = w })
			p.edit(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
			p.disconnect()
			p.edit(kind.Hub, ref("w1", "a"), `"v1"`, "spec", "source", "targetRevision")
			next(p)
			p.hook = func(side kind.Side, w Write) bool {
				if side == kind.Spoke && strings.Contains(string(w.Object.Get("spec")), "v2") {
					t.Error("what the earlier session wanted is written")
				}
				return false
			}
			p.step(kind.Spoke, Observed{Resource: kind.Applications, Object: p.editUnseen(kind.Spoke, ref("argocd", "a"), `{"x":"y"}`, "metadata", "labels")})
			p.stale(kind.Spoke, pending)
			p.settle()
		})
	}
}

func TestApply_ReturningApplicationIsNotSynced(t *testing.T) {
	p := managedApp(t)
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	p.sides[kind.Spoke].cfg.Policy.ResyncRecreated = true
	p.edit(kind.Hub, ref("w1", "a"), `{"`+kind.IgnoreSync+`":"true"}`, "metadata", "labels")
	if p.replica() != nil {
		t.Fatal("it has not left")
	}
	p.edit(kind.Hub, ref("w1", "a"), `{}`, "metadata", "labels")
	if p.replica() == nil || p.replica().Get("operation") != nil {
		t.Error("it is not back, or is synced")
	}
}

// A controller on the spoke takes the annotations from what is written.
func TestApply_ObjectWithoutOwnershipDoesNotCountAsOurs(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Verb == Delete {
			return false
		}
		o := p.stores[side].put(w.Ref, set(t, w.Object.Raw(), `{}`, "metadata", "annotations"), w.Verb == Create)
		p.step(side, WriteResult{ID: w.ID, Object: o})
		return true
	}
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	if n := p.owned(kind.Spoke, "", kind.ApplicationScope); n != 0 {
		t.Errorf("%d objects count as ours", n)
	}
}

// owned returns how many objects a replica counts as ours.
func (p *pair) owned(side kind.Side, agent, scope string) int {
	st, _ := p.sides[side].Status(agent)
	for _, s := range st.Scopes {
		if s.Name == scope {
			return s.Items
		}
	}
	return -1
}

func TestNotify_ObjectsOfOthersDoNotCountAsOurs(t *testing.T) {
	p := newPair(t, kind.Managed)
	for i := range 15 { // so many that their removal would be held
		name := fmt.Sprint("local", i)
		p.user(kind.Spoke, ref("argocd", name), app("argocd", name, "default", "v1"))
	}
	p.connect()
	for _, f := range p.events {
		if f.Type == engine.HoldStarted {
			t.Errorf("held: %+v", f.Held)
		}
	}
	if n := p.owned(kind.Spoke, "", kind.ApplicationScope); n != 0 {
		t.Errorf("%d objects count as ours", n)
	}
}

func TestContestedField_WritesAreBounded(t *testing.T) {
	p := managedApp(t)
	insisting := true
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Verb != Update || !insisting || !strings.Contains(w.Reason, "apply") {
			return false
		}
		o := p.stores[side].put(w.Ref, w.Object.Raw(), false)
		p.step(side, WriteResult{ID: w.ID, Object: o})
		p.step(side, Observed{Resource: w.Ref.Resource, Object: p.editUnseen(side, w.Ref, `"theirs"`, "spec", "source", "targetRevision")})
		return true
	}
	p.edit(kind.Spoke, ref("argocd", "a"), `"theirs"`, "spec", "source", "targetRevision")
	p.waitSeconds(120)
	reported := false
	for _, f := range p.events {
		reported = reported || f.Type == engine.Aliased
	}
	if !reported {
		t.Error("no user hears of it")
	}
}

func TestAlias_IsRecordedOnObject(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Verb != Create {
			return false
		}
		o := p.stores[side].put(w.Ref, set(t, w.Object.Raw(), `"default"`, "spec", "normalised"), true)
		p.step(side, WriteResult{ID: w.ID, Object: o})
		return true
	}
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	if p.replica().Annotation(kind.AliasAnnotation) == "" {
		t.Error("after a restart it would be written again")
	}
}

func TestAlias_IsRecordedOnlyForItsContent(t *testing.T) {
	for _, c := range []struct {
		name, annotations, meta string
		changed                 bool
		want                    int
	}{
		{"as it was stored", ours, ``, false, 1},
		{"changed since", ours, ``, true, 0},
		{"not ours", ``, ``, false, 0},
		{"being deleted", ours, going, false, 0},
	} {
		p, l := spokeSync(t)
		o := spokeApp(t, c.annotations, c.meta)
		p.stores[kind.Spoke].objects[ref("argocd", "a")] = o
		p.step(kind.Spoke, Observed{Resource: kind.Applications, Object: o})
		stored := l.storedVersion(l.scope(kind.ApplicationScope), o)
		if c.changed {
			stored = engine.VersionOf([]byte("something else"))
		}
		writes := len(l.reconciler.writing)
		l.recordAlias(engine.RecordAlias{Scope: kind.ApplicationScope, Key: engine.Key{Name: "a"}, Alias: engine.Alias{Written: engine.VersionOf([]byte("x")), Stored: stored}})
		if got := len(l.reconciler.writing) - writes; got != c.want {
			t.Errorf("%s: %d writes", c.name, got)
		}
	}
}

func TestCache_OlderStateDoesNotReplaceNewer(t *testing.T) {
	p := newPair(t, kind.Managed)
	at := func(rev, label string) *kind.Object {
		return object(t, `{"metadata":{"namespace":"w1","name":"a","uid":"u1","resourceVersion":"`+rev+`","labels":{"at":"`+label+`"}},"spec":{}}`)
	}
	p.step(kind.Hub, Observed{Resource: kind.Applications, Object: at("9", "new")})
	p.step(kind.Hub, Observed{Resource: kind.Applications, Object: at("8", "old")})
	if got := p.sides[kind.Hub].cache.get(ref("w1", "a")).Label("at"); got != "new" {
		t.Errorf("the cache has the %s one", got)
	}
	p.step(kind.Hub, Deleted{Ref: ref("w1", "a"), Revision: 5})
	if p.sides[kind.Hub].cache.get(ref("w1", "a")) == nil {
		t.Error("an event of long ago removes it")
	}
	p.step(kind.Hub, List{Resource: kind.Applications, Revision: 7})
	if p.sides[kind.Hub].cache.get(ref("w1", "a")) == nil {
		t.Error("a list of long ago removes it")
	}
}

func TestCache_StaleListDoesNotRestoreObject(t *testing.T) {
	p := newPair(t, kind.Managed)
	n, r := p.sides[kind.Hub], ref("w1", "a")
	o := object(t, `{"metadata":{"namespace":"w1","name":"a","uid":"u1","resourceVersion":"5"},"spec":{}}`)
	p.step(kind.Hub, Observed{Resource: r.Resource, Object: o})
	p.step(kind.Hub, Deleted{Ref: r, UID: "u1", Read: true})
	p.step(kind.Hub, List{Resource: r.Resource, Objects: []*kind.Object{o}, Revision: 6})
	p.step(kind.Hub, Observed{Resource: r.Resource, Object: object(t, `{"metadata":{"namespace":"w1","name":"a","uid":"u1","resourceVersion":"7"},"spec":{}}`)})
	if n.cache.get(r) != nil {
		t.Error("it is back")
	}
}

// The watch shows the end of one object and the beginning of the next as one change.
func TestApply_RecreatedApplicationIsAnother(t *testing.T) {
	p := managedApp(t)
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	writes := p.recordSpoke()
	delete(p.stores[kind.Hub].objects, ref("w1", "a"))
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	var verbs []string
	for _, w := range *writes {
		if w.Ref.Name == "a" {
			verbs = append(verbs, w.Verb.String())
		}
	}
	if got := strings.Join(verbs, " "); got != "delete create" {
		t.Errorf("the spoke does: %s", got)
	}
}
