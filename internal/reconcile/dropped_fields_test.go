package reconcile

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

var defaultProject = kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "default"}

// oldArgoCD makes the spoke's API server drop fields of AppProjects. As kube.Writer does, it refuses a write that must
// store one of them.
func (p *pair) oldArgoCD(prunes *bool, fields ...string) {
	p.step(kind.Spoke, Schema{Resource: kind.AppProjects, Version: oldCRD})
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Ref.Resource != kind.AppProjects || w.Verb == Delete || !*prunes {
			return false
		}
		body := w.Object.Raw()
		for _, f := range fields {
			var err error
			if body, err = rawjson.Remove(body, strings.Split(f, ".")...); err != nil {
				p.t.Fatal(err)
			}
		}
		if lost := kind.NotStored(w.Object, object(p.t, string(body)), w.MustStore); len(lost) > 0 {
			p.step(side, WriteResult{ID: w.ID, Failure: &Failure{Code: engine.NotAllowed, Message: "this cluster does not store " + lost[0], NotStored: lost}})
			return true
		}
		p.step(side, WriteResult{ID: w.ID, Object: p.stores[side].put(w.Ref, body, w.Verb == Create)})
		return true
	}
}

func (p *pair) upgradeProjects(prunes *bool) {
	*prunes = false
	p.step(kind.Spoke, Schema{Resource: kind.AppProjects, Version: newCRD})
	p.settle()
	p.waitSeconds(120)
}

// The spoke has an earlier form of the project, which verifies nothing.
func TestDroppedFields_VerificationOfSourcesIsNotDropped(t *testing.T) {
	p, prunes := newPair(t, kind.Managed), true
	p.oldArgoCD(&prunes, "spec.sourceIntegrity", "spec.description")
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.user(kind.Spoke, ref("argocd", "a"), string(set(t, p.stores[kind.Spoke].objects[ref("argocd", "a")].Raw(), `{"health":{"status":"Healthy"}}`, "status")))
	if got := p.spokeRevision("a"); got != "v1" {
		t.Fatalf("the spoke has %s", got)
	}
	p.edit(kind.Hub, defaultProject, `{"git":{"policies":[{"repos":[{"url":"*"}]}]}}`, "spec", "sourceIntegrity")
	if got := p.hubCondition("a"); !strings.Contains(got, kind.ConditionDropped) || !strings.Contains(got, "AppProject default, refused: spec.sourceIntegrity") {
		t.Errorf("conditions on the hub: %s", got)
	}
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	p.waitSeconds(120)
	if a, b := p.spokeRevision("a"), p.spokeRevision("b"); a != "v1" || b != "none" {
		t.Errorf("under a project that is refused, the spoke has %s and %s", a, b)
	}
	if got := p.hubCondition("b"); !strings.Contains(got, kind.ConditionError) || !strings.Contains(got, "spec.sourceIntegrity") {
		t.Errorf("conditions on the hub: %s", got)
	}

	p.upgradeProjects(&prunes)
	if project := p.stores[kind.Spoke].objects[defaultProject]; project.Get("spec", "sourceIntegrity") == nil {
		t.Errorf("after the upgrade the spoke has %s", project.Raw())
	}
	if a, b := p.spokeRevision("a"), p.spokeRevision("b"); a != "v2" || b != "v1" {
		t.Errorf("after the upgrade the spoke has %s and %s", a, b)
	}
	if got := p.hubCondition("a"); strings.Contains(got, "Agent") {
		t.Errorf("conditions on the hub: %s", got)
	}
}

func TestDroppedFields_Policies(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy kind.FieldPolicy
		field  string
		value  string
		stored bool // the rest of the project
	}{
		{"refuse verification", kind.RefuseVerification, "sourceIntegrity", `{"git":{}}`, false},
		{"refuse verification, older field", kind.RefuseVerification, "signatureKeys", `[{"keyID":"a"}]`, false},
		{"refuse verification, another field", kind.RefuseVerification, "description", `"d"`, true},
		{"refuse", kind.RefuseDropped, "description", `"d"`, false},
		{"warn", kind.WarnDropped, "sourceIntegrity", `{"git":{}}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, prunes := newPair(t, kind.Managed), true
			p.sides[kind.Spoke].cfg.Policy.DroppedFields = c.policy
			p.oldArgoCD(&prunes, "spec."+c.field)
			p.connect()
			p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
			p.user(kind.Spoke, ref("argocd", "a"), string(set(t, p.stores[kind.Spoke].objects[ref("argocd", "a")].Raw(), `{"health":{"status":"Healthy"}}`, "status")))
			changed := set(t, p.stores[kind.Hub].objects[defaultProject].Raw(), c.value, "spec", c.field)
			p.user(kind.Hub, defaultProject, string(set(t, changed, `["https://git/*"]`, "spec", "sourceRepos")))
			p.waitSeconds(30)
			if got := p.stores[kind.Spoke].objects[defaultProject].Get("spec", "sourceRepos") != nil; got != c.stored {
				t.Errorf("the rest is stored: %v", got)
			}
			if got := p.hubCondition("a"); !strings.Contains(got, "spec."+c.field) || strings.Contains(got, "refused") == c.stored {
				t.Errorf("conditions on the hub: %s", got)
			}
			p.upgradeProjects(&prunes)
			if got := p.hubCondition("a"); strings.Contains(got, "Agent") || p.stores[kind.Spoke].objects[defaultProject].Get("spec", c.field) == nil {
				t.Errorf("after the upgrade, conditions on the hub: %s", got)
			}
		})
	}
}

func TestDroppedFields_RefusedProjectsAreBounded(t *testing.T) {
	p := newPair(t, kind.Managed)
	l := p.sides[kind.Spoke].syncs[""]
	s := l.scope(kind.AppProjectScope)
	for i := range maxRefusedProjects + 10 {
		l.recordRefusedProject(s, strings.Repeat("p", i+1), result{fail: &Failure{NotStored: []string{"spec.sourceIntegrity"}}})
	}
	if n := len(l.refusedProjects); n != maxRefusedProjects {
		t.Errorf("%d are recorded", n)
	}
}
