package reconcile

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// An agent's registration may end or change while an object has work of it to be
// done: one write is under way, and more wait. What is under way cannot be taken
// back. Nothing else may be written on behalf of a registration that is no more.
func TestUnregister_NoWriteStarts(t *testing.T) {
	moved := kind.Agent{Name: "w1", Mode: kind.Autonomous, Mapping: kind.ByNamespace, HubNamespace: "elsewhere", Server: "https://proxy:9090?agentName=w1"}
	for title, end := range map[string]Input{
		"its Agent is deleted":       Unregister{Agent: "w1"},
		"it has another namespace":   Register{Agent: moved},
		"Argo CD's settings changed": ArgoSettings{InstanceLabel: "other"},
	} {
		t.Run(title, func(t *testing.T) {
			p := newPair(t, kind.Autonomous)
			p.connect()
			p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
			var under []Write
			p.hook = func(side kind.Side, w Write) bool {
				if side != kind.Hub || w.Ref.Resource != kind.Applications {
					return false
				}
				under = append(under, w)
				return true // no answer yet
			}
			body, err := rawjson.Set([]byte(app("argocd", "a", "default", "v2")), []byte(`{"sync":{"status":"Synced"},"reconciledAt":"2026-01-01T00:00:00Z"}`), "status")
			if err != nil {
				t.Fatal(err)
			}
			p.user(kind.Spoke, ref("argocd", "a"), string(body))
			if len(under) != 1 {
				t.Fatalf("%d writes are under way, want the first of two", len(under))
			}

			p.step(kind.Hub, end)
			w := under[0]
			p.step(kind.Hub, WriteResult{ID: w.ID, Object: p.stores[kind.Hub].put(w.Ref, w.Object.Raw(), false)})
			p.now += 60 * engine.Second
			p.step(kind.Hub, Tick{})
			if len(under) != 1 {
				t.Errorf("%s %s was begun: %s", under[1].Verb, under[1].Ref.Name, under[1].Reason)
			}
			if n := p.sides[kind.Hub]; len(n.objectQueues) > 0 || len(n.writing) > 0 {
				t.Errorf("%d objects have work left, %d writes", len(n.objectQueues), len(n.writing))
			}
		})
	}
}

// What waits for its turn at the API server is given up too, however the
// registration ended.
func TestUnregister_DropsPendingWrites(t *testing.T) {
	for title, end := range map[string]Input{
		"its Agent is deleted":       Unregister{Agent: "w1"},
		"it has another namespace":   Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "elsewhere"}},
		"Argo CD's settings changed": ArgoSettings{InstanceLabel: "other"},
	} {
		p := newPair(t, kind.Managed)
		given := 0
		for _, e := range p.sides[kind.Hub].Step(p.now, end) {
			if a, ok := e.(Abandon); ok && a.Agent == "w1" {
				given++
			}
		}
		if given != 1 {
			t.Errorf("%s: writes were given up %d times", title, given)
		}
	}
}
