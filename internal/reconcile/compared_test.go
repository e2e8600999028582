package reconcile

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// An agent that is restarted while something cannot be made equal would else
// never be ready.
func TestInitialSync_CompletesDespiteRejectedItem(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, projectRef("team"), project("team", `{}`, onlyW1))
	p.user(kind.Spoke, ref("argocd", "local"), app("argocd", "local", "team", "r1")) // of the spoke's own
	p.step(kind.Spoke, FromPeer{Input: engine.Disconnected{Session: 1}})
	delete(p.stores[kind.Hub].objects, projectRef("team"))
	p.step(kind.Hub, List{Resource: kind.AppProjects, Revision: 1000})
	p.stores[kind.Hub].rev = 1000
	p.wires, p.events = [2][]engine.Message{}, nil
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Disconnected{Session: 1}})
	p.revision = 10_000
	p.connect()
	p.advanceTime(30 * engine.Second)
	if p.stores[kind.Spoke].objects[projectRef("team")] == nil {
		t.Fatal("a project went although an Application uses it")
	}
	compared := 0
	for _, f := range p.events {
		if f.Type == engine.InitialSyncDone {
			compared++
		}
	}
	if compared != 2 {
		t.Errorf("%d of the two sides have compared everything", compared)
	}
}
