package reconcile

import (
	"fmt"
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// restartWith returns a new process of the agent, which knows its cluster and the memory, and a principal whose watches
// are at a stale revision.
func (p *pair) restartWith(memory Memory, behind uint64, sees ...*kind.Object) *pair {
	p.t.Helper()
	mode := p.sides[kind.Spoke].cfg.Mode
	q := &pair{t: p.t, now: p.now + 10*engine.Second, stores: p.stores, session: p.session, revision: uint64(p.stores[kind.Hub].rev)}
	q.sides[kind.Hub] = New(p.sides[kind.Hub].cfg)
	cfg := p.sides[kind.Spoke].cfg
	cfg.Mode, cfg.KnownStore, cfg.KnownSeen, cfg.StoreUntrusted, cfg.KnownCommands = mode, memory.Store, memory.Seen, memory.StoreUntrusted, memory.Commands
	cfg.KnownDeletions, cfg.KnownHub, cfg.KnownGeneration, cfg.FormerGenerations = memory.Deletions, memory.Hub, memory.Generation, memory.FormerGenerations
	cfg.KnownRemovals = memory.Removals
	q.sides[kind.Spoke] = New(cfg)
	q.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: mode, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1"}})
	for _, r := range Resources() {
		in := List{Resource: r, Revision: behind}
		for _, o := range sees {
			if rawjson.Text(o.Raw(), "kind") == r.Kind {
				in.Objects = append(in.Objects, o)
			}
		}
		q.step(kind.Hub, in)
		in = List{Resource: r, Revision: uint64(p.stores[kind.Spoke].rev)}
		for ref, o := range p.stores[kind.Spoke].objects {
			if ref.Resource == r {
				in.Objects = append(in.Objects, o)
			}
		}
		q.step(kind.Spoke, in)
	}
	return q
}

// remembered follows what is to be written down before writes of the spoke.
func (p *pair) remembered() *Memory {
	last := &Memory{}
	p.hook = func(side kind.Side, w Write) bool {
		if side == kind.Spoke && w.Remember != nil {
			*last = *w.Remember
		}
		return false
	}
	return last
}

// An agent that dies right after it has removed something, and then meets a
// principal whose watch has not come as far, must not be given it back: Argo CD
// would deploy it, and a credential would be where it was withdrawn from.
func TestMemory_StalePrincipalDoesNotRestoreRemovedItem(t *testing.T) {
	credential := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"repo","namespace":"argocd","labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"url":"aHR0cHM6Ly9naXQveA==","project":"ZGVmYXVsdA=="}}`
	project := `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"default","namespace":"argocd"},"spec":{"destinations":[{"name":"*","server":"*","namespace":"*"}],"sourceRepos":["*"],"sourceNamespaces":["*"]}}`
	secret := kind.Ref{Resource: kind.Secrets, Namespace: "argocd", Name: "repo"}
	for _, test := range []struct {
		title        string
		gone         kind.Ref // on the hub
		copied       kind.Ref
		body         string
		watched      bool // its end was seen, else it is missing in a list
		othersRemain bool
	}{
		{"an Application", ref("w1", "a"), ref("argocd", "a"), app("w1", "a", "default", "v1"), true, true},
		{"the only Application", ref("w1", "a"), ref("argocd", "a"), app("w1", "a", "default", "v1"), true, false},
		{"an Application that is missing in a list", ref("w1", "a"), ref("argocd", "a"), app("w1", "a", "default", "v1"), false, true},
		{"a credential", secret, secret, credential, true, true},
	} {
		t.Run(test.title, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			p.revision = 100 // of the stores, at the beginning
			p.connect()
			p.user(kind.Hub, kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "default"}, project)
			if test.othersRemain {
				for _, name := range []string{"b", "c", "d", "e"} {
					p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
				}
			}
			p.user(kind.Hub, test.gone, test.body)
			p.step(kind.Hub, Bookmark{Resource: kind.AppProjects, Revision: uint64(p.stores[kind.Hub].rev)})
			p.settle()
			p.advanceTime(10 * engine.Second)
			if p.stores[kind.Spoke].objects[test.copied] == nil {
				t.Fatal("it was not copied")
			}
			behind, sees := uint64(p.stores[kind.Hub].rev), sortedStore(p.stores[kind.Hub])

			memory := p.remembered()
			old := p.stores[kind.Hub].objects[test.gone]
			delete(p.stores[kind.Hub].objects, test.gone)
			p.stores[kind.Hub].rev += 5
			if test.watched {
				p.step(kind.Hub, Deleted{Ref: test.gone, UID: old.UID(), Revision: uint64(p.stores[kind.Hub].rev)})
			} else {
				in := List{Resource: test.gone.Resource, Revision: uint64(p.stores[kind.Hub].rev)}
				for _, o := range sortedStore(p.stores[kind.Hub]) {
					if rawjson.Text(o.Raw(), "kind") == in.Resource.Kind {
						in.Objects = append(in.Objects, o)
					}
				}
				p.step(kind.Hub, in)
			}
			p.settle()
			p.advanceTime(10 * engine.Second)
			if p.stores[kind.Spoke].objects[test.copied] != nil {
				t.Fatal("it was not removed")
			}

			q := p.restartWith(*memory, behind, sees...)
			created := false
			q.hook = func(side kind.Side, w Write) bool {
				created = created || side == kind.Spoke && w.Verb == Create && w.Ref == test.copied
				return false
			}
			q.connect()
			q.advanceTime(60 * engine.Second)
			if created {
				t.Errorf("it came back; remembered was %+v", *memory)
			}
			if status, _ := q.sides[kind.Spoke].Status(""); !status.Connected {
				t.Error("the principal does not begin")
			}
		})
	}
}

// The store of the hub is saved before the first object of it is written. After that only removals are saved at once:
// everything else is recorded on the object itself.
func TestMemory_OnlyStoreAndRemovalsAreSavedImmediately(t *testing.T) {
	p := newPair(t, kind.Managed)
	memory := p.remembered()
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	if memory.Store.UID != "h" {
		t.Errorf("with the first object, remembered is %+v", *memory)
	}
	*memory = Memory{}
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	if memory.Store != (engine.Store{}) || memory.Seen != nil {
		t.Errorf("then, remembered is %+v", *memory)
	}
}

// Deletions that one input causes wait for one record of all of them: a record for each would be large, and the Lease would be
// written for each.
func TestMemory_DeletionsOfOneInputShareIt(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	for i := range 20 {
		p.user(kind.Hub, ref("w1", fmt.Sprintf("app-%d", i)), app("w1", fmt.Sprintf("app-%d", i), "default", "v1"))
	}
	var first *Memory
	deleted := 0
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Verb != Delete {
			return false
		}
		if deleted++; first == nil {
			first = w.Remember
			if len(first.Removals) != 20 {
				t.Errorf("the first deletion waits for a record of %d", len(first.Removals))
			}
		}
		if w.Remember != first {
			t.Errorf("deletion %d has a record of its own", deleted)
		}
		return false
	}
	hub := p.stores[kind.Hub]
	for r := range hub.objects {
		if r.Resource == kind.Applications {
			delete(hub.objects, r)
		}
	}
	hub.rev++
	p.step(kind.Hub, List{Resource: kind.Applications, Revision: uint64(hub.rev)})
	p.waitSeconds(70)
	p.confirmAll() // one input
	if deleted != 20 {
		t.Fatalf("%d deletions", deleted)
	}
}

// A write that fails may not have saved the store, so the next one does.
func TestMemory_StoreIsSavedAgainAfterAFailure(t *testing.T) {
	p := newPair(t, kind.Managed)
	saved, fails := 0, true
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Remember == nil {
			return false
		}
		if saved++; fails {
			p.step(kind.Spoke, WriteResult{ID: w.ID, Failure: &Failure{Code: engine.Unavailable, Message: "no Lease"}})
		}
		return fails
	}
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	if fails = false; saved == 0 {
		t.Fatal("the first write does not save the store")
	}
	before := saved
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	if saved == before {
		t.Error("the write after a failure does not save the store")
	}
}

func sortedStore(c *cluster) []*kind.Object {
	var out []*kind.Object
	for _, ref := range sortedRefs(c.objects) {
		out = append(out, c.objects[ref])
	}
	return slices.Clip(out)
}
