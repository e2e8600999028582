package sim

import (
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport/route"
)

// This file is the connections of agents that know two hubs, and of the standby.

// dialOther connects a standby to the other hub, once its cluster was read.
func (p *process) dialOther() {
	for _, r := range p.reflectors {
		if r.frontier == 0 {
			p.dialling = false
			p.later(second, p.dial)
			return
		}
	}
	s := p.site.other()
	p.later(p.w.between(5, 200), func() {
		if !s.sender.up || !s.holdsLease() || p.w.group.cutOff() || p.cluster.down() {
			p.redial(0)
			return
		}
		p.connect(&conn{w: p.w, site: s}, s.sender)
	})
}

// dialHub connects an agent to the hub at the address that is next.
func (p *process) dialHub() {
	if p.part == receiver {
		p.dialOther()
		return
	}
	s := p.w.group.sites[p.route.Current()]
	p.later(p.w.between(5, 200), func() {
		to := s.accepts(p.spoke)
		if to == nil || p.cluster.down() {
			p.dialling = false
			p.attempted(false, 0, route.End{})
			return
		}
		c := &conn{w: p.w, spoke: p.spoke, site: s}
		p.connect(c, to)
		c.agent.since = p.w.now
		if p.route.MayReturn() {
			p.returnToFirst(c.agent)
		}
	})
}

// accepts returns a principal that an agent reaches at the address of a hub, or nil.
func (s *site) accepts(agent *spoke) *process {
	if agent.cutFrom(s) {
		return nil
	}
	var up []*process
	for _, p := range s.principals {
		if p.up && p.holdsLease() {
			up = append(up, p)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[s.w.rng.IntN(len(up))]
}

// connect opens a connection.
func (p *process) connect(c *conn, to *process) {
	w := p.w
	p.dialling = false
	p.attempt++
	c.agent = w.newEnd(c, p)
	c.hub = w.newEnd(c, to)
	c.generation = to.born.Generation
	c.agent.epoch = engine.Epoch{Incarnation: p.incarnation, Attempt: p.attempt}
	w.conns = append(w.conns, c)
	w.tracef("%s: dials %s", p.name, to.name)
	c.agent.begin()
	p.later(20*second, func() {
		if c.agent.open && !c.agent.welcomed {
			c.agent.lost()
		}
	})
	to.later(w.between(2, 100), c.hub.begin)
}

// returnToFirst ends a session with another hub than the first when the first accepts sessions again.
func (p *process) returnToFirst(e *end) {
	p.later(engine.Time(p.route.NextReturn().Milliseconds()), func() {
		switch {
		case !e.open:
		case p.w.group.sites[0].accepts(p.spoke) == nil:
			p.returnToFirst(e)
		default:
			e.code = engine.Reconnect
			e.close(0)
			p.step(reconcile.FromPeer{Input: engine.Disconnected{Session: e.session}})
		}
	})
}

// ended is an agent whose connection has ended.
func (e *end) ended(retryAfter engine.Time) {
	if e.p.route == nil {
		e.p.redial(retryAfter)
		return
	}
	e.p.attempted(e.opened, time.Duration(e.c.w.now-e.since)*time.Millisecond, route.End{
		WrongHub: e.code == engine.HubSuperseded || e.code == engine.WrongHub, Return: e.code == engine.Reconnect,
		RetryAfter: time.Duration(retryAfter) * time.Millisecond})
}

// attempted plans the next attempt.
func (p *process) attempted(opened bool, lasted time.Duration, ended route.End) {
	pause := p.route.Next(opened, lasted, ended)
	p.later(engine.Time(pause.Milliseconds())+1, p.dial)
}

// beginAgent reads what is known of the hub.
func (e *end) beginAgent() {
	if e.p.part != receiver {
		e.atLeast = e.p.cluster.recall(leases, "agent").Generation.Number
		e.p.readLease()
	}
}

// historyMark returns the mark of the process's own cluster. Hubs exchange none.
func (e *end) historyMark() engine.HistoryMark {
	if e.c.spoke == nil {
		return engine.HistoryMark{}
	}
	return e.p.historyMark(e.c.spoke)
}

// awaits records the generation of the hub before the session begins. It reports whether the message has to wait, or is
// dropped.
func (e *end) awaits(m engine.Welcome) bool {
	switch {
	case e.p.part == receiver && m.HubGeneration > e.p.born.Generation:
		e.p.changeState(func(s hubstate.State) hubstate.State { return hubstate.FollowGeneration(s, m.HubGeneration) })
		e.p.later(1, func() { e.giveUp() })
		return true
	case e.p.part == receiver || m.HubGeneration <= 1:
		return false
	}
	e.ready = false
	p := e.p
	p.ask(func() (*kind.Object, *apiError) {
		lease := p.cluster.recall(leases, "agent")
		lease.Generation = lease.generation().Newer(lease.generation().Follow(m, lease.KnownStore))
		p.cluster.remember(actor{what: p.name, proc: p}, leases, "agent", lease)
		return nil, nil
	}, func(_ *kind.Object, err *apiError) {
		if !e.open {
			return
		}
		if err != nil {
			e.giveUp()
			return
		}
		e.ready = true
		early := e.early
		e.early = nil
		e.handle(m)
		for _, m := range early {
			e.receive(m)
		}
	})
	return true
}

// giveUp closes a connection for a reason outside of the core.
func (e *end) giveUp() {
	if e.open {
		e.close(5 * second)
		e.p.step(reconcile.FromPeer{Input: engine.Disconnected{Session: e.session}})
	}
}

// generation returns the latest generation in a Lease. Before the first promotion it has none.
func (m memory) generation() engine.HubGeneration {
	if m.Generation.Hub == "" && m.Hub.PrincipalUID != "" {
		return engine.HubGeneration{Hub: m.Hub.PrincipalUID, Number: 1}
	}
	return m.Generation
}

// name is how the hub names the agent.
func (c *conn) name() string {
	if c.spoke == nil {
		return hubstate.AgentName(c.agent.p.cluster.st.uid)
	}
	return c.spoke.agent.Name
}

func (c *conn) cutOff() bool {
	if c.spoke == nil {
		return c.w.group.cutOff()
	}
	return c.spoke.cutOff() || c.site != nil && c.spoke.cutFrom(c.site)
}

// bus reports whether the connection loses messages.
func (c *conn) bus() bool { return c.w.shape.bus && c.spoke != nil }

func (c *conn) latency() engine.Time {
	if c.spoke == nil {
		return c.w.between(2, 80)
	}
	return c.spoke.latency()
}

func (g *group) cutOff() bool { return g.w.now < g.partitionUntil }

// cutFrom reports whether an agent does not reach a hub.
func (s *spoke) cutFrom(hub *site) bool { return s.cutOff() || s.w.now < s.cutUntil[hub.index] }
