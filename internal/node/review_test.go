package node

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/raw"
)

func set(t *testing.T, body []byte, value string, path ...string) []byte {
	t.Helper()
	b, err := raw.Set(body, []byte(value), path...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *pair) pass(seconds int) {
	for range seconds / 10 {
		p.now += 10_000
		for side := range p.nodes {
			p.step(kind.Side(side), Tick{})
		}
		p.settle()
	}
}

// 7. one removal that can not be done is taken for many.
func TestReviewHeldByRepetition(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	proj := kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "p1"}
	p.user(kind.Hub, proj, `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"p1","namespace":"argocd"},"spec":{"sourceNamespaces":["*"],"destinations":[{"name":"*","server":"*","namespace":"*"}]}}`)
	if p.stores[kind.Spoke].objects[proj] == nil {
		t.Fatal("no project on the spoke")
	}
	p.user(kind.Spoke, ref("argocd", "local"), app("argocd", "local", "p1", "v1"))
	// the hub loses the project while nobody watches
	delete(p.stores[kind.Hub].objects, proj)
	p.stores[kind.Hub].rev++
	p.step(kind.Hub, List{Resource: kind.AppProjects, Revision: uint64(p.stores[kind.Hub].rev)})
	p.facts = nil
	p.settle()
	for i := range 20 {
		p.pass(60)
		for _, f := range p.facts {
			if f.Event == engine.HeldEvent {
				t.Logf("after %d minutes: held in %s: %d of %d: %s", i+1, f.Scope, f.Held.Count, f.Held.Of, f.Held.Reason)
			}
		}
		p.facts = nil
	}
}
