package reconcile

import (
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
	if m := q.sides[kind.Spoke].Memory(); m.Generation != (engine.HubGeneration{Hub: "principal-1", Number: 2}) || m.StoreUntrusted || m.Store.UID != "h2" {
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
