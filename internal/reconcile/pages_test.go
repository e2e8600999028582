package reconcile

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// withApplications returns a connected pair with Applications.
func withApplications(t *testing.T, names ...string) *pair {
	t.Helper()
	p := newPair(t, kind.Managed)
	p.connect()
	for _, name := range names {
		p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
	}
	return p
}

// hubPages returns the Applications of the hub, one in each page.
func (p *pair) hubPages() (pages []List) {
	for _, r := range sortedRefs(p.stores[kind.Hub].objects) {
		if r.Resource == kind.Applications {
			pages = append(pages, List{Resource: kind.Applications, Objects: []*kind.Object{p.stores[kind.Hub].objects[r]},
				Revision: uint64(p.stores[kind.Hub].rev), Continues: len(pages) > 0, More: true})
		}
	}
	pages[len(pages)-1].More = false
	return pages
}

// Nothing is missing until the last page has come.
func TestPages_OnlyTheLastOneShowsWhatIsMissing(t *testing.T) {
	p := withApplications(t, "a", "b", "c")
	delete(p.stores[kind.Hub].objects, ref("w1", "b"))
	pages := p.hubPages()
	hub := p.sides[kind.Hub]
	p.step(kind.Hub, pages[0])
	if hub.cache.get(ref("w1", "b")) == nil || hub.cache.get(ref("w1", "c")) == nil {
		t.Fatal("after the first page, objects are missing")
	}
	p.step(kind.Hub, pages[1])
	if hub.cache.get(ref("w1", "b")) != nil || hub.cache.get(ref("w1", "a")) == nil || hub.cache.get(ref("w1", "c")) == nil {
		t.Error("after the last page, not only the deleted object is missing")
	}
}

// A page alone says nothing of the others.
func TestPages_WithoutTheFirst(t *testing.T) {
	p := withApplications(t, "a", "b")
	p.step(kind.Hub, p.hubPages()[1])
	if p.sides[kind.Hub].cache.get(ref("w1", "a")) == nil {
		t.Error("an object of the first page is missing")
	}
}

// A list that begins again forgets the pages before.
func TestPages_BeginAgain(t *testing.T) {
	p := withApplications(t, "a", "b")
	p.step(kind.Hub, p.hubPages()[0])
	delete(p.stores[kind.Hub].objects, ref("w1", "a"))
	p.step(kind.Hub, p.hubPages()[0])
	if p.sides[kind.Hub].cache.get(ref("w1", "a")) != nil {
		t.Error("an object that is only in the first attempt is there")
	}
}

// An object is deleted after its page was read. The watch may still show it.
func TestPages_ObjectIsGoneMeanwhile(t *testing.T) {
	p := withApplications(t, "a", "b")
	pages, hub := p.hubPages(), p.sides[kind.Hub]
	old := p.stores[kind.Hub].objects[ref("w1", "a")]
	p.step(kind.Hub, pages[0])
	hub.knownGone(ref("w1", "a"), old.UID(), 0)
	p.step(kind.Hub, pages[1])
	p.step(kind.Hub, Observed{Resource: kind.Applications, Object: old})
	if hub.cache.get(ref("w1", "a")) != nil {
		t.Error("a deleted object is there again")
	}
}

// A principal that starts keeps no content of agents that other replicas have. Before AppProjects are read, it does.
func TestPages_AreReducedAtTheStart(t *testing.T) {
	for name, projectsFirst := range map[string]bool{"AppProjects are read first": true, "AppProjects are read last": false} {
		t.Run(name, func(t *testing.T) {
			p := managedApp(t)
			p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
			p.disconnect()
			p.stopHub()
			p.step(kind.Hub, Elsewhere{Agents: map[string]bool{"w1": true}})
			if projectsFirst {
				p.lists(kind.Hub, kind.AppProjects)
			}
			for i, page := range p.hubPages() {
				p.step(kind.Hub, page)
				if got := p.sides[kind.Hub].Reduced("w1"); projectsFirst && got != i+1 || !projectsFirst && got > 0 {
					t.Errorf("after page %d, %d Applications are without content", i+1, got)
				}
			}
			p.lists(kind.Hub, kind.AppProjects)
			if got := p.sides[kind.Hub].Reduced("w1"); got != 2 {
				t.Errorf("at the end, %d Applications are without content", got)
			}
			p.lists(kind.Hub, Resources()...)
			writes := p.writes
			p.connect()
			p.answer()
			p.waitSeconds(60)
			if !p.begun() || p.writes != writes {
				t.Errorf("the session has begun: %v, writes: %d", p.begun(), p.writes-writes)
			}
		})
	}
}

func TestListedNames(t *testing.T) {
	var names ListedNames
	page := func(namespace string, continues, more bool, name string) map[[2]string]bool {
		return names.Add(List{Namespace: namespace, Objects: []*kind.Object{object(t, app("w1", name, "default", "v1"))}, Continues: continues, More: more})
	}
	if page("", true, false, "c") != nil {
		t.Error("a list without its first page is complete")
	}
	if page("", false, true, "old") != nil || page("", false, true, "a") != nil || page("w1", false, true, "x") != nil {
		t.Error("a first page is complete")
	}
	if got := page("", true, false, "b"); len(got) != 2 || !got[[2]string{"w1", "a"}] || !got[[2]string{"w1", "b"}] {
		t.Errorf("%v", got)
	}
	if got := page("w1", true, false, "y"); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// A principal that starts reads AppProjects first. A project that is being deleted stays until all Applications are known.
func TestProject_IsKeptUntilApplicationsAreRead(t *testing.T) {
	for name, used := range map[string]bool{"in use": true, "unused": false} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			project := kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "team"}
			p.stopHub()
			p.lists(kind.Hub, Resources()...)
			p.user(kind.Hub, project, `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"team","namespace":"argocd"},"spec":{}}`)
			p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
			if used {
				p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "team", "v1"))
			}
			p.stores[kind.Hub].objects[project] = object(t, deleting(t, string(p.stores[kind.Hub].objects[project].Raw())))
			removed := 0
			p.hook = func(side kind.Side, w Write) bool {
				if side == kind.Hub && w.Ref == project {
					removed++
				}
				return false
			}
			p.stopHub()
			p.lists(kind.Hub, kind.AppProjects)
			p.settle()
			for _, page := range p.hubPages() {
				if removed > 0 {
					t.Fatal("the project is deleted before its Applications are known")
				}
				p.step(kind.Hub, page)
			}
			p.settle()
			if used != (removed == 0) {
				t.Errorf("%d writes to the project at the end", removed)
			}
		})
	}
}
