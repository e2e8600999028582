package reconcile

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// withFailedWrite changes an autonomous agent's Application and lets the hub's
// write of it fail. If done, the write takes effect all the same.
func withFailedWrite(t *testing.T, done bool) *pair {
	t.Helper()
	p := newPair(t, kind.Autonomous)
	p.connect()
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
	var failed *Write
	p.hook = func(side kind.Side, w Write) bool {
		if side == kind.Hub && w.Reason == "apply application" && failed == nil {
			failed = &w
			return true
		}
		return false
	}
	c := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	p.user(kind.Spoke, ref("argocd", "a"), string(set(t, c.Raw(), `"v2"`, "spec", "source", "targetRevision")))
	if failed == nil {
		t.Fatal("no write")
	}
	if done {
		o := p.stores[kind.Hub].put(failed.Ref, failed.Object.Raw(), false)
		p.step(kind.Hub, Observed{Resource: kind.Applications, Object: o})
	}
	p.step(kind.Hub, WriteResult{ID: failed.ID, Failure: &Failure{Code: engine.Unavailable, Message: "context deadline exceeded"}})
	return p
}

func (p *pair) hubConditions() string {
	return string(p.stores[kind.Hub].objects[ref("w1", "a")].Get("status", "conditions"))
}

func TestRejection_ConditionEndsInSync(t *testing.T) {
	for _, c := range []struct {
		name      string
		done      bool
		reconnect bool
	}{
		{"not done", false, false},
		{"not done, another session", false, true},
		{"done", true, false},
		{"done, another session", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := withFailedWrite(t, c.done)
			if !strings.Contains(p.hubConditions(), kind.ConditionError) {
				t.Fatalf("the failure is not shown: %s", p.hubConditions())
			}
			if c.reconnect {
				p.disconnect()
				p.connect()
			}
			p.waitSeconds(600)
			if got := string(p.stores[kind.Hub].objects[ref("w1", "a")].Get("spec", "source", "targetRevision")); got != `"v2"` {
				t.Errorf("the hub has %s", got)
			}
			if conditions := p.hubConditions(); conditions != "" {
				t.Errorf("the hub still shows %s", conditions)
			}
			cured := false
			for _, f := range p.events {
				cured = cured || f.Type == engine.Accepted && f.Scope == kind.ApplicationScope
			}
			if !cured {
				t.Error("the end was not reported")
			}
		})
	}
}

// A rejection is shown again in each session in which it still holds.
func TestRejection_ConditionReturnsInNextSession(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.sides[kind.Spoke].cfg.Policy.AdoptNever = true
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "theirs"))
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	fails := 1
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Hub || w.Reason != "update conditions" || fails == 0 {
			return false
		}
		fails--
		p.step(side, WriteResult{ID: w.ID, Failure: &Failure{Code: engine.Unavailable, Message: "etcd leader changed"}})
		return true
	}
	p.connect()
	if fails > 0 || p.hubConditions() != "" {
		t.Fatalf("the write did not fail: %s", p.hubConditions())
	}
	p.disconnect()
	p.waitSeconds(60)
	p.connect()
	p.waitSeconds(60)
	if !strings.Contains(p.hubConditions(), string(engine.NotAdopted)) {
		t.Errorf("the hub shows %q", p.hubConditions())
	}
}
