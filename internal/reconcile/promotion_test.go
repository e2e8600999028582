package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// hubObjects returns what a principal of the hub sees.
func (p *pair) hubObjects() []*kind.Object {
	return slices.Collect(maps.Values(p.stores[kind.Hub].objects))
}

// promote returns a standby with everything that the hub has, after its promotion, and a new process of the agent.
func (p *pair) promote(generation, received uint64) *pair {
	p.t.Helper()
	before := engine.Store{UID: "h", Revision: received}
	p.sides[kind.Hub].cfg.Generation, p.sides[kind.Hub].cfg.Predecessor = generation, before
	q := p.restartWith(p.sides[kind.Spoke].Memory(), uint64(p.stores[kind.Hub].rev), p.hubObjects()...)
	q.hubStore = "h2"
	return q
}

// Two hubs have one identity and generation. An agent with several addresses does not follow the second one, also after a
// restart. An agent with one address does, and holds.
func TestPromotion_TwoHubsOfOneGeneration(t *testing.T) {
	for name, oneHub := range map[string]bool{"several addresses": true, "one address": false} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			p.connect()
			p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
			memory := p.sides[kind.Spoke].Memory()
			p.sides[kind.Spoke].cfg.OneHub = oneHub
			copied := p.restartWith(memory, uint64(p.stores[kind.Hub].rev), p.hubObjects()...)
			copied.hubStore = "h2"
			copied.connect()
			copied.user(kind.Hub, ref("w1", "new"), app("w1", "new", "default", "v1"))
			created := copied.stores[kind.Spoke].objects[ref("argocd", "new")] != nil
			if status, _ := copied.sides[kind.Spoke].Status(""); status.Connected == oneHub || created == oneHub || (status.StoreHoldID == "") != oneHub {
				t.Errorf("connected: %v, hold %q, an Application was created: %v", status.Connected, status.StoreHoldID, created)
			}
			if got := copied.sides[kind.Spoke].Memory(); oneHub && (got.Store != memory.Store || got.Generation != memory.Generation || got.StoreUntrusted) {
				t.Errorf("the agent knows %+v, before %+v", got, memory)
			}
		})
	}
}

// failOver returns a promoted hub that has received the objects up to a revision, and a new process of the agent.
func (p *pair) failOver(received uint64, objects map[kind.Ref]*kind.Object) *pair {
	p.t.Helper()
	p.stores[kind.Hub].objects = maps.Clone(objects)
	q := p.promote(2, received)
	q.connect()
	q.waitSeconds(70)
	return q
}

// expectGone fails if a replica is on the spoke.
func (p *pair) expectGone(name, when string) {
	p.t.Helper()
	if p.stores[kind.Spoke].objects[ref("argocd", name)] != nil {
		status, _ := p.sides[kind.Spoke].Status("")
		p.t.Fatalf("%s: Application %s, which users deleted, is back at %s. Hold: %q", when, name, p.spokeRevision(name), status.StoreHoldID)
	}
}

// A promoted hub orders many deletions before a user confirms its store. It still does not bring back what it has not received.
func TestPromotion_ManyDeletionsDisplaceNoRemoval(t *testing.T) {
	p := pairWithApplications(t, "a", "b", "c", "d", "e")
	received, stale := uint64(p.stores[kind.Hub].rev), maps.Clone(p.stores[kind.Hub].objects)
	p.removeOnHub(ref("w1", "a"), true)
	q := p.failOver(received, stale)
	q.expectGone("a", "after the promotion")
	for i := range engine.MaxRemovals + 1 {
		name := fmt.Sprint("x-", i)
		q.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
		q.removeOnHub(ref("w1", name), true)
	}
	q.waitSeconds(600)
	q.expectGone("a", "after many deletions")
}

// Users delete an Application, create another one of its name and delete that too. The promoted hub has only received the first
// one. It is held, also if the policy replaces the replica and the second one was never written.
func TestPromotion_OlderApplicationOfTheNameIsHeld(t *testing.T) {
	for name, tc := range map[string]struct{ recreate, refuse bool }{"updated": {}, "replaced": {recreate: true}, "replacement is refused": {true, true}} {
		t.Run(name, func(t *testing.T) {
			p := pairWithApplications(t, "a", "b", "c", "d", "e")
			p.sides[kind.Spoke].cfg.Policy.Recreate = tc.recreate
			received, stale := uint64(p.stores[kind.Hub].rev), maps.Clone(p.stores[kind.Hub].objects)
			p.hook = func(side kind.Side, w Write) bool {
				refused := tc.refuse && side == kind.Spoke && w.Verb == Create
				if refused {
					p.step(side, WriteResult{ID: w.ID, Failure: &Failure{Code: engine.Invalid, Message: "a webhook rejects it"}})
				}
				return refused
			}
			p.disconnect()
			p.stores[kind.Hub].rev++
			delete(p.stores[kind.Hub].objects, ref("w1", "a"))
			p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
			p.connect()
			p.waitSeconds(10)
			if o := p.stores[kind.Spoke].objects[ref("argocd", "a")]; tc.refuse != (o == nil) || o != nil && p.spokeRevision("a") != "v2" {
				t.Fatalf("the replica is %v", o)
			}
			p.removeOnHub(ref("w1", "a"), true)
			p.expectGone("a", "after its deletion")
			p.failOver(received, stale).expectGone("a", "after the promotion")
		})
	}
}

// A promoted hub continues, objects record its generation, and the hub before it is not followed again.
func TestPromotion_AgentFollowsTheNewHub(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	local := func(p *pair, name string) *kind.Object { return p.stores[kind.Spoke].objects[ref("argocd", name)] }
	if local(p, "a") == nil || local(p, "a").Annotation(kind.SourceGenerationAnnotation) != "" {
		t.Fatalf("before the promotion: %v", local(p, "a"))
	}

	q := p.promote(2, uint64(p.stores[kind.Hub].rev))
	q.connect()
	if m := q.sides[kind.Spoke].Memory(); m.Generation != (engine.HubGeneration{Hub: "principal-1", Number: 2, Store: "h2"}) || m.StoreUntrusted || m.Store.UID != "h2" {
		t.Fatalf("the agent knows %+v", m)
	}
	q.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
	if got := local(q, "a"); got.Annotation(kind.SourceGenerationAnnotation) != "2" {
		t.Errorf("the update was not written, or without its generation: %s", got.Raw())
	}
	if got := local(q, "b"); got == nil || got.Annotation(kind.SourceGenerationAnnotation) != "" {
		t.Error("an object that is equal was written")
	}

	q.sides[kind.Hub].cfg.Generation, q.sides[kind.Hub].cfg.Predecessor = 0, engine.Store{}
	old := q.restartWith(q.sides[kind.Spoke].Memory(), uint64(q.stores[kind.Hub].rev), q.hubObjects()...)
	old.connect()
	old.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v2"))
	if status, _ := old.sides[kind.Spoke].Status(""); status.Connected {
		t.Error("the agent follows the old hub")
	}
}

// The promoted hub has not received the last change: it does not undo it.
func TestPromotion_HubUndoesNothing(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	received := uint64(p.stores[kind.Hub].rev)
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	delete(p.stores[kind.Hub].objects, ref("w1", "b"))
	q := p.promote(2, received)
	q.connect()
	q.waitSeconds(70)
	if m := q.sides[kind.Spoke].Memory(); !m.StoreUntrusted || m.Store.UID != "h" {
		t.Errorf("the agent knows %+v", m)
	}
	if q.stores[kind.Spoke].objects[ref("argocd", "b")] == nil {
		t.Error("an Application is lost that the promoted hub has never received")
	}
}

// The promoted hub has not received the last deletion: the Application does not come back before a user confirms that, also
// if the agent was killed right after the deletion. An Application that was created again under the same name is not held.
func TestPromotion_HubBringsNothingBack(t *testing.T) {
	for name, remove := range map[string]func(*pair, kind.Ref){
		"by its word": func(p *pair, r kind.Ref) { p.removeOnHub(r, true) },
		"by absence":  func(p *pair, r kind.Ref) { p.removeOnHub(r, false); p.waitSeconds(70) },
		"with its resources": func(p *pair, r kind.Ref) {
			p.user(kind.Hub, r, deleting(t, string(p.stores[kind.Hub].objects[r].Raw())))
			delete(p.stores[kind.Hub].objects, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			p.connect()
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
			}
			received := uint64(p.stores[kind.Hub].rev)
			stale := maps.Clone(p.stores[kind.Hub].objects)
			memory := p.remembered()
			for _, name := range []string{"a", "b"} {
				remove(p, ref("w1", name))
			}
			has := func(p *pair, name string) bool { return p.stores[kind.Spoke].objects[ref("argocd", name)] != nil }
			if has(p, "a") || has(p, "b") {
				t.Fatal("the replicas were not deleted")
			}
			p.stores[kind.Hub].objects = stale
			p.sides[kind.Hub].cfg.Generation, p.sides[kind.Hub].cfg.Predecessor = 2, engine.Store{UID: "h", Revision: received}
			q := p.restartWith(*memory, uint64(p.stores[kind.Hub].rev), p.hubObjects()...)
			q.hubStore = "h2"
			memory = q.remembered()
			q.connect()
			q.waitSeconds(70)
			if has(q, "a") || has(q, "b") {
				t.Error("a deleted Application is back")
			}
			q.removeOnHub(ref("w1", "b"), true)
			q.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "again"))
			q.user(kind.Hub, ref("w1", "f"), app("w1", "f", "default", "v1"))
			if !has(q, "b") || !has(q, "f") {
				t.Error("a new Application is held")
			}
			next := q.restartWith(*memory, uint64(q.stores[kind.Hub].rev), q.hubObjects()...)
			next.hubStore = "h2"
			next.connect()
			next.waitSeconds(70)
			if has(next, "a") {
				t.Error("the deleted Application is back in the next process")
			}
			next.confirmAll()
			next.waitSeconds(70)
			if !has(next, "a") {
				t.Error("the confirmation had no effect")
			}
			if m := next.sides[kind.Spoke].Memory(); len(m.Removals) > 0 || m.StoreUntrusted {
				t.Errorf("after the confirmation: %+v", m)
			}
		})
	}
}

// The replica ends without a deletion by the agent: a user of the workload cluster has deleted it, and the agent removes the
// finalizers, or it existed before the agent, and the agent releases it. The record precedes that too.
func TestPromotion_RemovalsWithoutADeletion(t *testing.T) {
	for name, tc := range map[string]struct {
		adopted bool
		end     func(*pair)
	}{
		"a terminating replica": {false, func(p *pair) {
			p.user(kind.Spoke, ref("argocd", "a"), deleting(p.t, string(p.spoke(ref("argocd", "a")).Raw())))
			p.removeOnHub(ref("w1", "a"), true)
		}},
		"a released replica": {true, func(p *pair) {
			p.removeOnHub(ref("w1", "a"), false)
			p.waitSeconds(70)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			if tc.adopted {
				p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
			}
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
			}
			p.connect()
			uid := p.stores[kind.Hub].objects[ref("w1", "a")].UID()
			writes := p.recordSpoke()
			tc.end(p)
			want := []engine.Removal{{Scope: kind.ApplicationScope, Source: uid, Store: "h", ByUser: !tc.adopted}}
			for _, w := range *writes {
				if w.Ref != ref("argocd", "a") || w.Remember == nil {
					continue
				}
				got := slices.Clone(w.Remember.Removals)
				for i := range got {
					got[i].Key, got[i].Revision = 0, 0
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %+v, want %+v", w.Verb, got, want)
				}
				return
			}
			t.Errorf("no write is preceded by a record: %+v", *writes)
		})
	}
}

// The promoted hub has received all deletions. Nothing is held, and they count as those of its own store.
func TestPromotion_ReceivedDeletionsAreThoseOfTheNewHub(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	for _, name := range []string{"a", "b", "c"} {
		p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
	}
	p.removeOnHub(ref("w1", "a"), true)
	before := p.sides[kind.Spoke].Memory()
	if len(before.Removals) != 1 {
		t.Fatalf("remembered: %+v", before.Removals)
	}
	q := p.promote(2, uint64(p.stores[kind.Hub].rev))
	q.connect()
	now := q.sides[kind.Spoke].Memory()
	if now.StoreUntrusted || len(now.Removals) != 1 || now.Removals[0].Store != "h2" || now.Removals[0].Generation != 2 {
		t.Errorf("the agent knows %+v", now)
	}
	if got := before.With(now); !slices.Equal(got.Removals, now.Removals) {
		t.Errorf("the Lease keeps %+v", got.Removals)
	}
	untrusted := now
	untrusted.StoreUntrusted = true
	if got := before.With(untrusted); len(got.Removals) != 2 {
		t.Errorf("an untrusted store ends %+v", before.Removals)
	}
}

// An agent is killed right after it has written the first object of a promoted hub. Then the hub before is promoted again,
// which has not received that object.
func TestPromotion_AgentKilledAfterItsFirstWrite(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	first := p.hubObjects()

	q := p.promote(2, uint64(p.stores[kind.Hub].rev))
	q.connect()
	memory := q.remembered()
	q.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
	if q.spokeRevision("a") != "v2" {
		t.Fatal("the promoted hub is not followed")
	}

	q.sides[kind.Hub].cfg.Generation, q.sides[kind.Hub].cfg.Predecessor = 3, engine.Store{}
	again := q.restartWith(*memory, uint64(q.stores[kind.Hub].rev), first...)
	again.hubStore = "h"
	again.connect()
	again.waitSeconds(70)
	if got := again.spokeRevision("a"); got != "v2" {
		t.Errorf("the hub that lacks the change has set %s", got)
	}
	if !again.sides[kind.Spoke].Memory().StoreUntrusted {
		t.Errorf("its store is trusted; remembered was %+v", *memory)
	}
}

func TestMemory_GenerationNeverGoesBack(t *testing.T) {
	at := func(store, hub string, generation uint64) Memory {
		return Memory{Store: engine.Store{UID: store, Revision: 5}, Generation: engine.HubGeneration{Hub: hub, Number: generation}}
	}
	after := func(former engine.HubGeneration, m Memory) Memory {
		m.FormerGenerations = []engine.HubGeneration{former}
		return m
	}
	for _, tc := range []struct{ was, is, want Memory }{
		{at("h", "p", 2), at("h", "p", 1), at("h", "p", 2)},
		{at("h", "p", 2), at("h2", "p", 1), at("h2", "p", 2)},
		{at("h", "p", 1), at("h2", "p", 2), at("h2", "p", 2)},
		{at("h", "p", 1), Memory{Generation: engine.HubGeneration{Hub: "p", Number: 2}}, at("h", "p", 2)},
		{at("h", "p", 2), at("h2", "other", 1), after(engine.HubGeneration{Hub: "p", Number: 2}, at("h2", "other", 1))},
		{after(engine.HubGeneration{Hub: "p", Number: 3}, at("h2", "other", 1)), at("h", "p", 2), after(engine.HubGeneration{Hub: "other", Number: 1}, at("h", "p", 3))},
		{at("h", "p", 2), Memory{}, at("h", "p", 2)},
	} {
		if got := tc.was.With(tc.is); !got.Equal(tc.want) {
			t.Errorf("%+v with %+v: %+v", tc.was, tc.is, got)
		}
	}
	if at("h", "p", 2).Equal(at("h", "p", 1)) {
		t.Error("two generations are equal")
	}
	if at("h", "p", 2).Equal(after(engine.HubGeneration{Hub: "other", Number: 1}, at("h", "p", 2))) {
		t.Error("a former hub is forgotten")
	}
}

// An agent removes a replica in two writes, and a user of the workload cluster deletes it after the first one. The hub has ordered
// its end before that.
func TestPromotion_ReplicaIsGoneBetweenTwoWritesOfItsRemoval(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		body := app("w1", name, "default", "v1")
		if name == "a" {
			body = string(set(t, []byte(body), quoted(resourcesFinalizer), "metadata", "finalizers"))
		}
		p.user(kind.Hub, ref("w1", name), body)
	}
	received := uint64(p.stores[kind.Hub].rev)
	stale := maps.Clone(p.stores[kind.Hub].objects)
	p.once(kind.Spoke, Update, func(w Write) {
		c := p.stores[kind.Spoke]
		mine := c.put(w.Ref, w.Object.Raw(), false)
		p.step(kind.Spoke, Observed{Resource: w.Ref.Resource, Object: mine})
		delete(c.objects, w.Ref)
		c.rev++
		p.step(kind.Spoke, Deleted{Ref: w.Ref, UID: mine.UID(), Revision: uint64(c.rev)})
		p.step(kind.Spoke, WriteResult{ID: w.ID, Object: mine})
	})
	p.removeOnHub(ref("w1", "a"), true)
	p.waitSeconds(70)
	memory := p.sides[kind.Spoke].Memory()
	p.stores[kind.Hub].objects = stale
	p.sides[kind.Hub].cfg.Generation, p.sides[kind.Hub].cfg.Predecessor = 2, engine.Store{UID: "h", Revision: received}
	q := p.restartWith(memory, uint64(p.stores[kind.Hub].rev), p.hubObjects()...)
	q.hubStore = "h2"
	q.connect()
	q.waitSeconds(70)
	if q.replica() != nil {
		t.Error("a promoted hub that lacks the deletion brings the Application back")
	}
}
