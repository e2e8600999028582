package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// advanceTime lets time pass on both sides.
func (p *pair) advanceTime(d engine.Time) {
	for range 10 {
		p.now += d / 10
		for side := range p.sides {
			p.step(kind.Side(side), Tick{})
		}
		p.settle()
	}
}

// heldApps counts the Applications of a side with a held deletion and a text in the message of its condition.
func (p *pair) heldApps(side kind.Side, text string) int {
	n := 0
	for ref, o := range p.stores[side].objects {
		conditions := string(o.Get("status", "conditions"))
		if ref.Resource == kind.Applications && strings.Contains(conditions, kind.ConditionHeld) && strings.Contains(conditions, text) {
			n++
		}
	}
	return n
}

func TestConditions_HeldDeletionsAreShown(t *testing.T) {
	const all = 15
	for _, c := range []struct {
		mode         kind.Mode
		owner        kind.Side
		namespace    string // of the owner's Applications
		project, who string
	}{
		{kind.Managed, kind.Hub, "w1", "default", "The hub no longer has"},
		{kind.Autonomous, kind.Spoke, "argocd", "default", "The cluster of agent w1 no longer has"},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			p := newPair(t, c.mode)
			p.connect()
			body := func(i int) string { return app(c.namespace, fmt.Sprintf("a%02d", i), c.project, "r1") }
			for i := range all {
				p.user(c.owner, ref(c.namespace, fmt.Sprintf("a%02d", i)), body(i))
			}
			replica := 1 - c.owner
			count := func() int {
				n := 0
				for ref := range p.stores[replica].objects {
					if ref.Resource == kind.Applications {
						n++
					}
				}
				return n
			}
			if count() != all {
				t.Fatalf("%d copies", count())
			}

			p.stores[c.owner].objects = map[kind.Ref]*kind.Object{}
			p.step(c.owner, List{Resource: kind.Applications, Revision: 1000})
			p.stores[c.owner].rev = 1000
			p.settle()
			p.advanceTime(10 * engine.Second)
			if n := p.heldApps(replica, c.who); n != all || count() != all {
				t.Fatalf("%d of %d copies show that their deletion is held; first: %s", n, count(), p.stores[replica].objects[ref(c.namespace, "a00")].Raw())
			}

			p.user(c.owner, ref(c.namespace, "a00"), body(0)) // it is there again
			p.advanceTime(20 * engine.Second)
			if n := p.heldApps(replica, "as one of 14"); n != all-1 {
				t.Errorf("%d copies show that they are one of 14", n)
			}
			if n := p.heldApps(replica, ""); n != all-1 {
				t.Errorf("%d copies show that their deletion is held", n)
			}

			status, _ := p.sides[kind.Hub].Status("w1")
			id := ""
			for _, h := range status.RemoteHolds {
				id = h.ID
			}
			for _, s := range status.Scopes {
				if s.HeldID != "" {
					id = s.HeldID
				}
			}
			if p.heldApps(replica, kind.Confirmation+"="+id) != all-1 {
				t.Errorf("the condition does not name %s", id)
			}
			p.step(kind.Hub, Confirm{Agent: "w1", ID: id})
			p.settle()
			p.advanceTime(10 * engine.Second)
			if count() != 1 || p.heldApps(replica, "") != 0 {
				t.Errorf("%d copies after the confirmation, of which %d are held", count(), p.heldApps(replica, ""))
			}
		})
	}
}
