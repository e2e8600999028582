package sim

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// mutants are products that are broken in one way each. They are broken where the shell meets the Reconciler, so that
// the product needs no hook of its own.
var mutants = map[string]mutant{
	"takes every object for its own": {onSeen: func(p *process, o *kind.Object) *kind.Object {
		if p.spoke == nil || !p.spoke.managed() || ownedByAgent(o) {
			return o
		}
		return annotated(annotated(o, principalKey, principalUID), sourceKey, "hub-0")
	}},
	"takes half a list for all": {onList: func(p *process, list []*kind.Object) []*kind.Object {
		if p.spoke == nil && p.w.now > minute {
			return list[:len(list)/2]
		}
		return list
	}},
	"never answers": {onMessage: func(m engine.Message) bool {
		_, ok := m.(engine.Ack)
		return ok
	}},
	"never compares": {onMessage: func(m engine.Message) bool {
		_, ok := m.(engine.Roots)
		return ok
	}},
	"never says that it has the same": {onMessage: func(m engine.Message) bool {
		_, ok := m.(engine.Same)
		return ok
	}},
	"does not name commands": {onSwallow: func(_ *process, e reconcile.Write) bool { return e.Reason == "assign command ID" }},
	"does not carry the names of commands along": {onWrite: func(p *process, e reconcile.Write) *kind.Object {
		if p.spoke == nil || e.Reason != "apply command" {
			return e.Object
		}
		b, _ := rawjson.Remove(e.Object.Raw(), "metadata", "annotations", kind.ReceiptAnnotation)
		return parsed(bytes.ReplaceAll(b, []byte(kind.CommandInfo), []byte("something")))
	}},
	"lets a status erase a pending operation": {onWrite: func(p *process, e reconcile.Write) *kind.Object {
		if p.spoke != nil || e.Reason != "apply status" {
			return e.Object
		}
		b, _ := rawjson.Remove(e.Object.Raw(), "operation")
		return parsed(b)
	}},
	"writes without preconditions": {onWrite: func(_ *process, e reconcile.Write) *kind.Object {
		if e.Verb == reconcile.Update {
			return withMeta(e.Object, "resourceVersion", nil, "uid", nil)
		}
		return e.Object
	}},
	"does not take finalizers off before it deletes": {onSeen: func(p *process, o *kind.Object) *kind.Object {
		if p.spoke == nil {
			return o
		}
		return withMeta(o, "finalizers", nil)
	}},
	"says that it is done before it is": {onSwallow: func(p *process, e reconcile.Write) bool {
		return p.spoke != nil && e.Verb == reconcile.Create && e.Ref.Resource == kind.Applications
	}},
	"does not restore without a session": {onSwallow: func(_ *process, e reconcile.Write) bool { return e.Offline }},
	"trusts any store":                   {onRecall: func(m *memory) { m.KnownStore, m.StoreUntrusted = engine.Store{}, false }},
	"has no deletion budget": {onReport: func(p *process, f engine.Event) {
		if f.Type == engine.HoldStarted && p.spoke != nil && f.Held.Cause.Budget() {
			p.later(1, func() { p.step(reconcile.Confirm{ID: f.Held.ID}) })
		}
	}},
	"mixes agents up": {onRegister: func(w *world, a kind.Agent) kind.Agent {
		a.HubNamespace = w.spokes[0].agent.HubNamespace
		return a
	}},
}

// hubMutants are broken in a way that only shows with two hubs. Each breaks one invariant, which the violation names.
var hubMutants = map[string]struct {
	violation string
	first     uint64 // the seed to begin with, near the one that finds it
	mutant    mutant
}{
	"follows a hub of a lower generation": {"follows a hub of generation 1 after", 625, mutant{onReceive: func(p *process, m engine.Message) engine.Message {
		if welcome, ok := m.(engine.Welcome); ok && p.spoke != nil {
			welcome.HubGeneration, welcome.Store.UID = 1, principalUID // another store would be refused
			return welcome
		}
		return m
	}}},
	"forgets the generation of the hub with its process":     {"and its Lease has", 1860, mutant{onRecall: func(m *memory) { m.Generation = engine.HubGeneration{} }}},
	"trusts a promoted hub that has not received everything": {"goes back from", 580, mutant{onReceive: trustPromoted}},
	"deletes what a promoted hub has not received":           {"deletes what its owner has not given up", 1253, mutant{onReceive: trustPromoted}},
	"brings back what a promoted hub has not seen deleted":   {"for another hub than the one for which it deleted it", 2319, mutant{onReceive: trustPromoted}},
	"serves agents after a demotion":                         {"and its hub is not active", 128, mutant{staysInRole: true}},
	"serves agents before a promotion":                       {"and its hub is not active", 28, mutant{servesAlways: true}},
	"gives commands other names after a promotion": {"has run 2 times", 375, mutant{onSeen: func(p *process, o *kind.Object) *kind.Object {
		if p.site == nil || p.part != principal || p.born.Generation%2 == 1 || o.Get("operation") == nil {
			return o
		}
		return parsed(bytes.ReplaceAll(o.Raw(), []byte(`{"name":"argocd-agent/command","value":"`), []byte(`{"name":"argocd-agent/command","value":"0`)))
	}}},
	"takes every object of a standby for one of the active hub": {"deletes what the active hub has not deleted", 213, mutant{onSeen: func(p *process, o *kind.Object) *kind.Object {
		if p.part != receiver || o.Annotation(kind.StandbyAnnotation) != "" {
			return o
		}
		return annotated(o, kind.StandbyAnnotation, `{"hub":"`+principalUID+`","uid":"`+origin(o)+`"}`)
	}}},
	"loses its annotations to an ApplicationSet": {"deletes what its owner has not given up", 796, mutant{preservesNothing: true}},
	"takes the Lease before it expires":          {"may still serve agents", 1, mutant{takesLease: true}},
	"does not send a standby all objects": {"do not become equal", 15, mutant{onMessage: func(m engine.Message) bool {
		d, ok := m.(engine.Delta)
		return ok && d.Scope == "standby-applications"
	}}},
}

// trustPromoted is an agent to which a promoted hub has received everything.
func trustPromoted(p *process, m engine.Message) engine.Message {
	if welcome, ok := m.(engine.Welcome); ok && p.spoke != nil && welcome.Predecessor.UID != "" {
		welcome.Predecessor.Revision = 1 << 50
		return welcome
	}
	return m
}

// Each invariant of two hubs fails for a product that breaks it.
func TestHubMutants_AreDetected(t *testing.T) {
	for _, name := range sortedKeys(hubMutants) {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			broken := hubMutants[name]
			for number := broken.first; number <= broken.first+2*mutantSeeds; number++ {
				seed := Seed{Number: number}
				if !seed.hasTwoHubs() {
					continue
				}
				if r := run(seed, broken.mutant, nil); len(r.Violations) > 0 && strings.Contains(r.Violations[0], broken.violation) {
					what, _, _ := strings.Cut(r.Violations[0], "\n")
					t.Logf("seed %d: %s", number, what)
					return
				}
			}
			t.Errorf("a product that %s is not detected by the worlds with two hubs of %d seeds", name, 2*mutantSeeds)
		})
	}
}

func annotated(o *kind.Object, key, value string) *kind.Object {
	b, err := rawjson.Set(o.Raw(), rawjson.Quote(value), "metadata", "annotations", key)
	if err != nil {
		panic(err)
	}
	return parsed(b)
}

func parsed(b []byte) *kind.Object {
	o, err := kind.Parse(b)
	if err != nil {
		panic(err)
	}
	return o
}

// mutantSeeds is within how many seeds a broken product must be detected.
const mutantSeeds = 1500

func TestMutants_AreDetected(t *testing.T) {
	for _, name := range sortedKeys(mutants) {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			for seed := uint64(1); seed <= mutantSeeds; seed++ {
				if r := run(Seed{Number: seed}, mutants[name], nil); len(r.Violations) > 0 {
					what, _, _ := strings.Cut(r.Violations[0], "\n")
					t.Logf("seed %d: %s", seed, what)
					return
				}
			}
			t.Errorf("a product that %s is not detected by %d seeds", name, mutantSeeds)
		})
	}
}

func TestShrink_SeedStillFails(t *testing.T) {
	broken := mutants["does not name commands"]
	for seed := uint64(1); seed <= mutantSeeds; seed++ {
		r := run(Seed{Number: seed}, broken, nil)
		if len(r.Violations) == 0 || r.Actions < 20 {
			continue
		}
		small := shrink(r, broken)
		if len(small.Seed.Keep) >= r.Actions/2 {
			t.Errorf("seed %d is shrunk from %d actions to %d only", seed, r.Actions, len(small.Seed.Keep))
		}
		again, err := ParseSeed(fmt.Sprint(small.Seed))
		if err != nil {
			t.Fatal(err)
		}
		if r := run(again, broken, nil); len(r.Violations) == 0 {
			t.Errorf("%s no longer fails", again)
		}
		return
	}
	t.Error("no seed fails")
}
