package reconcile

import (
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// repositoriesOf is what the hub's projects permit an agent, by project.
func repositoriesOf(n *Reconciler, agent string) map[string][]string {
	found := map[string][]string{}
	n.Projects(agent, func(name string, sourceRepos []string) { found[name] = sourceRepos })
	return found
}

func TestQueries_RepositoriesOfAgent(t *testing.T) {
	const (
		open   = `"sourceRepos":["https://git/ours"],"destinations":[{"name":"w*","namespace":"*"}],"sourceNamespaces":["w1"]`
		others = `"sourceRepos":["https://git/theirs"],"destinations":[{"name":"w2","namespace":"*"}],"sourceNamespaces":["*"]`
		all    = `"sourceRepos":["*"],"destinations":[{"name":"in-cluster","namespace":"*","server":"*"}]`
	)
	spec := func(name, text string) string {
		return `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"` + name + `","namespace":"argocd"},"spec":{` + text + `}}`
	}
	for _, mode := range []kind.Mode{kind.Managed, kind.Autonomous} {
		p := newPair(t, mode)
		p.user(kind.Hub, projectRef("open"), spec("open", open))
		p.user(kind.Hub, projectRef("others"), spec("others", others))
		if mode == kind.Autonomous { // what an agent writes itself is not what it is permitted
			p.user(kind.Spoke, projectRef("mine"), spec("mine", all))
		}
		p.connect()
		found := repositoriesOf(p.sides[kind.Hub], "w1")
		delete(found, "default") // which names none
		if len(found) != 1 || !slices.Equal(found["open"], []string{"https://git/ours"}) {
			t.Errorf("%s: %v", mode, found)
		}
		if mode == kind.Autonomous && p.stores[kind.Hub].objects[projectRef("w1-mine")] == nil {
			t.Error("the agent's own project did not come to the hub")
		}
		if found := repositoriesOf(p.sides[kind.Hub], "unknown"); len(found) > 0 {
			t.Errorf("an unknown agent has %v", found)
		}
	}
}

func TestQueries_FindApplicationByArgoCDName(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.user(kind.Hub, ref("w2", "b"), app("w2", "b", "default", "v1"))
	p.connect()
	hub := p.sides[kind.Hub]
	for _, c := range []struct {
		agent, name string
		found       bool
	}{{"w1", "a", true}, {"w1", "b", false}, {"w1", "w2_b", false}, {"w1", "w1_a", false}, {"w1", "", false}, {"w1", "../a", false}, {"unknown", "a", false}} {
		if got := hub.Application(c.agent, c.name); (got != nil) != c.found || got != nil && got.Namespace() != "w1" {
			t.Errorf("%s of %s: %v", c.name, c.agent, got)
		}
	}
	hub.Step(p.now, Register{Agent: kind.Agent{Name: "w3", Mode: kind.Managed, Mapping: kind.ByDestination, HubNamespace: "w3", Server: "https://proxy:9090?agentName=w3"}})
	if hub.Application("w3", "w1_a") != nil {
		t.Error("an Application with another destination is found")
	}
}

func TestQueries_ImpersonationNeedsAppProjectOfApplication(t *testing.T) {
	p := newPair(t, kind.Managed)
	project := func(name, accounts string) {
		p.user(kind.Spoke, projectRef(name), `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"`+name+`","namespace":"argocd"},"spec":{"destinationServiceAccounts":`+accounts+`}}`)
	}
	application := func(namespace, name, project string) {
		p.user(kind.Spoke, ref(namespace, name), `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"`+name+`","namespace":"`+namespace+`"},"spec":{"project":"`+project+`","destination":{"namespace":"team"}}}`)
	}
	project("listed", `[{"server":"*","namespace":"team","defaultServiceAccount":"deployer"}]`)
	project("unused", `[{"server":"*","namespace":"team","defaultServiceAccount":"unused"}]`)
	project("silent", `[]`)
	application("argocd", "a", "listed")
	application("argocd", "b", "silent")
	application("argocd", "c", "missing")
	application("apps", "d", "listed")
	p.connect()
	spoke := p.sides[kind.Spoke]
	const deployer, unused = "system:serviceaccount:team:deployer", "system:serviceaccount:team:unused"
	for _, c := range []struct {
		instance, user string
		may            bool
	}{
		{"a", deployer, true}, {"apps_d", deployer, true}, {"", deployer, true},
		{"b", deployer, false}, {"c", deployer, false}, {"no-such", deployer, false}, {"a", unused, false}, {"", unused, false},
		{"a", "", false}, {"b", "", false}, {"", "", false}, {"a", "system:serviceaccount:team:other", false}, {"a", "admin", false},
	} {
		if got := spoke.MayImpersonate(c.instance, c.user); got != c.may {
			t.Errorf("%q as %q: %v", c.instance, c.user, got)
		}
	}
}
