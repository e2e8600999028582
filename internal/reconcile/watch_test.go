package reconcile

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// What the simulator found out about watches, one by one.

func object(t *testing.T, text string) *kind.Object {
	t.Helper()
	o, err := kind.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestWatch_StaleEventDoesNotRestoreObject(t *testing.T) {
	p := newPair(t, kind.Managed)
	n := p.sides[kind.Hub]
	r := ref("w1", "a")
	at := func(rev string) *kind.Object {
		return object(t, `{"metadata":{"namespace":"w1","name":"a","uid":"u1","resourceVersion":"`+rev+`"},"spec":{}}`)
	}
	p.step(kind.Hub, Observed{Resource: r.Resource, Object: at("5")})
	p.step(kind.Hub, Deleted{Ref: r, UID: "u1", Read: true})
	p.step(kind.Hub, Observed{Resource: r.Resource, Object: at("6")})
	if n.cache.get(r) != nil {
		t.Error("the watch brought it back")
	}
	p.step(kind.Hub, Deleted{Ref: r, UID: "u1", Revision: 7})
	if load := n.Stats(); load.Notes > 0 || load.Objects > 1 { // there is an AppProject
		t.Errorf("something is kept of it: %+v", load)
	}
}

func TestWatch_ReadDoesNotAdvanceFrontier(t *testing.T) {
	p := newPair(t, kind.Managed)
	apps := p.sides[kind.Hub].cache.tables[kind.Applications].parts.watched("")
	before := apps.frontier
	p.step(kind.Hub, Observed{Resource: kind.Applications, Read: true,
		Object: object(t, `{"metadata":{"namespace":"w1","name":"a","uid":"u1","resourceVersion":"50"},"spec":{}}`)})
	if apps.frontier != before {
		t.Errorf("the watch is taken to have come from %d to %d", before, apps.frontier)
	}
	p.step(kind.Hub, Bookmark{Resource: kind.Applications, Revision: 40})
	if apps.frontier != 40 {
		t.Errorf("the watch has come to %d", apps.frontier)
	}
}

func TestWatch_EmptyReadKeepsNewerObject(t *testing.T) {
	p := newPair(t, kind.Managed)
	r := ref("w1", "a")
	p.step(kind.Hub, Observed{Resource: r.Resource, Object: object(t, `{"metadata":{"namespace":"w1","name":"a","uid":"u2","resourceVersion":"9"},"spec":{}}`)})
	p.step(kind.Hub, Deleted{Ref: r, Read: true})
	p.step(kind.Hub, Deleted{Ref: r, UID: "u1", Read: true})
	if p.sides[kind.Hub].cache.get(r) == nil {
		t.Error("it is taken to be gone")
	}
}

func TestWatch_RepositoriesNeedProjects(t *testing.T) {
	p := newPair(t, kind.Managed)
	complete := func() bool {
		st, _ := p.sides[kind.Hub].Status("w1")
		for _, s := range st.Scopes {
			if s.Name == kind.RepositoryScope {
				return s.Complete
			}
		}
		return false
	}
	if !complete() {
		t.Fatal("they are not complete to begin with")
	}
	p.step(kind.Hub, Unreadable{Resource: kind.AppProjects, Reason: "test"})
	if complete() {
		t.Error("projects cannot be read, and repositories are called complete")
	}
	p.step(kind.Hub, List{Resource: kind.AppProjects, Revision: 2})
	if !complete() {
		t.Error("they do not become complete again")
	}
}

func TestConditions_UnchangedWithoutSession(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.step(kind.Hub, Observed{Resource: kind.Applications, Object: object(t, `{"metadata":{"namespace":"w1","name":"a","uid":"u1","resourceVersion":"9"},
		"spec":{"project":"default"},"status":{"conditions":[{"type":"AgentError","message":"of another replica"}]}}`)})
	if p.writes > 0 {
		t.Errorf("%d writes", p.writes)
	}
}

func TestRegister_KnownStateKeepsSession(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.step(kind.Hub, Register{Agent: p.sides[kind.Hub].syncs["w1"].env.Agent, KnownCluster: "spoke-uid", KnownStore: engine.Store{UID: "s", Revision: 9}})
	if st, _ := p.sides[kind.Hub].Status("w1"); !st.Connected {
		t.Error("the session ended")
	}
}
