package reconcile

import (
	"fmt"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// relistHarness is a hub whose agents connect again and again, and claim to have seen more
// of its store than its watches have shown. Every other object of the store moves
// on, so that the revision grows; watches are quiet, but for a bookmark each minute.
type relistHarness struct {
	*Reconciler
	now      engine.Time
	revision uint64
	session  uint64
	lists    map[kind.Resource]int
	begun    map[string]int // agent → sessions that have begun
	delay    engine.Time    // until a list is there
	pending  map[kind.Resource]engine.Time
}

func newRelistHarness(agents int) *relistHarness {
	c := &relistHarness{Reconciler: New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "p"}), now: 1_000_000, revision: 1000,
		lists: map[kind.Resource]int{}, begun: map[string]int{}, pending: map[kind.Resource]engine.Time{}}
	for _, r := range Resources() {
		c.do(List{Resource: r, Revision: c.revision})
	}
	for i := range agents {
		name := fmt.Sprintf("w%d", i)
		c.do(Register{Agent: kind.Agent{Name: name, Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: name}})
	}
	return c
}

func (c *relistHarness) do(in Input) {
	for _, e := range c.Step(c.now, in) {
		switch e := e.(type) {
		case Relist:
			c.lists[e.Resource]++
			c.pending[e.Resource] = c.now + c.delay
		case ToPeer:
			if s, ok := e.Effect.(engine.Send); ok {
				if w, ok := s.Message.(engine.Welcome); ok {
					c.begun[w.Agent]++
				}
			}
		}
	}
}

// connect has an agent say that it has seen so much more than the store has, or
// less if that is negative.
func (c *relistHarness) connect(agent string, ahead int) {
	c.session++
	c.do(FromPeer{Agent: agent, Input: engine.Connected{Session: c.session, Store: engine.Store{UID: "hub", Revision: c.revision}}})
	m := hello("managed")
	m.Epoch.Incarnation = c.session
	m.Store = engine.Store{UID: "c", Revision: 1}
	for _, scope := range []string{kind.AppProjectScope, kind.RepositoryScope, kind.GPGKeyScope, kind.ApplicationScope} {
		m.Seen = append(m.Seen, engine.Seen{Scope: scope, Revision: uint64(int(c.revision) + ahead)})
	}
	c.do(FromPeer{Agent: agent, Input: engine.Received{Session: c.session, Message: m}})
}

// second lets one second pass.
func (c *relistHarness) second() {
	c.now += engine.Second
	c.revision += 7
	for _, r := range Resources() {
		if at, ok := c.pending[r]; ok && at <= c.now {
			delete(c.pending, r)
			c.do(List{Resource: r, Revision: c.revision})
		}
		if c.now%(60*engine.Second) == 0 {
			c.do(Bookmark{Resource: r, Revision: c.revision})
		}
	}
	c.do(Tick{})
}

func (c *relistHarness) most() int {
	most := 0
	for _, n := range c.lists {
		most = max(most, n)
	}
	return most
}

// A full list of a large hub is what costs most there. However often agents
// restart, and whatever they claim, lists are rare; and those that are honest get
// their turn.
func TestRelist_AgentsCannotForceLists(t *testing.T) {
	const minutes = 10
	for title, test := range map[string]struct {
		agents, every, ahead, most int
	}{
		"one that crashes every few seconds":                 {1, 3, -1, 1},
		"one that claims the newest revision each time":      {1, 3, 0, 1},
		"one that claims the future":                         {1, 3, 5, 0},
		"one that claims the far future":                     {1, 3, 1 << 40, 0},
		"many that claim the newest revision, all the time":  {100, 3, 0, minutes * 2},
		"many that claim the newest revision, once a minute": {100, 60, 0, minutes * 2},
	} {
		t.Run(title, func(t *testing.T) {
			c := newRelistHarness(test.agents)
			for s := range minutes * 60 {
				if s%test.every == 0 {
					for i := range test.agents {
						c.connect(fmt.Sprintf("w%d", i), test.ahead)
					}
				}
				c.second()
			}
			if got := c.most(); got > test.most {
				t.Errorf("%d lists of a resource in %d minutes, want at most %d", got, minutes, test.most)
			}
		})
	}
}

// An agent that waits because a list is not due yet begins with the next bookmark, or with a list that another agent
// caused.
func TestRelist_AgentWithNewerViewBeginsLater(t *testing.T) {
	c := newRelistHarness(3)
	for range 5 {
		for s := range 90 {
			if s == 0 {
				for i := range 3 {
					c.connect(fmt.Sprintf("w%d", i), 0)
				}
			}
			c.second()
		}
	}
	for i := range 3 {
		if n := c.begun[fmt.Sprintf("w%d", i)]; n != 5 {
			t.Errorf("%d of 5 sessions of w%d have begun", n, i)
		}
	}
	if c.most() == 0 {
		t.Error("a list helped no agent")
	}
}

// A list that takes long is requested once.
func TestRelist_SlowListIsRequestedOnce(t *testing.T) {
	c := newRelistHarness(50)
	c.delay = 25 * engine.Second
	for i := range 50 {
		c.connect(fmt.Sprintf("w%d", i), 0)
		if i%10 == 0 {
			c.second()
		}
	}
	for range 20 {
		c.second()
	}
	if got := c.most(); got != 1 {
		t.Errorf("%d lists", got)
	}
}
