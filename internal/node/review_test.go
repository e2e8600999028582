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

// 4. an alias outlives its cause.
func TestReviewAliasForever(t *testing.T) {
	p := newPair(t, kind.Managed)
	prune := true
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Ref.Resource != kind.Applications || !prune || w.Verb == Delete {
			return false
		}
		b, _ := raw.Remove(w.Object.Raw(), "spec", "syncPolicy", "automated", "enabled")
		o := p.stores[side].put(w.Ref, b, w.Verb == Create)
		p.step(side, Wrote{ID: w.ID, Object: o})
		return true
	}
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), string(set(t, []byte(app("w1", "a", "default", "v1")), `{"automated":{"enabled":false}}`, "spec", "syncPolicy")))
	t.Logf("old CRD: %s", p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("spec", "syncPolicy"))
	prune = false
	// the spoke's CRD is upgraded, the agent is restarted
	n := New(p.nodes[kind.Spoke].cfg)
	p.nodes[kind.Spoke] = n
	for _, r := range Resources() {
		in := List{Resource: r, Revision: uint64(p.stores[kind.Spoke].rev)}
		for rf, o := range p.stores[kind.Spoke].objects {
			if rf.Resource == r {
				in.Objects = append(in.Objects, o)
			}
		}
		p.step(kind.Spoke, in)
	}
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Disconnected{Session: p.session}})
	p.facts = nil
	p.connect()
	p.pass(7200)
	equal := 0
	for _, f := range p.facts {
		if f.Event == engine.Equal && f.Scope == kind.ApplicationScope {
			equal++
		}
	}
	t.Logf("new CRD, two hours later: %s; called equal %d times; conditions on the hub %s", p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("spec", "syncPolicy"), equal,
		p.stores[kind.Hub].objects[ref("w1", "a")].Get("status", "conditions"))
}
