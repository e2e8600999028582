package reconcile

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// registerWithout is what the hub has registered for an agent with which some kinds are not exchanged.
func registerWithout(mode kind.Mode, scopes ...string) Register {
	return Register{Agent: kind.Agent{Name: "w1", Mode: mode, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1",
		ExcludedScopes: "," + strings.Join(scopes, ",") + ","}}
}

func TestExcludedScope_StaysOnHub(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.step(kind.Hub, registerWithout(kind.Managed, kind.ApplicationScope, kind.StatusScope, kind.CommandScope))
	p.user(kind.Hub, projectRef("web"), project("web", "{}", onlyW1))
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "web", "one"))
	p.connect()
	if p.stores[kind.Spoke].objects[projectRef("web")] == nil {
		t.Error("a project, which is exchanged, did not come")
	}
	if p.stores[kind.Spoke].objects[ref("argocd", "a")] != nil {
		t.Error("an Application came, which is not exchanged")
	}
	// Allowed again, it comes.
	p.step(kind.Hub, registerWithout(kind.Managed))
	p.connect()
	if p.stores[kind.Spoke].objects[ref("argocd", "a")] == nil {
		t.Error("allowed again, the Application did not come")
	}
}

func TestExcludedScope_HubRejectsItems(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	p.step(kind.Hub, registerWithout(kind.Autonomous, kind.ApplicationScope))
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "one"))
	p.connect()
	for r := range p.stores[kind.Hub].objects {
		if r.Resource == kind.Applications {
			t.Errorf("%v was written", r)
		}
	}
	reported := false
	for _, f := range p.events {
		reported = reported || f.Type == engine.Rejected && f.Code == engine.NotAllowed && strings.Contains(f.Message, "spec.kinds")
	}
	if !reported {
		t.Errorf("it is not reported: %+v", p.events)
	}
}
