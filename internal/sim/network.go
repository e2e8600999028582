package sim

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// conn is a connection of an agent to one replica of the principal. As a stream it keeps the order and loses nothing
// until it breaks; as a message bus it loses, doubles and reorders.
type conn struct {
	w     *world
	spoke *spoke // whose identity the agent has proved; nil: between two hubs
	site  *site  // of the hub, if there are two

	generation uint64 // of that hub
	agent      *end
	hub        *end
	broken     bool
}

// end is one end of a connection.
type end struct {
	c       *conn
	p       *process
	life    int
	session uint64
	open    bool
	ready   bool
	early   []engine.Message
	lastAt  engine.Time // when the last message arrives here
	seq     uint64
	epoch   engine.Epoch

	welcomed bool

	opened  bool        // agent: the session was opened
	since   engine.Time // agent, with two hubs
	code    engine.Code // agent, with two hubs: why it closed the connection
	atLeast uint64      // agent, with two hubs: the generation in its Lease when it began
}

func (e *end) other() *end {
	if e == e.c.agent {
		return e.c.hub
	}
	return e.c.agent
}

// agentName is how the Reconciler of this end names the agent.
func (e *end) agentName() string {
	if e == e.c.agent {
		return ""
	}
	return e.c.name()
}

// dial connects an agent to any replica that is up, after a fresh read of its own store.
func (p *process) dial() {
	if p.dialling || len(p.conns) > 0 {
		return
	}
	p.dialling = true
	w := p.w
	if w.group != nil {
		p.dialHub()
		return
	}
	var up []*process
	for _, h := range w.principals {
		if h.up {
			up = append(up, h)
		}
	}
	if len(up) == 0 || p.spoke.cutOff() || p.cluster.down() {
		p.later(w.between(20, 5*second), func() { p.redial(0) })
		return
	}
	hub := up[int(p.attempt)%len(up)]
	if !w.shape.steady {
		hub = up[w.rng.IntN(len(up))]
	}
	p.later(w.between(5, 200), func() {
		if !hub.up {
			p.redial(0)
			return
		}
		p.dialling = false
		p.attempt++
		c := &conn{w: w, spoke: p.spoke}
		c.agent = w.newEnd(c, p)
		c.hub = w.newEnd(c, hub)
		c.agent.epoch = engine.Epoch{Incarnation: p.incarnation, Attempt: p.attempt}
		w.conns = append(w.conns, c)
		w.tracef("%s: dials %s", p.name, hub.name)
		c.agent.begin()
		if w.shape.bus { // where a Hello can get lost, there is a timeout
			p.later(20*second, func() {
				if c.agent.open && !c.agent.welcomed {
					c.agent.lost()
				}
			})
		}
		// The hub's own store is read afresh for the session, too.
		hub.later(w.between(2, 100), c.hub.begin)
	})
}

func (w *world) newEnd(c *conn, p *process) *end {
	w.sessions++
	e := &end{c: c, p: p, life: p.life, session: w.sessions, open: true}
	p.conns[e.session] = e
	return e
}

// begin reports the connection to the reconciler.
func (e *end) begin() {
	if !e.open {
		return
	}
	if e == e.c.hub && !e.p.admits(e.c.name()) {
		e.refuse()
		return
	}
	e.ready = true
	st := e.p.cluster.st
	if e == e.c.agent {
		e.beginAgent()
	}
	skew := engine.Time(0)
	if e == e.c.hub && e.c.spoke != nil {
		skew = e.c.spoke.cluster.skew
	}
	e.p.step(reconcile.FromPeer{Agent: e.agentName(), ClockSkew: skew, Input: engine.Connected{
		Session: e.session, Epoch: e.epoch, Store: engine.Store{UID: st.uid, Revision: st.rev, Mark: e.historyMark()}}})
	early := e.early
	e.early = nil
	for _, m := range early {
		e.receive(m)
	}
}

// redial tries again, later and later.
func (p *process) redial(after engine.Time) {
	p.dialling = false
	p.failures++
	most := min(second<<min(p.failures, 6), 30*second)
	p.later(after+p.w.between(200, most), p.dial)
}

// toPeer executes what the Reconciler requests of a connection.
func (p *process) toPeer(e reconcile.ToPeer) {
	switch eff := e.Effect.(type) {
	case engine.Send:
		if end := p.conns[eff.Session]; end != nil {
			end.send(eff.Message)
		}
	case engine.CloseSession:
		if end := p.conns[eff.Session]; end != nil {
			p.w.tracef("%s: cuts the connection: %s %s", p.name, eff.Code, eff.Message)
			end.code = eff.Code
			end.close(eff.RetryAfter)
		}
	}
}

// send puts a message on its way, as bytes.
func (e *end) send(m engine.Message) {
	w := e.c.w
	e.seq++
	m = e.p.translate(m)
	data, err := wire.Encode(m, wire.Meta{Source: "sim/" + e.p.name, Session: e.epoch, Seq: e.seq})
	if err != nil {
		w.violate("encode %T: %v", m, err)
		return
	}
	if e.c.spoke != nil {
		w.messages++
		w.bytes += len(data)
	}
	if w.group != nil {
		w.group.guardSend(e, m)
	}
	if w.trace != nil {
		w.traceMessage(e, m, len(data))
	}
	if w.mutant.loses(m) {
		return
	}
	if e.c.broken || e.c.cutOff() {
		if !e.c.bus() {
			e.c.cut()
		}
		return
	}
	if !e.c.bus() {
		e.deliver(data, e.c.latency(), true)
		return
	}
	if w.faulty && w.chance(w.shape.loss) {
		return
	}
	e.deliver(data, e.c.latency(), false)
	if w.faulty && w.chance(w.shape.loss) {
		e.deliver(data, w.between(0, 20*second), false)
	}
}

func (e *end) deliver(data []byte, d engine.Time, inOrder bool) {
	to := e.other()
	at := e.c.w.now + d
	if inOrder {
		at = max(at, to.lastAt)
		to.lastAt = at
	}
	to.p.in(to.life, at-e.c.w.now, func() {
		if !to.open || inOrder && e.c.broken {
			return
		}
		m, _, err := wire.Decode(data)
		if err != nil {
			e.c.w.violate("decode: %v", err)
			return
		}
		to.receive(m)
	})
}

func (e *end) receive(m engine.Message) {
	if !e.open {
		return
	}
	if !e.ready {
		e.early = append(e.early, m)
		return
	}
	m = e.c.w.mutant.received(e.p, m)
	if _, ok := m.(engine.Welcome); ok {
		e.p.failures = 0
		e.welcomed = true
	}
	if _, ok := m.(engine.Hello); !ok {
		m = e.p.translate(m)
	}
	if welcome, ok := m.(engine.Welcome); ok && e.c.w.group != nil && e.awaits(welcome) {
		return
	}
	e.handle(m)
}

func (e *end) handle(m engine.Message) {
	e.p.received(e.c.name(), m)
	e.p.receivedMark(m)
	e.p.step(reconcile.FromPeer{Agent: e.agentName(), Input: engine.Received{Session: e.session, Message: m}})
}

// close is an orderly end from this side; the other hears of it after what was sent before.
func (e *end) close(retryAfter engine.Time) {
	if !e.open {
		return
	}
	e.open = false
	delete(e.p.conns, e.session)
	to := e.other()
	if to.open && !e.c.broken {
		d := max(e.c.latency(), to.lastAt-e.c.w.now)
		to.p.in(to.life, d, func() { to.lost() })
	}
	if e == e.c.agent {
		e.ended(retryAfter)
	}
}

// lost reports to this end that the connection is closed.
func (e *end) lost() {
	if !e.open || !e.p.up || e.p.life != e.life {
		return
	}
	e.open = false
	delete(e.p.conns, e.session)
	if to := e.other(); !e.c.broken {
		e.c.broken = true
		to.p.in(to.life, e.c.w.between(5, 10*second), to.lost)
	}
	e.p.step(reconcile.FromPeer{Agent: e.agentName(), Input: engine.Disconnected{Session: e.session}})
	if e == e.c.agent {
		e.ended(0)
	}
}

// died is the end of the process at this end. The other side usually learns of it from its kernel, sometimes only from
// the keepalive.
func (e *end) died() {
	e.open = false
	w := e.c.w
	to := e.other()
	d := w.between(5, 500)
	if w.chance(20) {
		d = w.between(10*second, 40*second)
	}
	e.c.broken = true
	to.p.in(to.life, d, to.lost)
}

// cut stops all traffic; each end finds out in its own time.
func (c *conn) cut() {
	if c.broken {
		return
	}
	c.broken = true
	for _, e := range []*end{c.agent, c.hub} {
		e.p.in(e.life, c.w.between(second, 45*second), e.lost)
	}
}

func sortedIDs[V any](m map[uint64]V) []uint64 {
	out := make([]uint64, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// liveConns drops what is over from the world's list, and returns the rest.
func (w *world) liveConns() []*conn {
	w.conns = slices.DeleteFunc(w.conns, func(c *conn) bool { return !c.agent.open && !c.hub.open })
	return w.conns
}

// cutOff reports whether nothing gets from this agent to the hub or back.
func (s *spoke) cutOff() bool { return s.w.now < s.partitionUntil }

func (s *spoke) latency() engine.Time {
	if s.w.now < s.slowUntil {
		return s.w.between(second, 20*second)
	}
	return s.w.between(2, 80)
}

// sessionOpened records the session. Other principal replicas are not notified: a session of theirs ends with its
// connection.
func (w *world) sessionOpened(p *process, agent string, f engine.Event) {
	if p.part != principal {
		return
	}
	if p.spoke != nil {
		w.ledger.opened(p, f)
		return
	}
	p.peers[agent] = f.Hello.ClusterUID
	w.ledger.recordSession(p, agent, f)
}
