package reconcile

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// collidingPair has two Applications on an autonomous agent's cluster whose copies
// have one name on the hub: x.b.
func collidingPair(t *testing.T) *pair {
	t.Helper()
	p := newPair(t, kind.Autonomous)
	p.sides[kind.Spoke].cfg.Settings.AllowedNamespaces = []string{"x"}
	p.sides[kind.Spoke].syncs[""].env.Settings.AllowedNamespaces = []string{"x"}
	p.connect()
	p.user(kind.Spoke, ref("argocd", "x.b"), app("argocd", "x.b", "default", "v1"))
	p.user(kind.Spoke, ref("x", "b"), app("x", "b", "default", "v1"))
	return p
}

func (p *pair) change(side kind.Side, r kind.Ref, value string, path ...string) {
	p.t.Helper()
	p.user(side, r, string(set(p.t, p.stores[side].objects[r].Raw(), value, path...)))
}

// Two keys may name one object of the hub. While a write to that object is under
// way, both are changed: each of the two is answered.
func TestCollision_BothItemsAreAnswered(t *testing.T) {
	p := collidingPair(t)
	var held []Write
	p.hook = func(side kind.Side, w Write) bool {
		if side == kind.Hub {
			held = append(held, w)
		}
		return side == kind.Hub
	}
	p.change(kind.Spoke, ref("argocd", "x.b"), `{"sync":{"status":"Synced"}}`, "status") // is being written
	p.change(kind.Spoke, ref("argocd", "x.b"), `"v2"`, "spec", "source", "targetRevision")
	p.change(kind.Spoke, ref("x", "b"), `"v2"`, "spec", "source", "targetRevision")
	if len(held) != 1 {
		t.Fatalf("%d writes are under way", len(held))
	}
	p.hook = nil
	p.write(kind.Hub, held[0])
	p.settle()
	for _, want := range []string{`"v2"`, `"v3"`} {
		p.change(kind.Spoke, ref("argocd", "x.b"), want, "spec", "source", "targetRevision")
		p.waitSeconds(60)
		if got := string(p.stores[kind.Hub].objects[ref("w1", "x.b")].Get("spec", "source", "targetRevision")); got != want {
			t.Errorf("the hub has %s, the spoke %s", got, want)
		}
	}
	status, _ := p.sides[kind.Spoke].Status("")
	for _, s := range status.Scopes {
		if s.InFlight > 0 || s.Dirty > 0 {
			t.Errorf("scope %s: %d items are unanswered, %d are not sent", s.Name, s.InFlight, s.Dirty)
		}
	}
	if load := p.sides[kind.Hub].Stats(); load.Jobs+load.Writing > 0 {
		t.Errorf("the hub has work left: %+v", load)
	}
}

func TestCollision_RejectionNamesBothObjects(t *testing.T) {
	p := collidingPair(t)
	rejection, ok := p.sides[kind.Spoke].syncs[""].peer.Rejection(kind.ApplicationScope, engine.Key{Namespace: "x", Name: "b"})
	if !ok || rejection.Code != engine.NameTaken || !strings.Contains(rejection.Message, "x/b") || !strings.Contains(rejection.Message, "x.b,") {
		t.Fatalf("rejected: %v, %+v", ok, rejection)
	}
	if _, ok := p.sides[kind.Spoke].syncs[""].peer.Rejection(kind.ApplicationScope, engine.Key{Name: "x.b"}); ok {
		t.Error("the other one is rejected too")
	}
	// As soon as the name is free, the other one gets it.
	uid := p.stores[kind.Spoke].objects[ref("argocd", "x.b")].UID()
	delete(p.stores[kind.Spoke].objects, ref("argocd", "x.b"))
	p.step(kind.Spoke, Deleted{Ref: ref("argocd", "x.b"), UID: uid})
	p.settle()
	p.waitSeconds(600)
	if o := p.stores[kind.Hub].objects[ref("w1", "x.b")]; o == nil || o.Annotation(kind.SourceNameAnnotation) != "x/b" {
		t.Errorf("the hub has %v", o)
	}
}
