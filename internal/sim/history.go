package sim

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// This file is about history marks: principals record them with the registration of an agent, agents in their Leases.

// historyMark returns the mark of a process's own cluster, for a session. The registration exists before the first session.
func (p *process) historyMark(s *spoke) engine.HistoryMark {
	if p.spoke != nil {
		return p.cluster.historyMark(leases, "agent")
	}
	if p.cluster.st.get(ref(p.w.registrations(), p.cluster.argo, s.agent.Name)) == nil {
		p.cluster.remember(actor{what: p.name, proc: p}, p.w.registrations(), s.agent.Name, memory{})
	}
	return p.cluster.historyMark(p.w.registrations(), s.agent.Name)
}

// mayMark reports whether a session needs a mark, and its cluster was not restored since the session began.
func (p *process) mayMark(st engine.Status, mark engine.HistoryMark) bool {
	return st.Unmarked != 0 && st.Mark.Record == mark.Record && st.Mark.Number <= mark.Number
}

// recordMark is an agent that records a mark in its Lease.
func (p *process) recordMark() {
	st, _ := p.reconciler.Status("")
	if st.Unmarked == 0 {
		return
	}
	mark := engine.HistoryMark{}
	p.ask(func() (*kind.Object, *apiError) {
		if mark = p.cluster.historyMark(leases, "agent"); !p.mayMark(st, mark) {
			return nil, &apiError{"Conflict", "the Lease was restored"}
		}
		mark.Number++
		m := p.cluster.recall(leases, "agent")
		m.Mark = mark.Number
		p.cluster.remember(actor{what: p.name, proc: p}, leases, "agent", m)
		p.w.ledger.markRecorded(p.cluster, mark)
		return nil, nil
	}, func(_ *kind.Object, err *apiError) {
		if err == nil {
			m := p.persisted[""]
			m.Mark = mark.Number
			p.persisted[""] = m
			p.marked("", st, mark)
		}
	})
}

// resetMarks is a process that noticed that its cluster was restored. The next one has lower marks than the other side may
// know, also if the backup has the same ones.
func (p *process) resetMarks() {
	reset := func(resource kind.Resource, name string) {
		if p.cluster.st.get(ref(resource, p.cluster.argo, name)) == nil {
			return
		}
		m := p.cluster.recall(resource, name)
		m.Mark = 0
		p.cluster.remember(actor{what: p.name, proc: p}, resource, name, m)
	}
	if p.spoke != nil {
		reset(leases, "agent")
		return
	}
	for _, s := range p.w.spokes {
		reset(p.w.registrations(), s.agent.Name)
	}
}

// marked lets the core send a mark that is stored.
func (p *process) marked(agent string, st engine.Status, mark engine.HistoryMark) {
	p.step(reconcile.FromPeer{Agent: agent, Input: engine.Marked{Mark: mark, Revision: st.Unmarked}})
}

// recordedMark is a mark that was stored at a revision.
type recordedMark struct {
	c    *cluster
	rev  uint64
	lost bool // by a restore
}

// markRecorded is called when a mark is stored.
func (l *ledger) markRecorded(c *cluster, mark engine.HistoryMark) {
	l.marks[mark] = recordedMark{c: c, rev: c.st.rev}
}

// marksRestored notes which marks a restore to a revision has lost.
func (l *ledger) marksRestored(c *cluster, rev uint64) {
	for mark, at := range l.marks {
		if at.c == c && at.rev > rev {
			at.lost = true
			l.marks[mark] = at
		}
	}
}

// receivedMark is an agent that hears of a mark of its hub.
func (p *process) receivedMark(m engine.Message) {
	number := uint64(0)
	switch m := m.(type) {
	case engine.Roots:
		number = m.Mark
	case engine.Equal:
		number = m.Mark
	}
	if st, _ := p.reconciler.Status(""); p.spoke != nil && st.Connected && st.StoreHoldID == "" && p.known.Mark.Record != "" {
		p.known.Mark.Number = max(p.known.Mark.Number, number)
	}
}

// checkHistory checks that a side does not trust a store of which it knows a mark that is lost, whatever its revision is, and
// that it trusts a store that was never restored. A message of a process that was suspended may be older than what is known:
// then the store no longer has the mark that it reports. The store stays untrusted after such a message.
func (l *ledger) checkHistory(p *process, known, met engine.Store, has engine.HistoryMark, untrusted bool, restored int) {
	lost := known.UID == met.UID && known.Mark.Record == met.Mark.Record && l.marks[known.Mark].lost
	l.w.check(!lost || untrusted, "%s trusts a store that lacks mark %v and has %v", p.name, known.Mark, met)
	late := met.Revision < known.Revision || met.Mark != has
	if late && untrusted {
		l.late[met.UID] = true
	}
	l.w.check(!untrusted || restored > 0 || l.late[met.UID], "%s does not trust a store that was never restored: %v after %v", p.name, met, known)
}
