package reconcile

import (
	"fmt"
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// holders lists the agents to which an item is published.
func (f *fleet) holders(scope, name string) (agents []int) {
	for i, l := range f.index.ordered {
		if l.peer.Publishes(scope, engine.Key{Name: name}.Hash()) {
			agents = append(agents, i)
		}
	}
	return agents
}

// acked has every agent say that it has whatever was sent to it.
func (f *fleet) acked(scope, name string, agents ...int) {
	for _, i := range agents {
		for seq := range uint64(10) {
			f.receive(i, engine.Ack{Scope: scope, Items: []engine.AckItem{{Key: engine.Key{Name: name}, Seq: seq + 1}}})
		}
	}
}

// The project and its credentials move from agent to agent. The agent that loses them is notified, although the project
// no longer names it.
func TestAffected_ProjectsMoveBetweenAgents(t *testing.T) {
	f := newFleet(t, 20)
	see := func(r kind.Resource, format string, args ...any) {
		t.Helper()
		f.rev++
		o, err := kind.Parse([]byte(fmt.Sprintf(`{"metadata":{"namespace":"argocd","resourceVersion":"%d",%s`, f.rev, fmt.Sprintf(format, args...))))
		if err != nil {
			t.Fatal(err)
		}
		f.Step(f.now, Observed{Resource: r, Object: o})
		for _, other := range Resources() {
			f.Step(f.now, Bookmark{Resource: other, Revision: uint64(f.rev)})
		}
	}
	project := func(names string) {
		t.Helper()
		see(kind.AppProjects, `"name":"p","uid":"p"},"spec":{"sourceNamespaces":["agent-*"],"destinations":[{"name":%q,"namespace":"*"}]}}`, names)
	}
	project("agent-0003")
	see(kind.Secrets, `"name":"s","uid":"s","labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"project":"cA=="}}`)
	for _, step := range []struct {
		names string
		want  []int
	}{
		{"agent-0003", []int{3}}, {"agent-0004", []int{4}}, {"agent-00*1", []int{1, 11}}, {"unknown", nil},
		{"*", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}}, {"agent-0019", []int{19}},
	} {
		project(step.names)
		for scope, name := range map[string]string{kind.AppProjectScope: "p", kind.RepositoryScope: "s"} {
			for i := range 20 {
				f.acked(scope, name, i)
			}
			if got := f.holders(scope, name); !slices.Equal(got, step.want) {
				t.Errorf("%s of %s: it is with %v instead of %v", scope, step.names, got, step.want)
			}
		}
	}
}

func TestAffected_ProjectEventReachesOnlyItsAgents(t *testing.T) {
	f := newFleet(t, 20)
	f.project(7)
	o := f.cache.get(kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "project-7"})
	if got := f.affectedSyncs(kind.AppProjects, o, o); len(got) != 1 || got[0].name != agentName(7) {
		t.Errorf("%d agents are concerned", len(got))
	}
	other, err := kind.Parse([]byte(`{"metadata":{"namespace":"argocd","name":"argocd-cm"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.affectedSyncs(kind.ConfigMaps, nil, other); len(got) != 0 {
		t.Errorf("%d agents are concerned by a ConfigMap of Argo CD's own", len(got))
	}
}

func TestAffected_FindsApplicationsByNamespaceAndDestination(t *testing.T) {
	c := newCache(Resources(), nil)
	put := func(namespace, name, destination string, revision int) *kind.Object {
		t.Helper()
		o, err := kind.Parse([]byte(fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"resourceVersion":"%d"},"spec":{"destination":{"name":%q}}}`, namespace, name, revision, destination)))
		if err != nil {
			t.Fatal(err)
		}
		c.put(kind.Applications, o)
		return o
	}
	names := func(list []*kind.Object) (out []string) {
		for _, o := range list {
			out = append(out, o.Namespace()+"/"+o.Name())
		}
		return out
	}
	check := func(what string, list []*kind.Object, want ...string) {
		t.Helper()
		if got := names(list); !slices.Equal(got, want) {
			t.Errorf("%s: %v instead of %v", what, got, want)
		}
	}
	put("n", "b", "x", 1)
	put("n", "a", "x", 2)
	put("m", "c", "x", 3)
	put("n", "d", "", 4)
	check("of n", c.byNS["n"], "n/a", "n/b", "n/d")
	check("for x", c.byDestination["x"], "m/c", "n/a", "n/b")
	moved := put("n", "a", "y", 5)
	check("for x", c.byDestination["x"], "m/c", "n/b")
	check("for y", c.byDestination["y"], "n/a")
	if c.byNS["n"][0] != moved || c.byDestination["y"][0] != moved {
		t.Error("what is found is not what it is now")
	}
	c.drop(refOf(kind.Applications, moved))
	check("of n", c.byNS["n"], "n/b", "n/d")
	for _, o := range slices.Concat(c.byNS["n"], c.byNS["m"]) {
		c.drop(refOf(kind.Applications, o))
	}
	if len(c.byNS)+len(c.byDestination)+len(c.byProject) != 0 {
		t.Errorf("something is left: %v, %v, %v", c.byNS, c.byDestination, c.byProject)
	}
}
