package reconcile

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// recordMark is a side that has stored its next history mark, and sends it with the next beacon.
func (p *pair) recordMark(side kind.Side) {
	p.t.Helper()
	agent := []string{"w1", ""}[side]
	st, _ := p.sides[side].Status(agent)
	if st.Unmarked == 0 {
		p.t.Fatal("no mark is needed")
	}
	p.mark++
	p.step(side, FromPeer{Agent: agent, Input: engine.Marked{Mark: p.markOf(side), Revision: st.Unmarked}})
	p.waitSeconds(120)
}

// forget is a store that was restored to a state without an Application, and has then written past what the other side knows.
func (p *pair) forget(side kind.Side, r kind.Ref) {
	p.disconnect()
	delete(p.stores[side].objects, r)
	p.mark--
	p.revision = 10_000
	p.events = nil
	if side == kind.Hub {
		p.stopHub()
		p.lists(side, Resources()...)
	} else {
		p.sides[side] = New(p.sides[side].cfg)
		p.lists(side, Resources()...)
	}
}

// The hub is restored while the agent is disconnected, and has written past the revision that the agent knows. The agent restarts,
// and knows what its Lease has. What the hub lacks stays until a user confirms.
func TestHistory_ManagedApplicationsStay(t *testing.T) {
	for name, restart := range map[string]bool{"the same process": false, "the next process": true} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			p.connect()
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
			}
			p.recordMark(kind.Hub)
			memory := p.sides[kind.Spoke].Memory()
			if memory.Store.Mark != p.markOf(kind.Hub) {
				t.Fatalf("the agent remembers %+v", memory.Store)
			}
			if both := (Memory{Store: engine.Store{UID: "h", Revision: 1}}).With(memory); both.Store != memory.Store {
				t.Fatalf("the Lease has %+v", both.Store)
			}
			p.forget(kind.Hub, ref("w1", "a"))
			if restart {
				cfg := p.sides[kind.Spoke].cfg
				cfg.KnownStore, cfg.KnownSeen, cfg.KnownHub = memory.Store, memory.Seen, memory.Hub
				p.sides[kind.Spoke] = New(cfg)
				p.lists(kind.Spoke, Resources()...)
			}
			p.connect()
			p.waitSeconds(120)
			if p.stores[kind.Spoke].objects[ref("argocd", "a")] == nil {
				t.Fatal("an Application that the restored hub lacks was deleted")
			}
			if st, _ := p.sides[kind.Hub].Status("w1"); st.Unmarked != 0 {
				t.Error("the hub records marks although it lacks one")
			}
			p.confirmAll()
			p.waitSeconds(120)
			if p.stores[kind.Spoke].objects[ref("argocd", "a")] != nil {
				t.Error("the Application stays after the confirmation")
			}
			p.recordMark(kind.Hub) // it continues
			p.disconnect()
			p.events = nil
			p.connect()
			if _, untrusted := p.sides[kind.Spoke].syncs[""].peer.Other(); untrusted {
				t.Error("the accepted store is untrusted again")
			}
		})
	}
}

// The same in the other direction: the cluster of an autonomous agent is restored.
func TestHistory_AutonomousApplicationsStay(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	p.connect()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		p.user(kind.Spoke, ref("argocd", name), app("argocd", name, "default", "v1"))
	}
	p.recordMark(kind.Spoke)
	p.forget(kind.Spoke, ref("argocd", "a"))
	p.connect()
	p.waitSeconds(120)
	if p.stores[kind.Hub].objects[ref("w1", "a")] == nil {
		t.Fatal("the replica of an Application that the restored cluster lacks was deleted")
	}
	if st, _ := p.sides[kind.Spoke].Status(""); st.Unmarked != 0 {
		t.Error("the agent records marks although it lacks one")
	}
	p.confirmAll()
	p.waitSeconds(120)
	if p.stores[kind.Hub].objects[ref("w1", "a")] != nil {
		t.Error("the replica stays after the confirmation")
	}
}

// A managed agent without child Applications owns nothing that its absence would delete.
func TestHistory_ManagedAgentNeedsNoMarks(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	if st, _ := p.sides[kind.Spoke].Status(""); st.Unmarked != 0 {
		t.Errorf("a mark for revision %d is needed", st.Unmarked)
	}
}
