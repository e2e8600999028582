package reconcile

import (
	"fmt"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// repositoryHarness is a hub with one managed agent, whose two watches are of different
// age.
type repositoryHarness struct {
	*pair
	t     *testing.T
	reads []Read
	lists []kind.Resource
}

func newRepositoryHarness(t *testing.T) *repositoryHarness {
	t.Helper()
	return &repositoryHarness{pair: newPair(t, kind.Managed), t: t}
}

// hub gives the hub an input, and keeps what it asks for.
func (f *repositoryHarness) hub(in Input) {
	for _, e := range f.sides[kind.Hub].Step(f.now, in) {
		switch e := e.(type) {
		case Read:
			f.reads = append(f.reads, e)
		case Relist:
			f.lists = append(f.lists, e.Resource)
		}
	}
}

func (f *repositoryHarness) project(rev int, destination string) *kind.Object {
	f.t.Helper()
	return object(f.t, fmt.Sprintf(`{"metadata":{"namespace":"argocd","name":"web","uid":"p1","resourceVersion":"%d"},
		"spec":{"destinations":[{"name":%q,"namespace":"*"}],"sourceNamespaces":["*"]}}`, rev, destination))
}

// repository of the project web (d2Vi), or of ops (b3Bz).
func (f *repositoryHarness) repository(rev int, project string) *kind.Object {
	f.t.Helper()
	return f.named("repo", rev, project)
}

func (f *repositoryHarness) named(name string, rev int, project string) *kind.Object {
	f.t.Helper()
	return object(f.t, fmt.Sprintf(`{"metadata":{"namespace":"argocd","name":%q,"uid":"s-%s","resourceVersion":"%d",
		"labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"project":%q}}`, name, name, rev, project))
}

// sent returns how many repositories the agent must have.
func (f *repositoryHarness) sent() int {
	st, _ := f.sides[kind.Hub].Status("w1")
	for _, s := range st.Scopes {
		if s.Name == kind.RepositoryScope {
			return s.Items
		}
	}
	return -1
}

// answer to the only read that is under way.
func (f *repositoryHarness) answer(o *kind.Object) {
	f.t.Helper()
	if len(f.reads) != 1 {
		f.t.Fatalf("%d reads are under way", len(f.reads))
	}
	r := f.reads[0]
	f.reads = nil
	if o == nil {
		f.hub(Deleted{Ref: r.Ref, UID: r.UID, Read: true, ID: r.ID})
	} else {
		f.hub(Observed{Resource: r.Ref.Resource, Object: o, Read: true, ID: r.ID})
	}
}

const (
	web = "d2Vi"
	ops = "b3Bz"
)

func seen(r kind.Resource, o *kind.Object) Observed { return Observed{Resource: r, Object: o} }

func TestRepositories_SentWhenProjectIsCurrent(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "w1")))
	f.hub(seen(kind.Secrets, f.repository(9, web)))
	if f.sent() != 0 {
		t.Fatal("it is sent on the word of a project that may have changed")
	}
	if len(f.reads) != 1 || f.reads[0].Ref.Resource != kind.AppProjects || f.reads[0].Ref.Name != "web" {
		t.Fatalf("asks for %+v", f.reads)
	}
	f.answer(f.project(5, "w1"))
	if f.sent() != 1 {
		t.Error("the project still permits it, and it is not sent")
	}
	if load := f.sides[kind.Hub].Stats(); load.Notes != 0 || len(f.reads) != 0 {
		t.Errorf("something is left to do: %+v, %+v", load, f.reads)
	}
}

func TestRepositories_NotSentIfProjectNoLongerPermits(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "w1")))
	f.hub(seen(kind.Secrets, f.repository(9, web)))
	f.answer(f.project(8, "another"))
	if f.sent() != 0 {
		t.Error("it is sent")
	}
	f.hub(seen(kind.AppProjects, f.project(8, "another"))) // the watch shows it at last
	if load := f.sides[kind.Hub].Stats(); f.sent() != 0 || load.Notes != 0 || len(f.reads) != 0 {
		t.Errorf("sent %d, %+v, %+v", f.sent(), load, f.reads)
	}
}

func TestRepositories_NotSentByFormerProject(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "another")))
	f.hub(Bookmark{Resource: kind.AppProjects, Revision: 6})
	f.hub(seen(kind.Secrets, f.repository(6, web)))
	f.hub(seen(kind.AppProjects, f.project(9, "w1"))) // but at 8 the Secret went to ops
	if f.sent() != 0 {
		t.Fatal("it is sent on the word of a Secret that may have changed")
	}
	f.answer(f.repository(8, ops))
	if f.sent() != 0 {
		t.Error("it is sent")
	}
}

func TestRepositories_StayWhileProjectIsUnknown(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "w1")))
	f.hub(Bookmark{Resource: kind.AppProjects, Revision: 6})
	f.hub(seen(kind.Secrets, f.repository(6, web)))
	if f.sent() != 1 {
		t.Fatal("it is not sent")
	}
	f.hub(Deleted{Ref: kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "web"}, UID: "p1", Revision: 9})
	if f.sent() != 1 {
		t.Fatal("it is withdrawn, although the Secret may have been in another project by then")
	}
	f.answer(f.repository(6, web))
	if f.sent() != 0 {
		t.Error("it stays without its project")
	}
}

func TestRepositories_UnansweredReadIsRepeated(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "w1")))
	f.hub(seen(kind.Secrets, f.repository(9, web)))
	lost := f.reads[0]
	f.reads = nil
	at, ok := f.sides[kind.Hub].NextWake()
	if !ok {
		t.Fatal("waits for nothing")
	}
	f.now = at
	f.hub(Tick{})
	f.hub(Observed{Resource: kind.AppProjects, Object: f.project(5, "w1"), Read: true, ID: lost.ID}) // too late
	if f.sent() != 0 {
		t.Error("an answer to another question counts")
	}
	f.answer(f.project(5, "w1"))
	if f.sent() != 1 {
		t.Error("it is not sent")
	}
}

func TestRepositories_ManyAreListed(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "another")))
	f.hub(Bookmark{Resource: kind.AppProjects, Revision: 6})
	list := List{Resource: kind.Secrets, Revision: 10}
	for i := range 100 {
		o := f.named(fmt.Sprint("repo", i), 6, web)
		list.Objects = append(list.Objects, o)
		f.hub(seen(kind.Secrets, o))
	}
	f.hub(seen(kind.AppProjects, f.project(9, "w1")))
	if len(f.reads) > maxReads || len(f.lists) != 1 || f.sent() != 0 {
		t.Fatalf("%d reads, %d lists, %d sent", len(f.reads), len(f.lists), f.sent())
	}
	f.hub(list)
	if load := f.sides[kind.Hub].Stats(); f.sent() != 100 || load.Notes != 0 {
		t.Errorf("%d sent, %+v", f.sent(), load)
	}
}

func TestRepositories_SessionWaitsForPending(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "w1")))
	f.hub(seen(kind.Secrets, f.repository(9, web)))
	f.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Connected{Session: 1, Store: engine.Store{UID: "h", Revision: 9}}})
	f.step(kind.Spoke, FromPeer{Input: engine.Connected{Session: 1, Epoch: engine.Epoch{Incarnation: 1}, Store: engine.Store{UID: "s", Revision: 1}}})
	f.settle()
	if st, _ := f.sides[kind.Hub].Status("w1"); st.Connected {
		t.Error("sets are compared while one of them is not known")
	}
	if at, ok := f.sides[kind.Hub].NextWake(); !ok || at <= f.now {
		t.Errorf("wakes at %d, %v", at, ok)
	}
	f.answer(f.project(5, "w1"))
	if st, _ := f.sides[kind.Hub].Status("w1"); !st.Connected || f.sent() != 1 {
		t.Errorf("connected %v, %d sent", st.Connected, f.sent())
	}
}

func TestRepositories_ReadDoesNotRestoreDeleted(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "w1")))
	f.hub(seen(kind.Secrets, f.repository(9, web)))
	r := f.reads[0]
	f.hub(Deleted{Ref: r.Ref, UID: "p1", Revision: 10})
	f.hub(Observed{Resource: kind.AppProjects, Object: f.project(5, "w1"), Read: true, ID: r.ID})
	if f.sides[kind.Hub].cache.get(r.Ref) != nil || f.sent() != 0 {
		t.Error("a project that is gone is there again")
	}
}

func TestRepositories_ReadAfterProjectsAreReadable(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(5, "w1")))
	f.hub(Unreadable{Resource: kind.AppProjects, Reason: "test"})
	f.hub(seen(kind.Secrets, f.repository(9, web)))
	if len(f.reads) != 0 || f.sent() != 0 {
		t.Fatalf("%d reads, %d sent", len(f.reads), f.sent())
	}
	f.hub(List{Resource: kind.AppProjects, Revision: 5, Objects: []*kind.Object{f.project(5, "w1")}}) // of an API server that lags
	f.answer(f.project(5, "w1"))
	if f.sent() != 1 {
		t.Error("it is not sent")
	}
}
