package reconcile

import (
	"fmt"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// loseOnHub has the hub find, when it lists a resource again, that it lacks objects.
func (p *pair) loseOnHub(r kind.Resource, names ...string) {
	hub := p.stores[kind.Hub]
	for _, name := range names {
		for ref := range hub.objects {
			if ref.Resource == r && ref.Name == name {
				delete(hub.objects, ref)
			}
		}
	}
	hub.rev++
	in := List{Resource: r, Revision: uint64(hub.rev)}
	for ref, o := range hub.objects {
		if ref.Resource == r {
			in.Objects = append(in.Objects, o)
		}
	}
	p.step(kind.Hub, in)
	p.settle()
}

// has counts the objects of a resource on the spoke.
func (p *pair) has(r kind.Resource) int {
	n := 0
	for ref := range p.stores[kind.Spoke].objects {
		if ref.Resource == r {
			n++
		}
	}
	return n
}

// A project that an Application of the spoke names cannot be removed. It is tried
// again and again, and stays one item for the deletion budget.
func TestBudget_ProjectInUseIsNotHeld(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	for i := range 4 {
		name := fmt.Sprintf("p%d", i)
		p.user(kind.Hub, projectRef(name), project(name, `{}`, onlyW1))
	}
	p.user(kind.Spoke, ref("argocd", "local"), app("argocd", "local", "p0", "v1"))
	p.loseOnHub(kind.AppProjects, "p0")
	tried := false
	p.events = nil
	p.hook = func(side kind.Side, w Write) bool {
		tried = tried || side == kind.Spoke && w.Ref == projectRef("p0")
		return false
	}
	for range 60 {
		p.advanceTime(60 * engine.Second)
	}
	for _, f := range p.events {
		if f.Type == engine.HoldStarted {
			t.Fatalf("%d of %d are held: %s", f.Held.Count, f.Held.Of, f.Held.Reason)
		}
	}
	if p.stores[kind.Spoke].objects[projectRef("p0")] == nil || tried {
		t.Fatal("a project in use was touched")
	}
	delete(p.stores[kind.Spoke].objects, ref("argocd", "local"))
	p.step(kind.Spoke, Deleted{Ref: ref("argocd", "local")})
	p.advanceTime(120 * engine.Second)
	if p.stores[kind.Spoke].objects[projectRef("p0")] != nil {
		t.Error("the project stays although it is no longer used")
	}
}

func repository(name string) (kind.Ref, string) {
	return kind.Ref{Resource: kind.Secrets, Namespace: "argocd", Name: name},
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,"namespace":"argocd","labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"url":"aHR0cHM6Ly9n","project":"cDA="}}`, name)
}

// A project that takes an agent off its list takes the credentials away at once:
// not with the next comparison.
func TestBudget_CredentialsAreWithdrawnImmediately(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, projectRef("p0"), project("p0", `{}`, onlyW1))
	secret, body := repository("r0")
	p.user(kind.Hub, secret, body)
	if p.has(kind.Secrets) != 1 {
		t.Fatal("the credentials did not come")
	}
	p.user(kind.Hub, projectRef("p0"), project("p0", `{}`, `,"destinations":[{"name":"w2","namespace":"*"}]`))
	if p.has(kind.Secrets) != 0 {
		t.Error("the credentials stay until something is compared")
	}
}

// One agent with few Applications must not lose them all by a mistake on the hub.
// Credentials are withdrawn without a confirmation.
func TestBudget_SmallScopesAreNotEmptied(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, projectRef("p0"), project("p0", `{}`, onlyW1))
	secret, body := repository("r0")
	p.user(kind.Hub, secret, body)
	var apps []string
	for i := range 3 {
		apps = append(apps, fmt.Sprintf("a%d", i))
		p.user(kind.Hub, ref("w1", apps[i]), app("w1", apps[i], "p0", "v1"))
	}
	if p.has(kind.Applications) != 3 || p.has(kind.AppProjects) != 2 || p.has(kind.Secrets) != 1 {
		t.Fatalf("%d Applications, %d projects, %d Secrets", p.has(kind.Applications), p.has(kind.AppProjects), p.has(kind.Secrets))
	}
	p.loseOnHub(kind.Applications, apps...)
	p.loseOnHub(kind.AppProjects, "p0", "default") // and with them the repository leaves all agents
	p.advanceTime(60 * engine.Second)
	if p.has(kind.Applications) != 3 || p.has(kind.AppProjects) != 2 || p.has(kind.Secrets) != 0 {
		t.Errorf("%d Applications, %d projects, %d Secrets are left", p.has(kind.Applications), p.has(kind.AppProjects), p.has(kind.Secrets))
	}
	status, _ := p.sides[kind.Hub].Status("w1")
	for _, h := range status.RemoteHolds {
		if h.Cause != engine.CauseLast {
			t.Errorf("%s is held by rule %q", h.Scope, h.Cause)
		}
		p.step(kind.Hub, Confirm{Agent: "w1", ID: h.ID})
		p.settle()
	}
	p.advanceTime(120 * engine.Second)
	if p.has(kind.Applications)+p.has(kind.AppProjects) != 0 {
		t.Errorf("after the confirmations: %d Applications, %d projects", p.has(kind.Applications), p.has(kind.AppProjects))
	}
}
